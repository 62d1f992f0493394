"""A node by itself: hardware, software, settings, state, host memory; suite preflight."""
