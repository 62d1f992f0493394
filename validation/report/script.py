"""The report's one script, and the hash by which the page's own policy allows it and no other."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from markupsafe import Markup


@cache
def script() -> tuple[Markup, str]:
    """Text of the script as it stands between the tags, and its source expression for `script-src` (CSP level 2).

    It is a file of this package and holds nothing of a run. The report can be read without it.
    """
    text = resources.files("validation.report").joinpath("templates").joinpath("_script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), f"'sha256-{digest}'"  # noqa: S704 - a file of this package
