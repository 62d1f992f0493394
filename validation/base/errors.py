"""Errors that a person can act on. One root, so that the command line handles all of them in one place.

Standard library only: machines of the pool import this module too.
"""

from __future__ import annotations


class ToolkitError(Exception):
    """`str(e)` says what is wrong, where, and what to do next. `code` is the exit code of the command."""

    def __init__(self, words: str = "", code: int = 2) -> None:
        """`words` without a full stop; 2 is a usage or input error (toolkit/exits.py has all codes)."""
        super().__init__(words)
        self.code = code


class ConfigError(ToolkitError):
    """An input that cannot be used. `str(e)` is one line: `path:LINE: field: what is wrong; what to do`."""


class FormError(ConfigError):
    """An input that can be read and says what this release does not know, or lacks what it needs: by a mistake, or
    because another release wrote it. `release_told`: the message names that release.
    """

    release_told = False


class RunError(ToolkitError):
    """The run cannot go on (disk full, run directory gone). `str(e)` is one line: what, where, what to do."""


class DiskError(RunError):
    """The disk on which a run is kept refuses; nothing is said of what was measured."""
