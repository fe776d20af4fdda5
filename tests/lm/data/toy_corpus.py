"""A small corpus with published figures of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lm.data.corpora import Files, Published

TOY = {
    "train": "the cat sat\n\nthe <unk> sat on the mat\n",
    "valid": "the mat sat\n",
    "test": "a cat sat on the mat\n\n",
}
TOY_TOKENS = {"train": 12, "valid": 4, "test": 8}
TOY_VOCABULARY = 7  # the cat sat <eos> <unk> on mat


def write_texts(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in texts.items():
        (folder / f"{split}.txt").write_text(text, encoding="utf-8", newline="")
    return folder


def publish(addresses: dict[str, str]) -> Published:
    hashes = {split: hashlib.sha256(text.encode()).hexdigest() for split, text in TOY.items()}
    return Published(TOY_TOKENS, TOY_VOCABULARY, hashes, Files(addresses))
