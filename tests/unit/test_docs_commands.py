"""Every command line of the documentation is one that this release takes: its commands, its options, its choices."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from toolkit.cli import cli

ROOT = Path(__file__).parents[2]
#: Pages that record what was done with a release of before.
RECORDS = ("docs/measurements/", "benchmarks/", "docs/sample/", "CHANGELOG.md", "changelog.d/")
_BEGINS = ("toolkit ", "python -m toolkit ", "python3 -m toolkit ")
#: What pages write for a value.
_VALUE = re.compile(r"[A-Z][A-Z0-9_]*(?:\|[A-Z0-9_]+)*$")


def words(line: str) -> list[str] | None:
    """The words behind `toolkit` of a line that begins a command, None of another; to the end of the command."""
    line = re.sub(r"^[$#] ", "", line.strip())
    start = next((begin for begin in _BEGINS if line.startswith(begin)), None)
    if start is None or line.endswith("\\") or "<<" in line:
        return None
    try:
        lexer = shlex.shlex(line[len(start) :], posix=True, punctuation_chars=";|&<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        found = list(lexer)
    except ValueError:
        return None
    ends = [n for n, word in enumerate(found) if re.fullmatch(r"[;|&<>]+", word)]
    return found[: ends[0]] if ends else found


def wrong(found: list[str]) -> str:
    """What is wrong with the words of a command, "" where nothing is."""
    context, command, place = click.Context(cli, info_name="toolkit"), cli, 0
    while isinstance(command, click.Group) and place < len(found) and not found[place].startswith("-"):
        name = found[place]
        below = command.get_command(context, name)
        if below is None:
            return "" if command.invoke_without_command or _VALUE.match(name) or "|" in name else f"no command {name}"
        context, command, place = click.Context(below, info_name=name, parent=context), below, place + 1
    options = {name: p for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts)}
    rest = found[place:]
    for number, word in enumerate(rest):
        if word == "--":
            return ""
        name = word.partition("=")[0]
        if not re.match(r"--?[a-z]", name) or name.rstrip("…") in ("", "-"):
            if not command.allow_interspersed_args:
                return ""
            continue
        if name not in options:
            return f"no option {name} of {context.command_path}"
        option = options[name]
        value = word.partition("=")[2] or (rest[number + 1] if number + 1 < len(rest) else "")
        if isinstance(option.type, click.Choice) and option.nargs == 1 and not getattr(option, "is_flag", False):
            choices = {str(choice) for choice in option.type.choices}
            if value not in choices and not _VALUE.match(value):
                return f"{name} {value}: one of {', '.join(sorted(choices))}"
    return ""


def lines() -> Iterator[tuple[str, str]]:
    """Page:line, and each line of code of a page that users read; code between backticks of its prose too."""
    asked = ["git", "ls-files", "*.md"]
    for name in subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        path = ROOT / name
        if name.startswith(RECORDS) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{name}:{number}", line
            for code in re.findall(r"`([^`]+)`", line):
                yield f"{name}:{number}", code


def test_every_command_of_the_documentation_exists_with_its_options() -> None:
    found = [(place, asked) for place, line in lines() if (asked := words(line)) is not None]
    assert len(found) > 200
    faults = [f"{place}: toolkit {shlex.join(asked)}: {fault}" for place, asked in found if (fault := wrong(asked))]
    assert faults == []


def test_launchers_of_several_processes_are_shown_on_the_servers_alone() -> None:
    """Here torchrun without a number of processes starts one, which gets all of the lease's GPUs."""
    run = cli.get_command(click.Context(cli), "run")
    assert run is not None
    helps = [("toolkit run --help", line) for line in (run.help or "").splitlines()]
    found = [(place, asked) for place, line in [*lines(), *helps] if (asked := words(line)) and "torchrun" in asked]
    assert {"toolkit run --help"} < {place for place, _ in found}
    alone = [place for place, asked in found if "--nproc-per-node" not in asked and "server" not in asked]
    assert alone == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("    toolkit validate --fabric tcp10   # comment --nonsense", ""),
        ("$ toolkit lab up --fabric NAME; toolkit nothing", ""),
        ("toolkit reference list", "no command reference"),
        ("toolkit lab upp", "no command upp"),
        ("toolkit validate --plan-only", "no option --plan-only of toolkit validate"),
        ("toolkit run -- python3 train.py --nonsense", ""),
        ("toolkit lab fault set gpu2 slow-link", ""),
        ("toolkit run --where nothing x", "--where nothing: one of auto, client, server"),
        ("toolkit run --where WHERE x", ""),
        ("other --fabric", None),
    ],
)
def test_what_the_test_above_finds(line: str, fault: str | None) -> None:
    asked = words(line)
    assert (asked is None) == (fault is None)
    assert asked is None or (wrong(asked).startswith(fault) if fault else wrong(asked) == "")
