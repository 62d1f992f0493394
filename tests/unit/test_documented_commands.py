"""Each command line in README, docs, help and messages names commands and options that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.unit.test_command_tree import PATHS, tree

ROOT = Path(__file__).parents[2]
RECORDS = {"sample", "measurements", "decisions"}
"""Records are as they were written."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not RECORDS & set(page.relative_to(ROOT).parts)),
    *sorted((ROOT / "toolkit").rglob("*.py")),
    *sorted((ROOT / "validation").rglob("*.py")),
    *sorted((ROOT / "validation/measures").glob("*/*.yml")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted((ROOT / "engine/torch").rglob("*.py")),
    *sorted((ROOT / "engine/torch").rglob("*.cc")),
]
_LINE = re.compile(r"(?:^ {4,}(?:\$ )?|`|\"\"\"|  |\(|: )toolkit ([a-z][^`\"\n]*)", re.MULTILINE)


def said(text: str) -> Iterator[list[str]]:
    """The words of each command line, up to its comment, its pipe, or the program that it runs."""
    for found in _LINE.finditer(text):
        line = re.split(r" {2,}|\s#|[|;&>)]|\s--(?:\s|$)|\.\.\.|…|\\n", found[1])[0]
        yield line.replace("\\", " ").split()


def wrong(words: list[str]) -> str:
    """What of a command line does not exist, '' where all does."""
    path: list[str] = []
    while words and isinstance(tree()[" ".join(path)], click.Group) and " ".join([*path, words[0]]) in tree():
        path.append(words.pop(0))
    if not path:
        return "command"
    known = {name for n in range(len(path) + 1) for p in tree()[" ".join(path[:n])].params for name in p.opts}
    known |= {"--help", "--help-all", "--quiet", "--verbose", "-h", "-q", "-v"}
    given = [re.sub(r"[=,.:'\]].*", "", word) for word in words if re.match(r"--[a-z]", word)]
    return next((option for option in given if option not in known), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_of_a_page_exists(page: Path) -> None:
    faults = []
    for words in said(page.read_text(encoding="utf-8")):
        line, fault = " ".join(words), wrong(list(words))
        if fault.startswith("--"):
            faults.append(f"toolkit {line}: {fault}")
        elif fault and page.suffix == ".md":
            faults.append(f"toolkit {line}: no such command")
    assert faults == []


VALUE = re.compile(r"(--[a-z][a-z-]*)[ =]([0-9][0-9a-z.%]*)(?=[\\s`),;]|$)")


def refused(command: click.Command, text: str) -> list[str]:
    """Options with numbers that a command does not take."""
    numbers = {name: option for option in command.params for name in option.opts}
    faults = []
    for name, value in VALUE.findall(text):
        if name in numbers and not isinstance(numbers[name].type, (click.Path, click.Choice)):
            try:
                numbers[name].type.convert(value, None, None)
            except click.UsageError as fault:
                faults.append(f"{name} {value}: {fault.message}")
    return faults


@pytest.mark.parametrize("page", [page for page in PAGES if page.suffix == ".md"], ids=lambda page: page.name)
def test_every_number_on_a_page_is_one_that_its_option_takes(page: Path) -> None:
    """Within a command line by that command, and of an option alone by one of those that have it."""
    text, faults = page.read_text(encoding="utf-8"), list[str]()
    for words in said(text):
        path: list[str] = []
        while " ".join([*path, *words[:1]]) in tree() and words:
            path.append(words.pop(0))
        faults += refused(tree()[" ".join(path)], " ".join(words))
    for alone in re.findall(r"`(--[a-z][a-z-]* [0-9][0-9a-z.%]*)`", text):
        having = [one for one in tree().values() if any(alone.split()[0] in param.opts for param in one.params)]
        said_of = [refused(one, alone) for one in having]
        faults += said_of[0] if said_of and all(said_of) else []
    assert faults == []


def test_pages_have_command_lines() -> None:
    assert sum(len(list(said(page.read_text(encoding="utf-8")))) for page in PAGES if page.suffix == ".md") > 150


def test_lines_are_read_and_what_is_gone_is_found() -> None:
    page = "    toolkit trace JOB\n`toolkit validate --plan-only`\n    $ toolkit lease request -n 1 --hours 2   # x\n"
    page += "    toolkit run --time 2h -- python x.py --hours 2\n    toolkit lab fault set gpu2 slow-link\n"
    page += "use the other: toolkit run --only (NAME=1)\n"
    page += "or beside it (toolkit run --where server)\n"
    assert [wrong(words) for words in said(page)] == ["command", "--plan-only", "--hours", "", "", "--only", ""]
    assert {"lab fault set", "lease request"} <= set(PATHS)
