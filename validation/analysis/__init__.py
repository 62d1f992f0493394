"""Statistics, scaling and localisation. Pure: numbers in, numbers and names out."""
