"""Who may import whom: the rooms of docs/explanation/architecture.md, one way, and no circle of files anywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from validation.base.project import ROOT

PAGE = ROOT / "docs/explanation/architecture.md"


@cache
def modules(package: str, root: Path = ROOT) -> dict[str, Path]:
    """Name -> file, of every module of a package."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules of `known` that it imports anywhere, in functions and for types alone too."""
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for wanted in _wanted(node, name, path):
                while wanted and wanted not in known:
                    wanted = wanted.rpartition(".")[0]
                if wanted and wanted != name:
                    found[name].add(wanted)
    return found


def _wanted(node: ast.AST, name: str, path: Path) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        return [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def room(module: str) -> str:
    """The folder below validation/ that a module stands in; "" for the package itself. What draws is the report's."""
    if module.startswith("validation.measures.") and module.endswith("_figures"):
        return "report"
    return module.split(".")[1] if "." in module else ""


def order(page: str) -> list[str]:
    """The rooms in the order of the table, the lowest first."""
    table = page.partition("### Rooms of validation")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\| `(\w+)` \|", table)


def upward(known: Mapping[str, set[str]], rooms: list[str]) -> list[str]:
    """Imports of a room that does not stand above the importing one in the table."""
    place = {name: number for number, name in enumerate(rooms)}
    return sorted(
        f"{module} imports {other}"
        for module, wanted in known.items()
        for other in wanted
        if room(module) != room(other) and room(other) and place[room(other)] > place.get(room(module), -1)
    )


def circle(known: Mapping[str, set[str]]) -> list[str]:
    """Modules that need each other, [] where none do. A package that lists its own modules is none."""
    try:
        tuple(TopologicalSorter(known).static_order())
    except CycleError as fault:
        return list(fault.args[1])
    return []


def test_every_room_is_in_the_table_and_the_table_has_no_other() -> None:
    there = {room(name) for name in modules("validation")} - {""}
    listed = order(PAGE.read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(there)


def test_every_folder_of_toolkit_is_in_the_table_of_rooms() -> None:
    folders = {f"toolkit/{path.parent.name}/" for path in ROOT.glob("toolkit/*/__init__.py")}
    table = PAGE.read_text(encoding="utf-8").partition("## Rooms")[2].partition("### Rooms of validation")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    assert sorted(name for name in folders if f"`{name}`" not in first) == []


def test_no_room_imports_one_that_stands_below_it_in_the_table() -> None:
    assert upward(imports(modules("validation")), order(PAGE.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("package", ["validation", "toolkit"])
def test_no_file_needs_one_that_needs_it(package: str) -> None:
    assert circle(imports(modules(package))) == []


def test_validation_knows_no_toolkit() -> None:
    known = modules("validation") | modules("toolkit")
    there = [f"{name} imports {other}" for name, wanted in imports(known).items() for other in wanted]
    assert [line for line in there if line.startswith("validation") and " imports toolkit" in line] == []


def test_the_check_sees_what_is_hidden(tmp_path: Path) -> None:
    """An import in a function, one for types alone, one by dots, and one by a call."""
    for name, text in {
        "low/__init__": "",
        "low/a": "def f():\n    from validation.high.b import x\n",
        "low/c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import validation.high.b\n",
        "low/d": "from ..high import b\n",
        "low/e": "import importlib\nimportlib.import_module('validation.high.b')\n",
        "high/__init__": "",
        "high/b": "from validation.low import a\n",
    }.items():
        path = tmp_path / "validation" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    known = imports(modules("validation", tmp_path))
    assert [line.split()[0].rpartition(".")[2] for line in upward(known, ["low", "high"])] == ["a", "c", "d", "e"]
    assert set(circle(known)) == {"validation.low.a", "validation.high.b"}
