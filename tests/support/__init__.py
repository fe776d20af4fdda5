"""What several tests share: made-up trials, records and pages, small models, sweep files, reference code."""
