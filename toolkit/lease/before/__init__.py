"""What is looked at before a lease is requested: what servers have for programs, and what a program needs of them."""
