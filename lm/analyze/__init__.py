"""What settled trials say beyond perplexity: a file for each kind of analysis of their weights, and the command."""
