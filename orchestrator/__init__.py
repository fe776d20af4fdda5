"""Run many trials of `lm`, keep their records, and report what they show."""
