"""Measurements: each at one address, its family's folder. They are found by walking these folders, and listed nowhere.

Nothing is imported here: modules whose names end with `_probe` run on nodes, which have the standard library alone.
"""
