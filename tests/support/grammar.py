"""Trees of a grammar in which the preposition decides what it belongs to, and candidates of one that ignores that.

`of` belongs to the noun before it, `with` to the verb. The damaged grammar has forgotten this, and the label of the
phrase: it offers both trees, each with either label, and always prefers the noun and the wrong label.
"""

from __future__ import annotations

import random
from pathlib import Path

from lm.rerank import Candidate, Candidates

NOUNS, VERBS = ("dog", "man", "park", "cup", "tree"), ("sees", "likes", "finds")
_NOUN_SCORE, _VERB_SCORE, _WRONG_LABEL_SCORE = -1.0, -1.2, 0.1


def _sentence(chance: random.Random) -> tuple[list[str], str, str, str | None]:
    nouns = [f"(NP the {chance.choice(NOUNS)} )NP" for _ in range(3)]
    return nouns, chance.choice(VERBS), chance.choice(("of", "with")), chance.choice((None, "happily"))


def _tree(sentence: tuple[list[str], str, str, str | None], to_noun: bool, label: str = "PP") -> str:
    (subject, thing, other), verb, preposition, adverb = sentence
    phrase = f"({label} {preposition} {other} ){label}"
    thing = f"(NP {thing} {phrase} )NP" if to_noun else f"{thing} {phrase}"
    end = f" (ADVP {adverb} )ADVP" if adverb else ""
    return f"(S {subject} (VP {verb} {thing}{end} )VP )S"


def trees(count: int, seed: int) -> list[str]:
    """Sentences of the grammar, as text."""
    chance = random.Random(seed)
    sentences = [_sentence(chance) for _ in range(count)]
    return [_tree(sentence, sentence[2] == "of") for sentence in sentences]


def parsed(count: int, seed: int) -> list[Candidates]:
    """Sentences with the damaged grammar's candidates and the true tree."""
    chance = random.Random(seed)
    inputs = []
    for number in range(count):
        sentence = _sentence(chance)
        candidates = [
            Candidate(
                text=_tree(sentence, to_noun, label),
                score=(_NOUN_SCORE if to_noun else _VERB_SCORE) + (_WRONG_LABEL_SCORE if label != "PP" else 0.0),
            )
            for to_noun in (True, False)
            for label in ("PP", "ADVP")
        ]
        gold = _tree(sentence, sentence[2] == "of")
        inputs.append(Candidates(candidates=tuple(candidates), id=number, gold=gold))
    return inputs


def write_treebank(folder: Path) -> Path:
    """A corpus with a tree a line."""
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate((("train", 600), ("valid", 60), ("test", 60))):
        (folder / f"{split}.txt").write_text("\n".join(trees(count, seed)) + "\n", encoding="utf-8")
    return folder
