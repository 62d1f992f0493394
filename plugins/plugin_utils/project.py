"""Where the Python packages are that go with this collection: the only place of plugins and roles that knows.

A checkout and the archive of the collection have them in the collection's own folder; the wheel installs them where its
collections are installed, three folders above.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError


def code_of(collection: Path) -> Path:
    """The folder with the packages `toolkit` and `validation` of a collection in that folder."""
    return collection if (collection / "validation").is_dir() else collection.parents[2]


def loaded(collection: Path, name: str) -> Any:
    """A module by its file in those packages, which not every Python can import: one that imports none of them."""
    path = code_of(collection) / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_sources(role_path: str) -> str:
    """The same for a role, by `role_path`: modules that it puts on nodes are copied from there."""
    return str(code_of(Path(role_path).parents[1]))


def python_modules(folder: str) -> list[str]:
    """All Python files in a folder and below it, in the order of their paths: a package that a role puts on nodes."""
    return sorted(str(path) for path in Path(folder).rglob("*.py"))


def nvml_binding(role_path: str) -> dict[str, str]:
    """NVIDIA's binding of NVML for a role, by `role_path`: its file on the controller, and the note that goes with it.

    AnsibleFilterError where the controller's Python has none that will do. validation/nvml/binding.py says which.
    """
    collection = Path(role_path).parents[1]
    module = loaded(collection, "validation/nvml/binding.py")
    try:
        file, note = module.carried(collection / "pyproject.toml")
    except (OSError, module.Unusable) as fault:
        raise AnsibleFilterError(f"programs on nodes cannot be given what they ask NVML by: {fault}") from None
    return {"file": str(file), "note": note}
