"""`toolkit sign`, `verify` and `bundle` from outside: exit codes, streams, what a signed run refuses."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.beside_progress import beside_progress
from tests.support.report_fixture import RUN, make_run
from tests.support.signing_case import NEEDS_SSH, allow, make_key, toolkit
from tests.support.warm import COMMAND_PATH

pytestmark = [NEEDS_SSH, pytest.mark.computes]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A desk with a signed run, its bundle and the key; not to be changed."""
    desk = tmp_path_factory.mktemp("desk")
    make_run(desk / "runs" / RUN)
    make_key(desk / "key")
    signed = toolkit(desk, "sign", "--key", "key", "--as", "A. Example, Example AG", "--json")
    assert signed.returncode == 0, signed.stderr
    document = json.loads(signed.stdout)
    assert (document["sign_off"], document["name"], document["company"]) == ("REHEARSAL", "A. Example", "Example AG")
    bundled = toolkit(desk, "bundle")
    assert bundled.returncode == 0, bundled.stderr
    assert Path(bundled.stdout.strip()) == desk / "runs" / f"{RUN}.zip"
    return desk


def test_signing_writes_the_report_first(desk):
    assert (desk / "runs" / RUN / "report.json").is_file()
    assert (desk / "runs" / RUN / "report.html").is_file()


def test_a_bundle_verifies_from_anywhere_and_says_rehearsal_first(desk, tmp_path):
    bundle = desk / "runs" / f"{RUN}.zip"
    done = toolkit(tmp_path, "verify", str(bundle))
    assert (done.returncode, beside_progress(done.stderr)) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("REHEARSAL: ")
    assert last.startswith("INTACT: ")
    assert "whose key it is was not checked" in done.stdout
    allowed = allow(tmp_path / "allowed", desk / "key")
    done = toolkit(tmp_path, "verify", str(bundle), "--allowed-signers", str(allowed), "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["good"] is True
    assert document["signatures"][0]["principal"] == "a@example.com"
    assert list(tmp_path.iterdir()) == [allowed]


def test_what_changed_is_named_with_exit_code_1(desk, tmp_path):
    run = Path(shutil.copytree(desk / "runs" / RUN, tmp_path / "run"))
    (run / "results.jsonl").open("a").write("\n")
    (run / "plan.json").unlink()
    (run / "extra").write_text("x")
    done = toolkit(tmp_path, "verify", str(run))
    assert done.returncode == 1
    assert "\n  results.jsonl: changed\n  plan.json: missing\n  extra: added\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "NOT INTACT: 3 things are not as signed"
    document = json.loads(toolkit(tmp_path, "verify", str(run), "--json").stdout)
    assert (document["changed"], document["missing"], document["added"]) == (
        ["results.jsonl"],
        ["plan.json"],
        ["extra"],
    )


def test_a_verdict_that_cannot_be_read_is_named_too(desk, tmp_path):
    run = Path(shutil.copytree(desk / "runs" / RUN, tmp_path / "run"))
    (run / "verdict.json").write_text("{")
    done = toolkit(tmp_path, "verify", str(run))
    assert done.returncode == 1
    assert "verdict.json: changed" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_run_that_nobody_signed(tmp_path):
    make_run(tmp_path / "runs" / RUN)
    done = toolkit(tmp_path, "verify")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "NOT SIGNED"


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", RUN, "--branding", "report.yml"),
        ("report", RUN, "--format", "html", "--out", f"runs/{RUN}"),
        ("validate", "--resume", RUN),
        ("validate", "--rejudge", RUN),
    ],
)
def test_nothing_writes_into_a_signed_run(desk, arguments):
    before = {p: p.stat().st_mtime_ns for p in (desk / "runs" / RUN).rglob("*") if p.name != ".lock"}
    done = toolkit(desk, *arguments)
    assert done.returncode == 2
    assert "is signed, so nothing in it may change" in done.stderr
    assert {p: p.stat().st_mtime_ns for p in (desk / "runs" / RUN).rglob("*") if p.name != ".lock"} == before


