"""Training: short and long, in turns, scaling."""
