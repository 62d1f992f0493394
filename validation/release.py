"""This toolkit's version: of the installed package, or of the checkout that it runs from."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


@cache
def release() -> str:
    """The version; "unknown" where neither a package nor a checkout tells it."""
    try:
        return version("elastic-ai-toolkit")
    except PackageNotFoundError:
        pass
    try:
        found = re.search(r'^version = "([^"]+)"', _PROJECT.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "unknown"
