"""What a format of the report says that cannot be made here."""

from __future__ import annotations


class Unavailable(Exception):
    """A format cannot be made on this machine. `str(e)` is one line: what is missing, and what to do."""
