"""What makes the pages of `docs/` that are generated."""
