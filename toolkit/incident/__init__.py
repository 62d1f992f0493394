"""A GPU server that fails its health: drained, described, mended where that can be, accepted again."""
