"""Codebooks: which word gets which bits (O'Neill & Bollegala 2019)."""

from lm.codebooks.code import Codebook, Spans

__all__ = ["Codebook", "Spans"]
