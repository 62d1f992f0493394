"""From a recorded run of real machines through waivers and a profile to a signed ACCEPTED and a verified bundle.

The run is the one of tests/data/walk/play.py: the tools' recorded outputs through the toolkit's own command line, facts
that say real machines. Its first node has an older Docker than was declared.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.beside_progress import beside_progress
from tests.support.warm import command
from validation.plan.suites import SUITES
from validation.rules.profile import load_profile
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/data/walk"
TODAY = datetime.datetime.now().astimezone().date()
NEEDS_SSH = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed here")
MEASURE = ("validate", "--fabric", str(RUNS / "tcp1.yml"))


def toolkit(desk: Path, *arguments: str, program: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in the folder `desk`; without the PDF, which takes longer than all the rest."""
    environment = {**os.environ, "PYTHONPATH": str(desk / "no-pdf"), "COLUMNS": "200"}
    return command(desk, arguments, environment, program)


def play(desk: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same, with nodes that answer with recordings."""
    return toolkit(desk, *arguments, program=RUNS / "play.py")


def new_desk(folder: Path) -> Path:
    """A folder to work in, with the inventory."""
    (folder / "no-pdf").mkdir(parents=True)
    (folder / "no-pdf" / "weasyprint.py").write_text("raise ImportError\n")
    shutil.copytree(RUNS / "three-nodes", folder / "site")
    return folder


def waive(path: Path, **changes: str) -> Path:
    """A file with a waiver of the Docker release."""
    waiver = {
        "criterion": "pf.stack",
        "subject": "client1",
        "who": "C. Customer, Example Bank",
        "when": TODAY.isoformat(),
        "why": "updated at the next maintenance",
        "expires": (TODAY + datetime.timedelta(days=60)).isoformat(),
    }
    path.write_text(json.dumps({"waivers": [{**waiver, **changes}]}))
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A desk with the run as it was measured, REJECTED, and the run's folder; to be copied."""
    desk = new_desk(tmp_path_factory.mktemp("walk") / "desk")
    done = play(desk, *MEASURE, "-i", "site", "--suite", "preflight", "--suite", "transport")
    (run,) = (desk / "runs").iterdir()
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("\nREJECTED   1 failed, ")
    assert "\n  FAIL pf.stack  OS" in done.stdout
    assert "\n       at fault: node client1\n" in done.stdout
    assert "everything required is owed: 33 criteria" in done.stderr
    assert "this run cannot end ACCEPTED without a waiver for each of these: " in done.stderr
    assert "suite not selected: " in done.stderr
    return desk, run


@pytest.fixture
def desk(measured: tuple[Path, Path], tmp_path: Path) -> tuple[Path, str]:
    shutil.copytree(measured[0], tmp_path / "desk")
    return tmp_path / "desk", f"runs/{measured[1].name}"


@NEEDS_SSH
def test_from_rejected_through_incomplete_to_a_signed_accepted_and_a_verified_bundle(desk: tuple[Path, str]) -> None:
    folder, run = desk
    waive(folder / "waivers.yml")
    done = toolkit(folder, "validate", "--rejudge", run, "--waivers", "waivers.yml")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("\nINCOMPLETE   ")
    assert "waived: pf.stack for client1, by C. Customer, Example Bank on " in done.stdout

    done = toolkit(folder, "validate", "--rejudge", run, "--profile", "network", "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["sign_off"], verdict["profile"]["name"]) == ("ACCEPTED", "network")
    assert [w["who"] for w in verdict["waivers"]] == ["C. Customer, Example Bank"]
    assert {c["id"] for c in verdict["criteria"] if c["verdict"] == "waived"} == {"pf.stack"}

    each = [c["verdict"] for c in verdict["criteria"]]
    by_profile = load_profile("network", load_criteria(), SUITES).owed
    owed = [c["verdict"] for c in verdict["criteria"] if c["id"] in by_profile and c["verdict"] in ("pass", "waived")]
    figures = f"{each.count('pass')} passed, {each.count('waived')} waived; "
    figures += f"of the {len(owed)} owed {owed.count('pass')} pass"
    assert f"# ACCEPTED, exit 0: {figures}\n" in (ROOT / "docs/how-to/acceptance.md").read_text()

    report = json.loads((folder / run / "report.json").read_text())
    assert report["profile"]["name"] == "network"
    assert report["waivers"][0]["expires"] == (TODAY + datetime.timedelta(days=60)).isoformat()
    page = (folder / run / "report.html").read_text().partition("</header>")[0]
    for words in (
        "network: Fabric and hosts",
        f"8 of {len(load_criteria())} criteria owed",
        "C. Customer, Example Bank",
        "next maintenance",
    ):
        assert words in page, words
    assert '<property name="profile" value="network"' in (folder / run / "junit.xml").read_text()

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    assert toolkit(folder, "sign", run, "--key", "key", "--as", "C. Customer, Example Bank").returncode == 0
    (statement,) = (folder / run / "signatures").glob("*.txt")
    assert statement.read_text().startswith("# ACCEPTED. I sign this run as an acceptance")
    assert "\n# profile:   network: Fabric and hosts" in statement.read_text()
    listed = (folder / run / "MANIFEST.sha256").read_text()
    assert "  profile.yml\n" in listed
    assert "  waivers.yml\n" in listed

    assert toolkit(folder, "bundle", run).returncode == 0
    (folder / "signers").write_text(f"c@example.com {(folder / 'key.pub').read_text()}")
    done = toolkit(folder, "verify", f"{run}.zip", "--allowed-signers", "signers")
    assert (done.returncode, beside_progress(done.stderr)) == (3, ""), (
        done.stdout
    )  # a fabric of the site's own: nobody agreed on it yet
    assert "not checked" not in done.stdout
    assert "rules: OTHER than those of a release: fabric profile tcp1 (of the site's own) (sha256 " in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("INTACT, BY OTHER RULES: ")
    rules = last.rpartition(" ")[2]
    for page in ("README.txt", "report.html", statement.relative_to(folder / run)):
        assert rules in (folder / run / page).read_text(), page
    done = toolkit(folder, "verify", f"{run}.zip", "--allowed-signers", "signers", "--rules", "0" * 64)
    assert done.returncode == 1
    assert f"the rules of the run have sha256 {rules}, not {'0' * 64}, as was agreed on" in done.stdout
    done = toolkit(folder, "verify", f"{run}.zip", "--allowed-signers", "signers", "--rules", rules)
    assert (done.returncode, beside_progress(done.stderr)) == (0, "")
    assert "acceptance profile: network: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("VERIFIED: ")

    # what was agreed on cannot be taken away or changed afterwards
    waive(folder / run / "waivers.yml", why="another reason")
    done = toolkit(folder, "verify", run)
    assert done.returncode == 1
    assert "waivers.yml: changed" in done.stdout


def test_inventory_and_the_waivers_beside_it_choose_and_the_plan_says_what_is_owed(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "desk")
    (desk / "site/group_vars").mkdir()
    (desk / "site/group_vars/all.yml").write_text("acceptance_profile: network\n")
    waive(desk / "site/waivers.yml")
    done = play(desk, *MEASURE, "-i", "site", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plans"][0]["suites"] == ["preflight", "transport"]
    assert done.stderr == "acceptance profile network, chosen by the inventory: 8 criteria are owed\n"
    done = play(desk, *MEASURE, "-i", "site", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sign_off"] == "ACCEPTED"
    (run,) = (desk / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["profile"] == "network"
    assert json.loads((run / "inventory.json").read_text())["acceptance_profile"] == "network"

    done = play(desk, *MEASURE, "-i", "site", "--profile", "elastic", "--dry-run")
    assert "acceptance profile elastic, chosen by --profile: 32 criteria are owed" in done.stderr
    assert "no measurement in this release" not in done.stderr, "each criterion has one"
    (desk / "site/group_vars/all.yml").write_text("# ours\nacceptance_profile: netwrk\n")
    done = play(desk, *MEASURE, "-i", "site", "--dry-run")
    assert done.returncode == 2
    assert "all.yml:2: acceptance_profile: unknown acceptance profile 'netwrk'; did you mean network?" in done.stderr
    # a file of the site's own, as seen from the inventory
    (desk / "site/ours.yml").write_text("name: ours\ntitle: ours\nextends: network-quick\n")
    (desk / "site/group_vars/all.yml").write_text("acceptance_profile: ours.yml\n")
    done = play(desk, *MEASURE, "-i", "site", "--dry-run")
    assert "acceptance profile ours, chosen by the inventory: 6 criteria are owed" in done.stderr


@pytest.mark.parametrize(
    ("file", "text", "arguments", "words"),
    [
        ("w.yml", "waivers: [{criterion: pf.stak, who: A, when: 2026-01-01, why: b, expires: 2026-02-01}]",
         ("--waivers", "w.yml"), "w.yml:1: waivers.0.criterion: unknown criterion 'pf.stak'; did you mean pf.stack?"),
        ("w.yml", "waivers:\n- {criterion: pf.stack, who: A, when: 2026-02-30, why: b, expires: 2026-03-01}",
         ("--waivers", "w.yml"), "w.yml:2: waivers.0.when: "),
        ("w.yml", "waivers:\n- {criterion: pf.stack, who: A, when: 2026-01-01, why: b, expires: 9999-12-31}",
         ("--waivers", "w.yml"), "w.yml:2: waivers.0.expires: 9999-12-31 is "),
        ("w.yml", "waivers: [", ("--waivers", "w.yml"), "w.yml:1: not valid YAML"),
        ("p.yml", "name: ours\ntitle: t\ndelivery: network\ntest: full\nsuites: [preflight]\nowed: []",
         ("--profile", "p.yml"), "p.yml:6: owed: a profile that owes nothing"),
        ("none", "", ("--profile", "netwrk"), "unknown acceptance profile 'netwrk'; did you mean network"),
        ("none", "", ("--profile", "no.yml"), "no.yml: no such file"),
        ("none", "", ("--waivers", "no.yml"), "no.yml: no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_agreed_on_is_one_line_before_anything_is_judged(
    desk: tuple[Path, str], file: str, text: str, arguments: tuple[str, ...], words: str
) -> None:
    folder, run = desk
    (folder / file).write_text(text)
    before = sorted((p, p.read_bytes()) for p in (folder / run).rglob("*") if p.is_file() and p.name != ".lock")
    done = toolkit(folder, "validate", "--rejudge", run, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert sorted((p, p.read_bytes()) for p in (folder / run).rglob("*") if p.is_file() and p.name != ".lock") == before


def test_before_anything_is_measured_too(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "desk")
    for arguments, words in (
        (("--profile", "netwrk"), "unknown acceptance profile 'netwrk'"),
        (("--waivers", "no.yml"), "no.yml: no such file"),
    ):
        done = play(desk, *MEASURE, "-i", "site", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert not (desk / "runs").exists()
    hosts = (desk / "site/hosts.yml").read_text()
    (desk / "site/hosts.yml").write_text(
        hosts.replace("ansible_host: 192.0.2.22", "ansible_host: 192.0.2.22\n          acceptance_profile: network")
    )
    done = play(desk, *MEASURE, "-i", "site", "--dry-run")
    assert done.returncode == 2
    assert "acceptance_profile: differs between hosts" in done.stderr
    assert "hosts.yml:" in done.stderr


def test_a_run_whose_profile_is_gone_or_another_is_not_judged(desk: tuple[Path, str]) -> None:
    folder, run = desk
    assert toolkit(folder, "validate", "--rejudge", run, "--profile", "network-quick").returncode == 1
    text = (folder / run / "profile.yml").read_text()
    (folder / run / "profile.yml").unlink()
    done = toolkit(folder, "validate", "--rejudge", run)
    assert done.returncode == 2
    assert "profile.yml: is missing, although run.json names profile 'network-quick'" in done.stderr
    (folder / run / "profile.yml").write_text(text.replace("network-quick", "network"))
    done = toolkit(folder, "report", run, "--format", "json")
    assert done.returncode == 2
    assert "profile.yml: was changed since the run began" in done.stderr


def test_a_run_that_goes_on_keeps_what_was_agreed_on(desk: tuple[Path, str]) -> None:
    folder, run = desk
    done = toolkit(folder, "validate", "--resume", run, "--profile", "network")
    assert done.returncode == 2
    assert "--profile and --waivers are for a new run" in done.stderr
