"""What the tests of training share: devices, a small corpus, and the real ones where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lm.data import EncodedCorpus, load
from lm.spec import Corpus
from tests.support.tiny import write_corpus

torch.set_num_threads(1)


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
        ),
    ]
)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Every device there is; TF32, which cuDNN's float32 kernels use unless told not to, is off."""
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield torch.device(request.param)
    torch.backends.cudnn.allow_tf32 = allowed


@pytest.fixture(scope="session", autouse=True)
def encoded_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Encoded corpora go to a folder of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 24 words that trains in milliseconds."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def wikitext2() -> EncodedCorpus:
    folder = Path(os.environ.get("LM_DATA", ""), "wikitext-2")
    if not os.environ.get("LM_DATA") or not (folder / "train.txt").exists():
        pytest.skip("needs the real wikitext-2: $LM_DATA/wikitext-2/ is not there")
    return load(Corpus(name="wikitext-2"), download=False)
