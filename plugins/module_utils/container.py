"""Whether a node is a container, whose kernel is its host's."""

from __future__ import annotations

from pathlib import Path

MARKS = ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")


def read_container() -> bool:
    """Whether this node is a container, as its init or its engine has marked it."""
    return any(Path(mark).exists() for mark in MARKS)
