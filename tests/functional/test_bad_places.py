"""Values of options that name a file or folder that cannot be what is wanted: one error, of what, where, what next."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.report_fixture import make_run
from toolkit.cli import cli

pytestmark = pytest.mark.computes

RUNS = ("2026-11-21T10-15-00Z-tcp10", "2026-11-22T10-15-00Z-tcp10")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, a folder, an empty file and one that is no text."""
    desk = tmp_path_factory.mktemp("places")
    for day, run in enumerate(RUNS, 1):
        make_run(desk / "runs" / run, virtual=False, waive=True, day=day, run=run)
    (desk / "folder").mkdir()
    (desk / "empty").touch()
    (desk / "binary").write_bytes(b"\x00\xff\xfe")
    return desk


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "compare A B --out none/x.html",
            "none/x.html: cannot be written: No such file or directory; make room, or name",
        ),
        ("compare A B --out folder", "'folder' is a directory"),
        ("compare A empty", "empty"),
        ("judge binary", "binary"),
        ("judge A --criteria folder", "no criteria files"),
        ("judge A --criteria binary", "not UTF-8 text"),
        ("judge A --out empty", "'empty' is a file"),
        ("report folder", "folder"),
        ("report A --format html --out empty/x", "empty/x: cannot be made"),
        ("report A --format html,nope", "nope"),
        ("report A --branding folder", "'folder' is a directory"),
        ("sign A --key folder --as X,Y", "folder: is a directory"),
        ("bundle A -o none/x.zip", "give another place"),
        ("validate --rejudge A --waivers binary", "not UTF-8 text"),
        ("validate --rejudge folder", "folder"),
        ("validate --resume empty", "empty"),
        ("profiles show binary", "binary"),
        ("fabrics show folder", "folder"),
        ("runs --runs-dir empty", "'empty' is a file"),
        ("gpus --days x", "--days"),
    ],
)
def test_one_error_says_what_and_where(desk: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(desk)
    known = {"A": RUNS[0], "B": RUNS[1]}
    done = CliRunner().invoke(cli, [known.get(word, word) for word in words.split()], prog_name="toolkit")
    assert done.exit_code == 2, done.output
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert said in errors[0]
    assert "Traceback" not in done.output
