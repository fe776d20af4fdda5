"""Trees written as text, such as `(S (NP the dog )NP (VP barks )VP )S`, and how well two agree (labelled F1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def brackets(tree: str) -> tuple[Counter[tuple[str, int, int]], list[str]]:
    """How often a tree has each bracket (label, first word, word after the last), and its words.

    A token `(X` opens a bracket with the label X, `)X` closes it; all others are words. ValueError if they do not fit.
    """
    found: Counter[tuple[str, int, int]] = Counter()
    words: list[str] = []
    opened: list[tuple[str, int]] = []
    for token in tree.split():
        if token[0] == "(" and len(token) > 1:
            opened.append((token[1:], len(words)))
        elif token[0] == ")" and len(token) > 1:
            label, start = opened.pop() if opened else ("", 0)
            if label != token[1:]:
                raise ValueError(f"{token!r} closes {f'({label}' if label else 'nothing'!r}")
            found[label, start, len(words)] += 1
        else:
            words.append(token)
    if opened:
        raise ValueError(f"{f'({opened[-1][0]}'!r} is never closed")
    return found, words


def labelled_f1(pairs: Iterable[tuple[str, str]]) -> float:
    """The F1 of labelled brackets over all pairs of a tree and the true one, from 0 to 1 (PARSEVAL; Black et al. 1991).

    Twice the brackets that both have, by label, first and last word, as a share of all brackets of both. ValueError if
    a tree's brackets do not fit, or its words are not the true tree's.
    """
    common = total = 0
    for tree, truth in pairs:
        (found, words), (expected, true_words) = brackets(tree), brackets(truth)
        if words != true_words:
            raise ValueError(f"{tree!r} has other words than the true tree")
        common += (found & expected).total()
        total += found.total() + expected.total()
    return 2 * common / total if total else 0.0
