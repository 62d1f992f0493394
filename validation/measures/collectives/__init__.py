"""Collective operations over many GPUs."""
