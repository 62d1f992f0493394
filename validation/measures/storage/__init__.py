"""Storage of the nodes: what each reads and writes, all at once, and what they see of each other there."""
