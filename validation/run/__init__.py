"""A run directory, read: its documents, its raw logs, and the verdict that follows from them."""
