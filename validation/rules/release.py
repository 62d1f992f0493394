"""This toolkit's version: of the files that it runs from, be they installed or a checkout."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from validation.base.project import ROOT


@cache
def release() -> str:
    """The version by the project's own file; "unknown" where neither that nor an installed package tells it."""
    try:
        found = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return found[1]
    try:
        return version("elastic-ai-toolkit")
    except PackageNotFoundError:
        return "unknown"
