"""Sentences are for people: nothing in leases and their commands decides by the words of one. What crosses a module
is a type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "toolkit/lease").rglob("*.py")),
    *(ROOT / f"toolkit/commands/{name}.py" for name in ("run", "lease", "lease_shared", "lease_static", "gpus")),
]
#: Methods that take a text apart or look into it.
TAKES_APART = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index", "removeprefix"}
#: What another program prints for people and in no other way, each read at one place.
FOREIGN = {
    "toolkit/lease/jobs/slurm_text.py": {"create step", "Memory required"},  # Slurm's errors
    "toolkit/lease/server/container.py": {"no such image"},  # Docker's
}


def _of_an_error(node: ast.AST) -> bool:
    """Whether it is the text of an error: str(fault)."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1
        and isinstance(node.args[0], ast.Name) and node.args[0].id in ("fault", "error", "exc")
    )  # fmt: skip


def decided_by_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that decide by a sentence: words in a text, an error's text taken apart, or judged by a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            left = node.left.value if isinstance(node.left, ast.Constant) else None
            if isinstance(left, str) and " " in left.strip():
                yield node.lineno, left
            if any(_of_an_error(one) for one in node.comparators):
                yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Call):
            of = node.func.value if isinstance(node.func, ast.Attribute) else None
            if of is not None and _of_an_error(of) and node.func.attr in TAKES_APART:
                yield node.lineno, ast.unparse(node)
            if ast.unparse(node.func) in ("complaint_of", "re.search", "re.match") and any(
                map(_of_an_error, node.args)
            ):
                yield node.lineno, ast.unparse(node)


def test_what_decides_by_words_is_found() -> None:
    for line in ('x = "driver API" in why', 'str(fault).startswith("has ")', "complaint_of(str(fault))",
                 'if "away" in str(fault): pass', 're.search("x", str(fault))'):  # fmt: skip
        assert list(decided_by_words(ast.parse(line))), line
    for line in ('"--json" in words', "name in names", "print(str(fault))", 'path.startswith("/")'):
        assert not list(decided_by_words(ast.parse(line))), line


def test_no_sentence_decides_anything() -> None:
    found = {
        (str(path.relative_to(ROOT)), words)
        for path in FILES
        for _line, words in decided_by_words(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {(path, words) for path, of_path in FOREIGN.items() for words in of_path}


#: Programs that measure, and print one JSON document for their user.
DOCUMENTS = ("copybench", "train", "train_costs", "train_keep")


def _untyped(annotation: ast.AST | None) -> bool:
    return annotation is not None and any(
        f"{kind}[str, Any]" in ast.unparse(annotation) for kind in ("dict", "Mapping")
    )


def test_no_module_of_leases_gives_another_a_dictionary_of_anything() -> None:
    """What crosses a module is a type, so that a checker sees every field."""
    found = []
    for path in (path for path in FILES if path.stem not in DOCUMENTS):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = [*node.args.args, *node.args.kwonlyargs]
                if any(map(_untyped, [node.returns, *(one.annotation for one in arguments)])):
                    found.append(f"{path.name}: {node.name}")
            if isinstance(node, ast.ClassDef):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                found += [f"{path.name}: {node.name}" for one in fields if _untyped(one.annotation)]
    assert found == ["lease_request.py: taken_from"], "a command's options, as click has them"
