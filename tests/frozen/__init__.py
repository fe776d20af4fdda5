"""What must not move: keys, plans, pages, and folders that earlier code wrote; `make` writes the expected files."""
