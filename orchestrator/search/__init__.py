"""Searching: tasks, the ledger of what was asked and found, Optuna's samplers and pruners, the source of trials."""
