"""The pool's queue as its users see it: who waits, when GPUs can be had, and what a user may have."""
