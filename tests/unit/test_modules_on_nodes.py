"""What the roles of remoting put on nodes: each module of the project with all that it imports of the project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("toolkit/lease/**/*.py",)


def _awaited(tree: ast.AST) -> set[ast.AST]:
    """Imports whose failure is expected: on a node there is no inventory to read."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any("ImportError" in ast.dump(h.type) for h in node.handlers if h.type):
            found |= {inner for part in node.body for inner in ast.walk(part)}
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            found |= {inner for part in node.body for inner in ast.walk(part)}
    return found


def imported(path: Path) -> Iterator[str]:
    """Files of the project that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    awaited = _awaited(tree)
    for node in ast.walk(tree):
        if node in awaited:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            place = Path(*name.split("."))
            if place.parts[0] in ("toolkit", "validation"):
                yield from (
                    str(one) for one in (place.with_suffix(".py"), place / "__init__.py") if (ROOT / one).is_file()
                )


@pytest.mark.parametrize("role", ["remoting_client", "remoting_server"])
def test_every_module_that_a_node_gets_has_what_it_imports(role: str) -> None:
    variables = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
    given = {*variables[f"__{role}_modules"]}
    given |= {str(path.relative_to(ROOT)) for pattern in FOLDERS for path in ROOT.glob(pattern)}
    assert not [name for name in given if not (ROOT / name).is_file()]
    lacks = {
        f"{name} imports {other}"
        for name in sorted(given)
        if name.endswith(".py")
        for other in imported(ROOT / name)
        if other not in given
    }
    assert sorted(lacks) == []


#: Programs that probes start by their path and isolated, so that they find the project by what they put on their path.
PROGRAMS = re.compile(r'PROGRAM_FOLDER / "(\w+\.py)"|\b(nvlinks|gpulibs)\.__file__')


def programs() -> list[Path]:
    files = [path for room in ("probes", "measures", "nvml") for path in (ROOT / "validation" / room).rglob("*.py")]
    names = {
        match[1] or f"{match[2]}.py" for path in files for match in PROGRAMS.finditer(path.read_text(encoding="utf-8"))
    }
    return sorted(path for path in files if path.name in names)


def test_the_programs_are_found() -> None:
    """Without one the next test says nothing."""
    assert {path.name for path in programs()} >= {"nvlinks.py", "gpulibs.py", "torch_compute.py", "train_cnn.py"}


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.name)
def test_a_program_says_where_the_project_is_before_it_imports_it(path: Path) -> None:
    said = False
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        said |= isinstance(node, ast.Expr) and ast.unparse(node).startswith("sys.path.insert(0, str(Path(__file__)")
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        ours = [name for name in names if name.split(".")[0] in ("toolkit", "validation")]
        assert said or not ours, f"{path.name}:{node.lineno}: python -I does not find {ours[0]}"
