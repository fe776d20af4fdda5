"""What a sweep consists of by now, what is trained next, and how far it is."""
