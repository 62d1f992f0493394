"""`toolkit validate --fabric A,B`: one run after the other, the worst exit code, what an interruption keeps.

The nodes answer with the recordings of tests/data/walk/play.py, over a link of 1 Gbit/s: fabric tcp1 is what they are,
tcp10 is ten times as much.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import answers
from tests.support.warm import COMMAND_PATH, command
from toolkit.campaigns import fabrics_asked, worst
from toolkit.errors import UsageFault
from validation.campaign import Campaign, campaign_of

pytestmark = pytest.mark.computes

WALK = Path(__file__).parents[1] / "data/walk"
TCP1 = str(WALK / "tcp1.yml")
MEASURED = ("-i", "site", "--suite", "preflight", "--suite", "transport")
STOPPING = '''
"""play.py whose nodes, once the second run has begun, {what}."""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {walk!r})
import play
from toolkit import acceptance

def second():
    return len(list(Path("runs").glob("*-tcp1*"))) + {early} > 1

class Stopping(play.Player):
    async def connect(self, nodes):
        return {{"gpu2": "does not answer"}} if {dead} and second() else {{}}

    async def start(self, node, probe):
        if {stop} and second():
            os.kill(os.getpid(), signal.SIGINT)
        return await super().start(node, probe)

acceptance.make_launcher = lambda site: Stopping()
sys.argv[0] = "toolkit"
play.main()
'''


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the inventory, where Docker of client1 is waived: over tcp1 all that was measured passes."""
    shutil.copytree(WALK / "three-nodes", tmp_path / "site")
    today = datetime.datetime.now().astimezone().date()
    waiver = {"criterion": "pf.stack", "subject": "client1", "who": "C. Customer", "why": "later"}
    dates = {"when": today.isoformat(), "expires": (today + datetime.timedelta(days=60)).isoformat()}
    (tmp_path / "site/waivers.yml").write_text(json.dumps({"waivers": [waiver | dates]}))
    return tmp_path


def play(desk: Path, *arguments: str, program: Path = WALK / "play.py") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": COMMAND_PATH, "COLUMNS": "200"}
    return command(desk, arguments, environment, program)


def stopping(desk: Path, stop: bool = False, dead: bool = False, early: int = 0) -> Path:
    path = desk / "stopping.py"
    what = "are interrupted" if stop else "are gone"
    path.write_text(STOPPING.format(what=what, walk=str(WALK), stop=stop, dead=dead, early=early))
    return path


def runs(desk: Path) -> list[Path]:
    """In the order in which they began."""
    return sorted((p.parent for p in desk.glob("runs/*/run.json")), key=lambda p: p.stat().st_ctime)


def test_each_fabric_has_its_run_and_verdict_and_the_worst_exit_code_is_the_end(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"tcp10,{TCP1}", *MEASURED, "--profile", "network", "--format", "html")
    assert done.returncode == 1, done.stderr
    slow, fast = sorted(desk.glob("runs/*-tcp1")), sorted(desk.glob("runs/*-tcp10"))
    assert (len(slow), len(fast)) == (1, 1)
    verdicts = {run: json.loads((run / "verdict.json").read_text()) for run in (*slow, *fast)}
    assert [v["sign_off"] for v in verdicts.values()] == ["ACCEPTED", "REJECTED"]
    assert all((run / "report.html").is_file() for run in verdicts)
    assert f"tcp1: ACCEPTED: {verdicts[slow[0]]['headline']} (runs/{slow[0].name})" in done.stdout
    (page,) = desk.glob("runs/*-campaign/*")
    assert page.name == "campaign.html"
    assert done.stdout.endswith(f"campaign: {page.relative_to(desk)}\n")
    assert "REHEARSAL" not in page.read_text()
    assert "tcp10: acceptance profile network" in done.stderr
    assert "fabric tcp1, 2 of 2" in done.stderr
    labels = [r.label for r in campaign_of([*slow, *fast]).runs]
    assert labels == ["tcp1", "tcp10"]


