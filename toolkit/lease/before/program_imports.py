"""What a Python program imports and calls, by a look at its text: of itself and of the files beside it that it imports.

Nothing of it is run. What is imported only where it is there (`try: ... except ImportError`) is not needed.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

#: So many files are read at most, and no larger one.
MOST_FILES, MOST_BYTES = 1000, 4 << 20
#: Backends of torch.compile that make no kernels by the engine: they trace, or whole graphs stand for them.
ENGINE_COMPILES = (None, "inductor", "cudagraphs", "eager", "aot_eager", "aot_eager_decomp_partition")
_STANDARD: frozenset[str] = frozenset(getattr(sys, "stdlib_module_names", ()))
#: Handlers of these: a module that is not there is no fault.
ABSENT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Import:
    """A module by its whole name, and where: train.py:3."""

    name: str
    where: str

    @property
    def top(self) -> str:
        """Of torch.nn torch."""
        return self.name.partition(".")[0]


@dataclass
class Seen:
    """imports: of what is not beside the program, in the order of reading. calls: dotted names that are called, used as
    decorators, or named (`torch.compile`), with where; compiled: calls of torch.compile that make kernels. texts:
    names of CUDA's own library that are loaded by hand. perhaps: TensorFlow, imported where it is there."""

    imports: list[Import] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    compiled: str = ""
    driver: str = ""
    perhaps: list[Import] = field(default_factory=list)

    def first(self, top: str) -> Import | None:
        """Where a package is imported first."""
        return next((one for one in self.imports if one.top == top), None)


class _File(ast.NodeVisitor):
    """One file."""

    def __init__(self, shown: str, seen: Seen) -> None:
        self.shown, self.seen = shown, seen
        self.wanted: list[tuple[str, int, int]] = []  # module, level, line
        self.alias: dict[str, str] = {}
        self.optional = 0

    def _import(self, name: str, level: int, line: int) -> None:
        # Without PyTorch such a program goes on, on the processor: it does need it.
        if not self.optional or name.partition(".")[0] == "torch":
            self.wanted.append((name, level, line))
        elif name.partition(".")[0] in ("tensorflow", "keras"):
            self.seen.perhaps.append(Import(name, f"{self.shown}:{line}"))

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            self._import(one.name, 0, node.lineno)
            self.alias[one.asname or one.name.partition(".")[0]] = (
                one.name if one.asname else one.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if module:
            self._import(module, node.level, node.lineno)
        for one in node.names:
            if one.name != "*":
                self._import(f"{module}.{one.name}" if module else one.name, node.level or -1, node.lineno)
            if not node.level:
                self.alias[one.asname or one.name] = f"{module}.{one.name}"

    def visit_Try(self, node: ast.Try) -> None:
        absent = any(ABSENT & set(names_in(handler.type)) or handler.type is None for handler in node.handlers)
        self.optional += absent
        self._all(node.body)
        self.optional -= absent
        self._all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If) -> None:
        checking = "TYPE_CHECKING" in names_in(node.test)
        self.optional += checking
        self._all(node.body)
        self.optional -= checking
        self._all([*node.orelse, node.test])

    def _all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _dotted(self, node: ast.AST) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.alias:
            return ""
        return ".".join([self.alias[node.id], *reversed(parts)])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name:
            self.seen.names.setdefault(name, f"{self.shown}:{node.lineno}")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if "." in self.alias.get(node.id, ""):
            self.seen.names.setdefault(self.alias[node.id], f"{self.shown}:{node.lineno}")

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        first = node.args[0] if node.args else None
        constant = first.value if isinstance(first, ast.Constant) else None
        by_name = name == "importlib.import_module" or (
            isinstance(node.func, ast.Name) and node.func.id == "__import__"
        )
        if by_name and isinstance(constant, str) and not constant.startswith("."):
            self._import(constant, 0, node.lineno)
        if name == "torch.compile" and not self.optional and _makes_kernels(node):
            self.seen.compiled = self.seen.compiled or f"{self.shown}:{node.lineno}"
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(r"(.*/)?libcuda\.so(\.1)?", node.value):
            self.seen.driver = self.seen.driver or f"{self.shown}:{node.lineno}"


