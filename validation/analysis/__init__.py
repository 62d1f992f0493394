"""Statistics, scaling and blame. Pure: numbers in, numbers and names out."""
