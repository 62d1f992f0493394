"""Units that were accepted by themselves, and their sum as one signed page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support import answers
from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key, reported_run, sign
from toolkit.cli import cli
from validation.base.errors import ConfigError
from validation.report.documents import read_run
from validation.report.formats import write_formats
from validation.signing import SIGNATURES, ssh, sum_paper
from validation.signing.certificate import certificate_html
from validation.signing.statement import read_statement

pytestmark = [NEEDS_SSH, pytest.mark.computes]
UNITS = {"rack1": ("gpu1", "gpu2"), "rack2": ("gpu3", "gpu4")}


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, ["handover", *map(str, words)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two accepted units of a site; not to be changed."""
    desk = tmp_path_factory.mktemp("units")
    key = make_key(desk / "key")
    for number, (name, names) in enumerate(UNITS.items()):
        how = {"names": names, "virtual": False, "waive": True, "site": "customer"}
        sign(reported_run(desk / name, run=f"2026-11-21T10-1{number}-00Z-tcp10", **how), key)
    return desk


def summed(made: Path, out: Path, *units: str, more: tuple[object, ...] = ()) -> Result:
    runs = [made / unit for unit in units]
    return call("sum", *runs, "--key", made / "key", "--as", "A. Example, Integrator", "--out", out, *more)


def test_two_units_become_one_signed_page_that_says_what_is_not_covered(made: Path, tmp_path: Path) -> None:
    done = summed(made, tmp_path / "sum", "rack1", "rack2", more=("--json",))
    assert done.exit_code == 0, done.output
    document = answers.check(done.stdout, "sum")["sum"]
    assert [unit["nodes"] for unit in document["units"]] == [["gpu1", "gpu2"], ["gpu3", "gpu4"]]
    assert (document["sign_off"], document["nodes"], document["last_day"]) == ("ACCEPTED", 4, "2027-11-21")
    assert document["not_covered"][0].startswith("Between units nothing was measured: 4 pairs of nodes of two units")
    assert "no inventory was named" in " ".join(document["not_covered"])
    page = (tmp_path / "sum/sum.html").read_text()
    assert all(node in page for names in UNITS.values() for node in names)

    checked = subprocess.run(["sha256sum", "-c", "sum.txt"], cwd=tmp_path / "sum", capture_output=True, text=True)
    assert checked.stdout == "sum.json: OK\nsum.html: OK\n"
    with (tmp_path / "sum/sum.txt").open("rb") as text:
        stock = ["ssh-keygen", "-Y", "check-novalidate", "-n", "elastic-ai-sum", "-s", tmp_path / "sum/sum.txt.sig"]
        assert subprocess.run(stock, stdin=text, capture_output=True).returncode == 0

    done = call("check-sum", tmp_path / "sum", made / "rack1", made / "rack2", "--json")
    assert (done.exit_code, answers.check(done.stdout, "sum-checked")["answer"]) == (0, "intact")
    assert call("check-sum", tmp_path / "sum").exit_code == 3, "its runs were not named"


