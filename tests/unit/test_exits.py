"""Exit codes: one enum; the docs and each command's --help are made from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.node_modules import load
from toolkit import exits
from toolkit.cli import cli
from toolkit.entry import ToolkitGroup, start
from toolkit.errors import LabError, LeaseError, UsageFault
from toolkit.exits import Exit
from validation.base.errors import ConfigError, RunError, ToolkitError

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_as_their_sources() -> None:
    tool = load("tools/make_docs.py")
    stale = [name for name in tool.PAGES if tool.page(name) != (ROOT / name).read_text(encoding="utf-8")]
    assert stale == []


@pytest.mark.parametrize("command", exits.MEANINGS)
def test_help_ends_with_the_codes(command: str) -> None:
    context, found = click.Context(cli), cli.get_command(click.Context(cli), command.split()[0])
    for name in command.split()[1:]:
        assert isinstance(found, click.Group)
        found = found.get_command(context, name)
    assert found.epilog == exits.epilogue(command)


def test_validation_ends_with_codes_of_the_enum() -> None:
    from validation.compare.model import NotComparable

    assert {0, 1, 3} < {int(code) for code in Exit}
    for kind in (ConfigError, RunError, LabError, UsageFault, NotComparable):
        assert issubclass(kind, ToolkitError)
        assert kind("x").code == Exit.USAGE


@pytest.mark.parametrize(
    ("fault", "code"), [(ConfigError("a.yml:3: x"), 2), (LeaseError("x", Exit.RETRY), 75), (RunError("x"), 2)]
)
def test_a_known_error_is_one_line_and_its_code(
    fault: ToolkitError, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.group(cls=ToolkitGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise fault

    assert CliRunner().invoke(group, ["fail"]).exit_code == code
    monkeypatch.setattr(sys, "argv", ["toolkit", "fail"])
    with pytest.raises(SystemExit) as end:
        start(group)
    assert end.value.code == code
    assert capsys.readouterr().err == f"error: {fault}\n"


UNFORESEEN: list[type[BaseException]] = [
    TypeError,
    KeyError,
    RecursionError,
    OSError,
    MemoryError,
    AssertionError,
]


@pytest.mark.parametrize("kind", UNFORESEEN)
def test_an_error_that_nobody_foresaw_is_one_line_with_a_code_of_its_own(
    kind: type[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @click.group(cls=ToolkitGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise kind("two\nlines " + "x" * 1000)

    monkeypatch.setattr(sys, "argv", ["toolkit", "fail"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        start(group)
    assert end.value.code == Exit.INTERNAL
    told, (kept,) = capsys.readouterr(), tmp_path.iterdir()
    assert told.out == ""
    assert told.err.startswith(f"error: unexpected {kind.__name__}: ")
    assert told.err.count("\n") == 1
    assert told.err.endswith(f"{kept}\n")
    assert len(told.err) < 500
    assert "Traceback" in kept.read_text()
    assert "in fail\n" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_where_no_file_can_be_written_the_traceback_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @click.command()
    def fail() -> None:
        raise TypeError("x")

    monkeypatch.setattr(sys, "argv", ["toolkit"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(SystemExit) as end:
        start(fail)
    assert end.value.code == Exit.INTERNAL
    assert "in fail\n" in capsys.readouterr().err


def test_the_code_of_an_unforeseen_error_means_nothing_else() -> None:
    assert {Exit.INTERNAL} == set(exits.ANY)
    assert not any(Exit.INTERNAL in meanings for meanings in exits.MEANINGS.values())
    assert all(" 70 " in exits.epilogue(command) for command in exits.MEANINGS)


def test_interrupted_and_usage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @click.group(cls=ToolkitGroup)
    def group() -> None: ...

    @group.command()
    def stop() -> None:
        raise KeyboardInterrupt

    for argument, code in (("stop", Exit.INTERRUPTED), ("--nothing", Exit.USAGE)):
        monkeypatch.setattr(sys, "argv", ["toolkit", argument])
        with pytest.raises(SystemExit) as end:
            start(group)
        assert end.value.code == code


def test_the_enum_is_of_the_standard_library_alone() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import toolkit.exits, toolkit.errors"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False).returncode == 0
