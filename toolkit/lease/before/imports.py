"""What a Python program imports whatever it does, and whether the Python that is to run it has that.

Only imports that are certain to be reached count: of the program's own level and not of a function, a branch or a `try`
that goes on without. A program that changes where Python looks (`sys.path`) is left to Python itself.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from toolkit.lease.before.program_imports import ABSENT, Import, is_local, local_files, names_in, text_of
from toolkit.lease.before.program_words import PythonProgram

STANDARD: frozenset[str] = frozenset(getattr(sys, "stdlib_module_names", ()))
#: A program with one of these finds modules that nobody sees from outside.
_MOVES = ("sys.path", "site.addsitedir", "meta_path", "path_hooks")
MOST_FILES = 300
ASKS_S = 15
_ASK = r"""
import sys
sys.path[:1] = []
import importlib.util, json
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
print(json.dumps([name for name in sys.argv[1:] if not there(name)]))
"""


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and "__name__" in names_in(test.left)


def _certain(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Whole names that are imported, with their lines."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((one.name, node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
        elif isinstance(node, ast.With) or (isinstance(node, ast.If) and _is_main(node.test)):
            yield from _certain(node.body)
        elif isinstance(node, ast.Try):
            caught = [name for handler in node.handlers for name in names_in(handler.type)]
            if not (ABSENT & set(caught)) and all(handler.type is not None for handler in node.handlers):
                yield from _certain(node.body)


def certain_imports(program: PythonProgram) -> list[Import]:
    """Modules of neither the standard library nor the program's own folder, the first place of each. Nothing where the
    program finds modules in its own way."""
    here = Path.cwd()
    found = {name: Import(name, "its launcher") for name in program.imports}
    ahead = [(program.file.resolve(), program.file.name)] if program.file else []
    roots = [ahead[0][0].parent] if ahead else [here]
    roots += [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    texts = [(program.code, "-c")] if program.code else []
    if program.module:
        local = list(local_files(program.module, roots))
        ahead += [(one, one.name) for one in local]
        top = program.module.partition(".")[0]
        if not local and not is_local(top, roots) and top not in STANDARD:
            found[top] = Import(program.module, f"-m {program.module}")
    done: set[Path] = set()
    while (ahead or texts) and len(done) < MOST_FILES:
        if texts:
            text, shown = texts.pop()
        else:
            path, shown = ahead.pop(0)
            if path in done:
                continue
            done.add(path)
            text = text_of(path)
        if any(word in text for word in _MOVES):
            return []
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for name, line in _certain(tree.body):
            top = name.partition(".")[0]
            if is_local(top, roots):
                ahead += [(one, one.name) for one in local_files(name, roots)]
            elif top not in STANDARD:
                found.setdefault(top, Import(name, f"{shown}:{line}"))
    return list(found.values())


def absent(imports: Sequence[Import], modules: Collection[str]) -> list[Import]:
    """Those that a Python with these modules does not have."""
    have = set(modules)
    return [one for one in imports if one.top not in have]


def absent_here(imports: Sequence[Import], python: str) -> list[Import]:
    """Those that this Python of this machine does not have; none where it does not answer."""
    if not imports or not python:
        return []
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *(one.top for one in imports)], capture_output=True, text=True, check=False,
            timeout=ASKS_S, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )  # fmt: skip
        lacking = set(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return []
    return [one for one in imports if one.top in lacking]
