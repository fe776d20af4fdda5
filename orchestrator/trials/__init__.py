"""Trials: the plan, records, locks, trial folders on the disk and in a storage."""
