"""Who hears of trials while they run: the terminal, the clock of the time left, and the mirror in MLflow."""