def test_a_units_papers_say_that_it_is_a_unit(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", names=("gpu1", "gpu2"), virtual=False, waive=True, site="customer")
    info = json.loads((run / "run.json").read_text())
    info |= {"unit": "rack1", "part": {"elsewhere": ["gpu3"], "within": ["rack1"], "apart": ["rack2"]}}
    (run / "run.json").write_text(json.dumps(info, indent=2))
    write_formats(run, ("html", "json"))
    page, data = (run / "report.html").read_text(), json.loads((run / "report.json").read_text())
    assert "<dt>Unit</dt><dd>rack1</dd>" in page
    assert "Only unit rack1 was measured: 1 other node of the site had no part in it." in data["limits"]
    assert data["run"]["part"]["elsewhere"] == ["gpu3"]
    sign(run, make_key(tmp_path / "key"))
    statement = read_statement(next((run / SIGNATURES).glob("*.txt")).read_text(), "statement")
    assert '<th scope="row">Unit</th><td>rack1</td>' in certificate_html(read_run(run), [statement])


def test_nothing_is_written_into_a_run_and_nothing_half_is_left(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(made / "rack1")
    for out in (made / "rack1/sum", tmp_path / "link/raw/deep/sum"):
        done = summed(made, out, "rack1", "rack2")
        assert done.exit_code == 2
        assert "which has its own files; name a folder outside with --out" in done.output
        done = call("evidence", made / "rack1", "--out", out)
        assert done.exit_code == 2
        assert "which has its own files" in done.output
    assert not (made / "rack1/sum").exists()

    def full(target: Path, content: bytes) -> None:
        if target.name == "sum.html":
            raise ConfigError(f"{target}: cannot be written: No space left on device; make room")
        target.write_bytes(content)

    monkeypatch.setattr(sum_paper, "replace", full)
    done = summed(made, tmp_path / "new/deep/sum", "rack1", "rack2")
    assert done.exit_code == 2
    assert "No space left on device" in done.output
    assert not (tmp_path / "new").exists()


def test_a_unit_that_was_changed_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "rack2", tmp_path / "rack2")
    with (tmp_path / "rack2/report.html").open("a") as page:
        page.write("<!-- better -->")
    done = call(
        "sum", made / "rack1", tmp_path / "rack2", "--key", made / "key", "--as", "A, B", "--out", tmp_path / "s"
    )
    assert done.exit_code == 2
    assert "is not as it was signed (report.html: changed" in done.output


def test_a_page_or_statement_that_was_edited_is_found(made: Path, tmp_path: Path) -> None:
    assert summed(made, tmp_path / "sum", "rack1", "rack2").exit_code == 0
    for file, old, new in (("sum.html", "gpu4", "gpu9"), ("sum.json", "gpu4", "gpu9"), ("sum.txt", "A. Example", "B")):
        shutil.copytree(tmp_path / "sum", tmp_path / file)
        path = tmp_path / file / file
        path.write_text(path.read_text().replace(old, new))
        done = call("check-sum", tmp_path / file)
        assert done.exit_code == 1, (file, done.output)
        assert "NOT INTACT" in done.output
    assert json.loads((tmp_path / "sum/sum.json").read_text())["format"] == "elastic-ai-sum/1"
    sum_ = tmp_path / "sum"
    key = ssh.read_key(made / "key")
    for number, (old, new, words) in enumerate((
        ("time:.*", "time:        banana", "its time is none"),
        ("time:.*", "time:        2126-11-21T12:00:00Z", "in the future"),
        ("time:.*", "time:        2026-11-20T12:00:00Z", "before its units were"),
        ("name:.*", "name:        A\u202eB", "characters that cannot be seen"),
    )):  # fmt: skip
        other = shutil.copytree(sum_, tmp_path / str(number))
        text = re.sub(old, new, (other / "sum.txt").read_text(), count=1).encode()
        (other / "sum.txt").write_bytes(text)
        (other / "sum.txt.sig").write_bytes(ssh.sign(key, "elastic-ai-sum", text))
        done = call("check-sum", other)
        assert (done.exit_code, words in done.output) == (1, True), done.output
    other = shutil.copytree(sum_, tmp_path / "more")
    (other / "extra.html").write_text("accepted")
    with (other / "sum.txt.sig").open("a") as file:
        file.write("ACCEPTED BY ALL\n")
    done = call("check-sum", other)
    assert "extra.html: not of this sum" in done.output
    assert "sum.txt.sig: has more in it than the signature" in done.output
    lone = shutil.copy(f"{made / 'key'}.pub", tmp_path / "lone.pub")
    done = call("sum", made / "rack1", made / "rack2", "--key", lone, "--as", "A, B", "--out", tmp_path / "none")
    assert done.exit_code == 2
    assert not (tmp_path / "none").exists(), "nothing is left of one that could not be signed"
    done = summed(made, tmp_path / "sum", "rack1", "rack2")
    assert (done.exit_code, "is there already" in done.output) == (2, True)
