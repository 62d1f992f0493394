"""A mirror of all that a site needs from outside, for halls without internet."""
