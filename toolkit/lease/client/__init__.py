"""What a lease's user does: request it, wait for it, run a program by it or on its server, extend and release it."""
