"""A sweep's report: the page and what lies beside it, a pure function of plan and records."""
