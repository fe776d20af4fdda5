"""What settled trials say beyond their perplexity: one module a kind of analysis."""
