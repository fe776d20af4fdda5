"""Trials run, on Ray or in this process, and what they cost."""
