"""Nodes that join a pool in use and leave it: drained until accepted, and drained before they go."""