def test_the_report_of_a_signed_run_is_named_with_its_verdict(desk):
    """The order of commands after bin/rehearse, which signs: the newest run's report is where it was."""
    run = Path("runs") / RUN
    before = {p: p.stat().st_mtime_ns for p in (desk / run).rglob("*") if p.name != ".lock"}
    done = toolkit(desk, "report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(run / "report.html")
    assert {Path(line).name for line in done.stdout.splitlines()} <= {p.name for p in (desk / run).iterdir()}
    assert done.stderr.startswith("\nPASSED (rehearsal)   ")
    assert f"\nreport  {run / 'report.html'}\n" in done.stderr
    told = json.loads(toolkit(desk, "report", "--json").stdout)
    assert (told["report"], told["sign_off"]) == (str(run / "report.html"), "REHEARSAL")
    assert {p: p.stat().st_mtime_ns for p in (desk / run).rglob("*") if p.name != ".lock"} == before


def test_a_format_that_a_signed_run_lacks_is_said(desk, tmp_path):
    run = Path("runs") / RUN
    shutil.copytree(desk / run, tmp_path / run)
    (tmp_path / run / "report.pdf").unlink(missing_ok=True)
    assert toolkit(tmp_path, "report").returncode == 0, "everything that is there"
    absent = toolkit(tmp_path, "report", "--format", "pdf")
    assert (absent.returncode, absent.stdout) == (2, "")
    words = f"report.pdf: was not made before the run was signed; make it elsewhere: toolkit report {run} --out FOLDER"
    assert words in absent.stderr


def test_the_report_of_a_signed_run_can_be_written_elsewhere(desk, tmp_path):
    done = toolkit(desk, "report", RUN, "--out", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.json").read_bytes() == (desk / "runs" / RUN / "report.json").read_bytes()


def test_a_copy_without_signatures_goes_on(desk, tmp_path):
    """The way out that the refusal names."""
    shutil.copytree(desk / "runs", tmp_path / "runs")
    refused = toolkit(tmp_path, "validate", "--rejudge", f"runs/{RUN}")
    command = refused.stderr.strip().partition("with an unsigned copy: ")[2]
    assert os.system(f"cd {tmp_path} && {command}") == 0
    done = toolkit(tmp_path, "report", f"runs/{RUN}-copy", "--format", "json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sign", RUN, "--as", "A, B"), "Missing option '--key'"),
        (("sign", RUN, "--key", "key"), "Missing option '--as'"),
        (("sign", RUN, "--key", "none", "--as", "A, B"), "none: no such key"),
        (("sign", RUN, "--key", "key", "--as", "A"), 'is not of the form "NAME, COMPANY"'),
        (("sign", RUN, "--key", "key", "--as", "A\u202eB, C"), "'A\\u202eB, C' has characters that cannot be seen"),
        (("sign", RUN, "--key", "key", "--as", "A\x1b[1mB, C"), "'A\\u001b[1mB, C' has characters that cannot be seen"),
        (("sign", RUN, "--key", "key", "--as", "A\nB, C"), "'A\\u000aB, C' has characters that cannot be seen"),
        (("sign", RUN, "--key", "key", "--as", "A, B"), "is signed with this key already"),
        (("sign", "none", "--key", "key", "--as", "A, B"), "none: no such run"),
        (("verify", "none.zip"), "none.zip: no such bundle or run"),
        (("verify", RUN, "--allowed-signers", "none"), "none: no such file of allowed signers"),
        (("bundle", RUN, "-o", "no/where.zip"), "No such file or directory"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(desk, arguments, words):
    done = toolkit(desk, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_prettified_verdict_is_neither_reported_nor_signed(tmp_path):
    run = make_run(tmp_path / "runs" / RUN, slow="gpu2")
    (run / "verdict.json").write_text((run / "verdict.json").read_text().replace("below-floor", "within-bounds"))
    make_key(tmp_path / "key")
    for command in (("report",), ("sign", "--key", "key", "--as", "A, B")):
        done = toolkit(tmp_path, *command)
        assert done.returncode == 2
        assert "verdict.json: is not what judging the results gives: criteria (" in done.stderr
        assert "toolkit validate --rejudge" in done.stderr
    assert not (run / "signatures").exists()
    assert not (run / "MANIFEST.sha256").exists()


def test_a_passphrase_is_asked_for_on_the_terminal(desk, tmp_path):
    run = Path(shutil.copytree(desk / "runs" / RUN, tmp_path / "runs" / RUN))
    make_key(tmp_path / "locked", passphrase="correct horse")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        environment = {k: v for k, v in os.environ.items() if k not in ("SSH_AUTH_SOCK", "DISPLAY")}
        environment["PYTHONPATH"] = COMMAND_PATH
        words = [sys.executable, "-m", "toolkit", "sign", "--key", "locked", "--as", "A, B"]
        os.execve(sys.executable, words, environment)
    said = b""
    while b"passphrase" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, b"correct horse\n")
    try:
        while part := os.read(terminal, 1024):
            said += part
    except OSError:  # the terminal's other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert (run / "signatures" / "02-a.txt.sig").is_file()
    assert b"correct horse" not in said
