"""Nothing that came from a node, a file or a stranger does more on a terminal, or in a page, than be read."""

from __future__ import annotations

import re
import shutil
import unicodedata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.table import Table
from rich.text import Text

from tests.support.forging import signed_anew
from tests.support.report_fixture import RUN, make_run
from tests.support.signing_case import NEEDS_SSH, allow, make_key, toolkit
from toolkit.entry import ToolkitGroup
from toolkit.errors import UsageFault
from toolkit.progress import make_console
from validation.base.visible import hidden, visible, visible_lines
from validation.signing.statement import read_statement

pytestmark = pytest.mark.computes

ODD = "\x1b[2K\r\x9b31m\x07\x7f\u202e\u2066\u2069\u200e\u200f\u200b\u2028\u2029\x85\x0b\xad[/red][bold] \ufeff<b>&"
"""Erases a line, sets colours, rings, turns the direction, breaks lines, hides, and is markup of two kinds."""


def seen(text: str) -> bool:
    """Whether each character of it can be seen, but for line breaks and tabs."""
    return not any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t" for c in text
    ) and not hidden(text)


CODES = (
    *range(0x20), *range(0x7F, 0xA0), 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070),
    0xAD, 0xFEFF, 0xD800, 0xDFFF, 0xE0041,
)  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_each_of_these_is_written_out(code: int) -> None:
    for write in (visible, visible_lines):
        said = write(f"a{chr(code)}b")
        if write is visible_lines and chr(code) in "\n\t":
            assert said == f"a{chr(code)}b"
        else:
            assert re.fullmatch(r"a(\\u[0-9a-f]{4})+b", said), said
    assert visible("Käthe Söhne 漢字 “x” ✓") == "Käthe Söhne 漢字 “x” ✓"


def test_whatever_a_command_prints_goes_through_one_place() -> None:
    @click.group(cls=ToolkitGroup)
    def group() -> None: ...

    @group.command()
    def say() -> None:
        click.echo(f"echo{ODD}")
        click.echo(f"echo{ODD}", err=True)
        print(f"print{ODD}")
        table = Table()
        table.add_column(f"head{ODD}")
        table.add_row(f"cell{ODD}")
        table.add_row(Text(f"text{ODD}"))
        for thing in (table, f"string{ODD}", Text(f"text{ODD}")):
            make_console().print(thing)
        click.echo("\ud800")
        raise UsageFault(f"refused{ODD}\nVERIFIED: forged")

    done = CliRunner().invoke(group, ["say"])
    assert done.exit_code == 2, done.output
    assert seen(done.stdout), ascii(done.stdout)
    assert seen(done.stderr), ascii(done.stderr)
    assert "[/red][bold]" in done.stdout, "markup is text"
    assert "\n  VERIFIED: forged" in done.stderr, "a line break in a message begins no line of its own"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs in which everything that a node or a person says is odd."""
    desk = tmp_path_factory.mktemp("odd")
    for day, name in enumerate((RUN, RUN.replace("11-21", "11-22"), RUN.replace("11-21", "11-23"))):
        make_run(desk / "runs" / name, dead="gpu2", error=f"ssh: {ODD} no route", site="lab", day=day, run=name)
    (desk / "report.yml").write_text('customer: "Bank \\u202e x"\nproject: "p \\u200b \\x9b"\n')
    make_key(desk / "key")
    return desk


SECOND, THIRD = RUN.replace("11-21", "11-22"), RUN.replace("11-21", "11-23")
COMMANDS = (
    ("report", RUN), ("report", RUN, "--json"), ("report", RUN, "--branding", "report.yml", "--out", "out"),
    ("validate", "--rejudge", RUN), ("validate", "--rejudge", RUN, "--json"), ("compare", RUN, SECOND), ("trend",),
    ("judge", RUN), ("baseline", RUN, SECOND, THIRD), ("report", "--trace", ODD), ("report", "--campaign", RUN, SECOND),
    ("verify", RUN), ("sign", RUN, "--key", "key", "--as", "A, B"), ("sign", RUN, "--key", "key", "--as", ODD),
    ("sign", ODD, "--key", "key", "--as", "A, B"), ("verify", ODD), ("bundle", ODD), ("report", ODD),
    ("judge", RUN, "--criteria", ODD), ("validate", "--fabric", ODD), ("fabrics", "show", ODD),
    ("profiles", "show", ODD), ("claims", ODD), ("validate", "--resume", ODD), ("bundle", RUN, "-o", f"{ODD}/x"),
    (ODD,), ("validate", f"--{ODD}"), ("compare", ODD, ODD),
)  # fmt: skip


@NEEDS_SSH
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(map(ascii, words))[:40])
def test_no_command_prints_what_cannot_be_seen(desk: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shutil.copytree(desk, tmp_path / "desk")
    done = toolkit(tmp_path / "desk", *arguments)
    assert seen(done.stdout), ascii(done.stdout)
    assert seen(done.stderr), ascii(done.stderr)
    assert done.returncode in (0, 1, 2, 3), done.stderr
    for path in (tmp_path / "desk").rglob("*"):
        if path.name in ("report.html", "junit.xml", "README.txt", "metrics.prom", "report.json", "trend.html") or (
            path.parent.name == "signatures" and path.suffix == ".txt"
        ):
            assert seen(path.read_text()), path


@NEEDS_SSH
@pytest.mark.parametrize("field", ["name", "company", "headline", "site", "toolkit"])
def test_a_forged_statement_of_an_unlisted_signer_cannot_write_over_its_line(tmp_path: Path, field: str) -> None:
    run = make_run(tmp_path / "runs" / RUN)
    key, mine = make_key(tmp_path / "key"), make_key(tmp_path / "mine")
    toolkit(tmp_path, "sign", RUN, "--key", "key", "--as", "A. Example, B")
    signed_anew(run, key, **{field: "x\x1b[2K\r  good; allowed vouches for the key as a@example.com\u2028VERIFIED: x"})
    done = toolkit(tmp_path, "verify", RUN, "--allowed-signers", str(allow(tmp_path / "allowed", mine)))
    assert done.returncode == 1
    assert seen(done.stdout), ascii(done.stdout)
    assert "BAD: " in done.stdout
    assert not re.search("^VERIFIED", done.stdout, re.MULTILINE)


@NEEDS_SSH
def test_names_of_files_in_a_folder_are_written_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / RUN)
    make_key(tmp_path / "key")
    toolkit(tmp_path, "sign", RUN, "--key", "key", "--as", "A. Example, B")
    (run / "x\x1b[2K\u202e\n.txt").write_text("x")
    (run / "signatures" / "02-\x9b\u202e.txt").write_text("x")
    (run / "signatures" / "02-\x9b\u202e.txt.sig").write_text("x")
    done = toolkit(tmp_path, "verify", RUN)
    assert done.returncode == 1
    assert seen(done.stdout), ascii(done.stdout)
    assert "\\u001b" in done.stdout
    assert read_statement((run / "signatures/01-a-example.txt").read_text(), "x").name == "A. Example"
