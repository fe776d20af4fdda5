"""The commands, a file each; heavy modules are imported inside the functions that need them."""
