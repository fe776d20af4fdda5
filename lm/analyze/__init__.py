"""What trained weights say beyond perplexity: a file for each kind of analysis."""
