"""An inventory from machines that nobody has described yet: log in, read, propose, write, compare."""
