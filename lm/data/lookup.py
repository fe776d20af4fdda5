"""From words that somebody wrote to ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lm.data.text import EOS, tokens_of
from lm.names import closest
from lm.spec import Generate


def word_ids(words: Iterable[str], vocabulary: Sequence[str], place: str) -> list[int]:
    """The ids of words; ValueError names the first that the vocabulary lacks, and the nearest that it has."""
    ids = {word: i for i, word in enumerate(vocabulary)}
    found = []
    for word in words:
        if word not in ids:
            near = word.lower() if word.lower() in ids else closest(word, vocabulary)
            hint = "" if near is None else f" (did you mean {near!r}?)"
            raise ValueError(f"{place}: {word!r} is not among the {len(ids):,} words of the corpus{hint}")
        found.append(ids[word])
    return found


def prompt_ids(prompt: str, vocabulary: Sequence[str]) -> list[int]:
    """An `<eos>`, then the ids of the prompt's words; a new line in it is an `<eos>`. ValueError for unknown words."""
    return word_ids([EOS, *list(tokens_of(prompt.split("\n")))[:-1]], vocabulary, "prompt")


def banned_ids(ban: Iterable[str], vocabulary: Sequence[str]) -> list[int]:
    """The ids of banned words; ValueError for unknown words, or if no other word is left."""
    ids = word_ids(ban, vocabulary, "ban")
    if len(set(ids)) == len(vocabulary):
        raise ValueError(f"ban: leaves none of {len(vocabulary)} words")
    return ids


def check_words(how: Generate, vocabulary: Sequence[str]) -> None:
    """ValueError if the prompt, or what is banned, does not fit the vocabulary."""
    prompt_ids(how.prompt, vocabulary)
    banned_ids(how.ban, vocabulary)
