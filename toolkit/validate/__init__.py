"""What `toolkit validate` does, outside of click: a request, what it comes to, and a function for each of that."""
