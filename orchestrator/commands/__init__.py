"""The commands; heavy modules are imported inside the functions that need them."""
