"""Documents of a run that a test changes in their place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON document in its place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))
