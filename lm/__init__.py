"""Train, evaluate and keep one recurrent word-level language model."""
