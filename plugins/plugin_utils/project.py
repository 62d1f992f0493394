"""Where the Python packages are that go with this collection: the only place of plugins and roles that knows.

A checkout and the archive of the collection have them in the collection's own folder; the wheel installs them where its
collections are installed, three folders above.
"""

from __future__ import annotations

from pathlib import Path


def code_of(collection: Path) -> Path:
    """The folder with the packages `toolkit` and `validation` of a collection in that folder."""
    return collection if (collection / "validation").is_dir() else collection.parents[2]


def python_sources(role_path: str) -> str:
    """The same for a role, by `role_path`: modules that it puts on nodes are copied from there."""
    return str(code_of(Path(role_path).parents[1]))
