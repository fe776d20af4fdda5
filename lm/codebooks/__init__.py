"""Codebooks: which word gets which bits (O'Neill & Bollegala 2019). Nothing here needs torch."""

from lm.codebooks.build import build_codebook
from lm.codebooks.code import Codebook, Spans
from lm.codebooks.store import save_codebook

__all__ = ["Codebook", "Spans", "build_codebook", "save_codebook"]
