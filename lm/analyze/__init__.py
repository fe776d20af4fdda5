"""`python -m lm analyze`: what settled trials say beyond their perplexity."""
