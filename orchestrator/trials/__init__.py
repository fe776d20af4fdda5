"""What a trial is, which there are, and where they lie: the plan, facts of corpora, records, locks, disk, storage."""