def test_json_is_one_document_with_all_verdicts_and_the_page(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"{TCP1},tcp10", *MEASURED, "--json", "--format", "json")
    told = answers.check(done.stdout, "validations")
    assert done.returncode == told["exit_code"] == 1
    assert [(r["fabric"], r["sign_off"]) for r in told["runs"]] == [("tcp1", "INCOMPLETE"), ("tcp10", "REJECTED")]
    document = json.loads((desk / told["campaign"]["json"]).read_text())
    assert [r.fabric for r in Campaign.model_validate(document).runs] == ["tcp1", "tcp10"]


def test_without_a_format_there_is_no_page(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"{TCP1},tcp10", "-i", "site", "--suite", "preflight", "--format", "none")
    assert done.returncode == 3
    assert len(runs(desk)) == 2
    assert list(desk.glob("runs/*-campaign")) == []


def test_what_one_fabric_is_refused_for_stops_all_before_anything_is_measured(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"{TCP1},roce40", *MEASURED)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fabric roce40 runs over RDMA" in done.stderr
    assert not (desk / "runs").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (f"{TCP1},tcp11", "unknown fabric 'tcp11'"),
        (f"{TCP1},,tcp10", "a name is missing"),
        ("tcp10,tcp10", "tcp10 is there twice"),
        (f"{TCP1},{WALK}/../walk/tcp1.yml", "two of the profiles in --fabric are called tcp1"),
    ],
)
def test_bad_lists_are_refused_before_anything_is_measured(desk: Path, given: str, words: str) -> None:
    done = play(desk, "validate", "--fabric", given, *MEASURED)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (desk / "runs").exists()


def test_a_dry_run_has_a_plan_for_each(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"{TCP1},tcp10", *MEASURED, "--dry-run", "--json")
    assert done.returncode == 0
    assert [plan["fabric"] for plan in json.loads(done.stdout)["plans"]] == ["tcp1", "tcp10"]
    shown = play(desk, "validate", "--fabric", f"{TCP1},tcp10", *MEASURED, "--dry-run").stdout
    assert (shown.count("NOT a verdict"), shown.count("fabric tcp10\n")) == (2, 1)
    assert not (desk / "runs").exists()


def test_ctrl_c_keeps_what_is_finished_and_says_what_was_not_run(desk: Path) -> None:
    done = play(desk, "validate", "--fabric", f"{TCP1},tcp10,tcp25", *MEASURED, program=stopping(desk, stop=True))
    assert done.returncode == 130, done.stderr
    finished, cut = runs(desk)
    assert finished.name.endswith("-tcp1")
    assert f"continue with: toolkit validate --resume runs/{cut.name}\n" in done.stderr
    assert f"finished and kept: tcp1, INCOMPLETE: runs/{finished.name}\nnot run: tcp25\n" in done.stderr
    assert "toolkit report --campaign" in done.stderr
    assert (finished / "verdict.json").is_file()
    assert not (cut / "verdict.json").exists()
    assert list(desk.glob("runs/*-campaign")) == []

    play(desk, "validate", "--resume", str(cut), "--format", "none")
    made = play(desk, "report", "--campaign", finished.name, cut.name, "--format", "html")
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"runs/{cut.name}-campaign/campaign.html\n"


def test_nodes_that_are_gone_when_the_second_begins_cost_only_what_is_left(desk: Path) -> None:
    gone = stopping(desk, dead=True, early=1)
    done = play(desk, "validate", "--fabric", f"{TCP1},tcp10,tcp25", *MEASURED, program=gone)
    assert done.returncode == 2
    (finished,) = runs(desk)
    assert "gpu2: does not answer" in done.stderr
    assert f"finished and kept: tcp1, INCOMPLETE: runs/{finished.name}\nnot run: tcp25\n" in done.stderr


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([0, 3], 3), ([3, 0], 3), ([1, 3], 1), ([3, 1, 0], 1), ([0, 1], 1)]
)
def test_the_worst_exit_code_is_the_campaigns(codes, code):
    assert worst(codes) == code


def test_fabrics_are_listed_by_comma():
    assert fabrics_asked(None) == (None,)
    assert fabrics_asked("tcp10") == ("tcp10",)
    assert fabrics_asked("tcp10, roce10,roce40") == ("tcp10", "roce10", "roce40")
    for given in ("tcp10,,roce40", "tcp10,", ","):
        with pytest.raises(UsageFault, match="a name is missing"):
            fabrics_asked(given)
    with pytest.raises(UsageFault, match="a is there twice"):
        fabrics_asked("a,b,a")
