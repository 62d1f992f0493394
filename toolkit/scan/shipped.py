"""A probe as one program for a node's Python: it comes through stdin and leaves no file there."""

from __future__ import annotations

import ast
import functools
import itertools
import json
from pathlib import Path

import validation
from validation.measures.node.inventory_scan_probe import TYPE as TYPE

PROBE = "validation.measures.node.inventory_scan_probe"
COMMAND = "echo; exec python3 -I -B -"
"""Its answer is on a line of its own, for what a login file printed may have no end. Isolated: neither the user's
packages nor PYTHON* variables. The program is read from stdin to its end."""
OLDEST = (3, 9)
LIMIT_S = 60
"""After so many seconds the program ends itself, whatever became of its controller."""
TOO_OLD = "python-too-old"
_ROOT = Path(validation.__file__).parents[1]

# Any Python 3 runs the first lines: one that is too old for the probe says so, and does not fail at its syntax.
_BOOT = """\
import json, sys
if sys.version_info[:2] < {oldest!r}:
    print(json.dumps({{"type": {too_old!r}, "python": sys.version.split()[0]}}))
    sys.exit(0)
import importlib.abc, importlib.util, signal
SOURCES = json.loads({sources!r})
signal.alarm({limit_s})
class Carried(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return importlib.util.spec_from_loader(name, self, is_package=SOURCES[name][0])
    def exec_module(self, module):
        module.__file__ = "/nowhere/" + module.__name__.replace(".", "/")  # no program is started by its path here
        exec(compile(SOURCES[module.__name__][1], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Carried())
importlib.import_module({probe!r}).{call}
"""


def _source(name: str) -> tuple[bool, str]:
    """Whether a module is a package, and its source."""
    path = _ROOT.joinpath(*name.split("."))
    package = path.is_dir()
    return package, (path / "__init__.py" if package else path.with_suffix(".py")).read_text(encoding="utf-8")


def _imports(source: str) -> set[str]:
    """Modules of this project that a source names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {
        n for n in found if n.startswith("validation.") and _ROOT.joinpath(*n.split(".")).with_suffix(".py").is_file()
    }


def sources(probe: str = PROBE) -> dict[str, tuple[bool, str]]:
    """Every module that a probe needs, by name: whether it is a package, and its source."""
    found: dict[str, tuple[bool, str]] = {}
    wanted = {probe}
    while wanted:
        name = wanted.pop()
        found[name] = _source(name)
        packages = set(itertools.accumulate(name.split("."), "{}.{}".format))
        wanted |= (packages | _imports(found[name][1])) - found.keys()
    return found


@functools.cache
def program(probe: str = PROBE, call: str = "main()", limit_s: int = LIMIT_S) -> bytes:
    """What a node's Python gets to read: `call` of the module `probe`, which ends after `limit_s` seconds at the
    latest. Made before threads are: ast.parse of Python 3.11 fails in several at once.
    """
    carried = json.dumps(sources(probe), sort_keys=True)
    text = _BOOT.format(oldest=OLDEST, too_old=TOO_OLD, sources=carried, limit_s=limit_s, probe=probe, call=call)
    return text.encode()
