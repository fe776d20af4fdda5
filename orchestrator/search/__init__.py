"""Searches: what is searched, their ledgers, the samplers and pruners of Optuna, and the source of their trials."""
