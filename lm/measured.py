"""What a few real steps of a model cost on this machine; torch-free, so that a plan can use it."""

from __future__ import annotations

from lm.spec import Part


class Measured(Part):
    """Medians of real steps and windows, after a warm-up.

    Tokens count over the whole batch or all columns. `start_seconds` is what a trial spends before its first step: the
    text, the codebook, the initial weights. `peak_memory_bytes` is the process's on a CPU, what the allocator reserved
    on a GPU, there without the CUDA context.
    """

    train_tokens_per_second: float
    valid_tokens_per_second: float
    test_tokens_per_second: float
    peak_memory_bytes: int
    start_seconds: float
    weights_bytes: int
    device: str
    threads: int
    steps: int