def names_in(node: ast.AST | None) -> list[str]:
    """Names and attributes in an expression."""
    if node is None:
        return []
    found = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return found + [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]


def _makes_kernels(call: ast.Call) -> bool:
    """Whether a call of torch.compile has a backend that may make kernels here: none that only traces, and none that
    the engine stands for by whole graphs (engine/torch/python/elastic_ai_torch/compiling.py)."""
    told = {one.arg: one.value for one in call.keywords}
    backend, disable = told.get("backend"), told.get("disable")
    if isinstance(disable, ast.Constant) and disable.value is True:
        return False
    return not (backend is None or (isinstance(backend, ast.Constant) and backend.value in ENGINE_COMPILES))


def _parsed(text: str, shown: str, seen: Seen) -> list[tuple[str, int, int]]:
    """What a file imports. One of another syntax than this Python's is read line by line."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = enumerate(text.splitlines(), 1)
        matches = ((re.match(r"\s*(?:from|import)\s+([A-Za-z_][\w.]*)", line), number) for number, line in lines)
        return [(match[1], 0, number) for match, number in matches if match]
    file = _File(shown, seen)
    with suppress(RecursionError):  # what was read until there
        file.visit(tree)
    return file.wanted


def local_files(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Files beside the program that an import of that name reads: of packages too."""
    parts = name.split(".")
    for folder in folders:
        if not (folder / parts[0]).is_dir() and not (folder / f"{parts[0]}.py").is_file():
            continue
        for count in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:count])
            yield from (path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file())
        return


def is_local(name: str, folders: Sequence[Path]) -> bool:
    """Whether a module of that name is in one of the folders."""
    top = name.partition(".")[0]
    return any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in folders)


def text_of(path: Path) -> str:
    """A file of Python; "" where it cannot be read, or is too large for a program."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return ""
        with tokenize.open(path) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return ""


def look(
    files: Sequence[Path] = (), module: str = "", code: str = "", folder: Path | None = None, path: str | None = None
) -> Seen:
    """What these files, this module (found from `folder`, the current one) or this code import, and what the files
    beside them do. path: PYTHONPATH of the program."""
    here = folder or Path.cwd()
    given = os.environ.get("PYTHONPATH", "") if path is None else path
    more = [Path(one) for one in given.split(os.pathsep) if one]
    seen = Seen()
    ahead: list[tuple[Path, str]] = []
    done: set[Path] = set()
    roots = [*(one.resolve().parent for one in files), *([here] if module or code else []), *more]
    roots = [
        one for one in dict.fromkeys(roots) if "site-packages" not in one.parts and "dist-packages" not in one.parts
    ]
    ahead += [(one.resolve(), one.name) for one in files]
    if module:
        local = list(local_files(module, roots))
        ahead += [(one, one.name) for one in local]
        main = here.joinpath(*module.split("."), "__main__.py")
        ahead += [(main, f"{module}/__main__.py")] if main.is_file() else []
        if not local and not main.is_file():
            seen.imports.append(Import(module, f"-m {module}"))
    texts = [(code, "-c", here)] if code else []
    while (ahead or texts) and len(done) < MOST_FILES:
        if texts:
            text, shown, parent = texts.pop()
        else:
            file, shown = ahead.pop(0)
            if file in done:
                continue
            done.add(file)
            text, parent = text_of(file), file.parent
        for name, level, line in _parsed(text, shown, seen):
            base = parent
            for _ in range(max(level, 0) - 1):
                base = base.parent
            places = [base] if level > 0 else roots
            found = list(local_files(name, places))
            ahead += [(one, _shown(one, here)) for one in found]
            beside = level > 0 or is_local(name, roots)
            if level != -1 and not beside and name.partition(".")[0] not in _STANDARD:
                seen.imports.append(Import(name, f"{shown}:{line}"))
            elif level == -1 and not beside:
                seen.names.setdefault(name, f"{shown}:{line}")
    return seen


def _shown(path: Path, here: Path) -> str:
    try:
        return str(path.relative_to(here))
    except ValueError:
        return path.name
