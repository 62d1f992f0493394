"""The report shows what a verdict says: it imports nothing that judges, signs, or runs on a node."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from validation.base.project import ROOT

JUDGES = ("validation.judging", "validation.verdict")
OTHERS = ("validation.signing", "validation.probes", "validation.execute", "validation.plan.suites", "validation.nvml")


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and module of each import, whatever is taken from the module; those inside functions, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def _is(module: str, rooms: tuple[str, ...]) -> bool:
    return module.startswith(tuple(f"{room}." for room in rooms)) or module in rooms


@functools.cache
def judges(module: str) -> bool:
    """Whether a module judges: it stands in a room that does, or is a measurement's and imports one that does."""
    if _is(module, JUDGES):
        return True
    file = _file(module)
    if file is None or not _is(module, ("validation.measures",)):
        return False
    return any(_is(other, JUDGES) for _, other in imported(file.read_text(encoding="utf-8")))


def _form(module: str) -> bool:
    """Whether that is a class in a file of a measurement: a form of facts, which says what was found."""
    home, _, name = module.rpartition(".")
    file = _file(home) if _is(home, ("validation.measures",)) else None
    tree = ast.parse(file.read_text(encoding="utf-8")) if file is not None else ast.Module([], [])
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)


def refused(source: str) -> list[str]:
    """What a module of the report imports and may not. Of a measurement that judges, forms of facts are all it may."""
    taken = [(line, module) for line, module in imported(source) if not _form(module)]
    forms = {module.rpartition(".")[0] for _, module in imported(source) if _form(module)}
    names = {module.rpartition(".")[0] for _, module in taken}
    return [
        f"{line}: {module}"
        for line, module in taken
        if (judges(module) and (module not in forms or module in names))
        or (judges(module.rpartition(".")[0]) and _is(module, ("validation.measures",)))
        or _is(module, OTHERS)
        or module.endswith("_probe")
    ]


def test_the_report_imports_nothing_that_judges_signs_or_runs_on_a_node() -> None:
    files = [
        *sorted((ROOT / "validation" / "report").rglob("*.py")),
        *sorted(ROOT.glob("validation/measures/*/*_figures.py")),
    ]
    found = [f"{file.relative_to(ROOT)}:{one}" for file in files for one in refused(file.read_text(encoding="utf-8"))]
    assert files
    assert not found, "what both need is a function below judging, or stands in the verdict:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "from validation.judging.case import CONTAINERS",
        "from validation.verdict.glance import glance",
        "from validation.measures.remoting.model import explained",
        "from validation.measures.remoting import model",
        "from validation.measures.remoting.move import judge_remote_move",
        "from validation.measures.remoting.move import MoveFacts, judge_remote_move",
        "def f():\n    from validation.signing.statement import WORDS",
        "import validation.probes.cuda",
        "from validation.measures.training.training_short_probe import REPORT",
    ],
)
def test_it_is_refused(code: str) -> None:
    assert refused(code)


@pytest.mark.parametrize(
    "code",
    [
        "from validation.measures.remoting.explained import explained",
        "from validation.measures.training.facts import TrainingFacts",
        "from validation.measures.remoting.move import MoveFacts",
        "from validation.rules.conformance import conformance",
        "from validation.analysis.denial import last_results",
    ],
)
def test_what_both_need_stands_below(code: str) -> None:
    assert not refused(code)
