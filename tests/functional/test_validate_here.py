"""`toolkit validate --here`: this machine by itself, with five libraries, as any user, interrupted and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import command_line
from tests.support.run_case import processes_of
from validation.model import Plan, RunInfo, Topology, VerdictDoc
from validation.model.load import load_json

ROOT = Path(__file__).parents[2]
#: What `--here` may import beside the standard library and this project: five libraries, and what these need.
NEEDED = {"click", "pydantic", "yaml", "rich", "jinja2"}
OF_THEM = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "markupsafe", "pygments"}
OF_THEM |= {"markdown_it", "mdurl", "_yaml", "exceptiongroup"}
FIVE = f"""
import importlib.abc, importlib.machinery, runpy, sys
KNOWN = {sorted(NEEDED | OF_THEM)!r}
class Five(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if path is None and top not in KNOWN:
            found = importlib.machinery.PathFinder.find_spec(name)
            if found is not None and "-packages" in str(found.origin):
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Five())
sys.argv[0] = "toolkit"
runpy.run_module("toolkit", run_name="__main__")
"""


def start(cwd: Path, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    """`toolkit validate --here` in a Python that has the five libraries and nothing else of what is installed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    command = [sys.executable, "-c", FIVE, "validate", "--here", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True
    )


def here(cwd: Path, *arguments: str, **changes: str) -> tuple[int, str, str]:
    process = start(cwd, *arguments, **changes)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def only_run(cwd: Path) -> Path:
    (run,) = (cwd / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, str]:
    """A quick run of this machine, with every format."""
    folder = tmp_path_factory.mktemp("here")
    return folder, *here(folder, "--quick")


def test_it_runs_with_five_libraries_and_says_what_it_leaves_out(done: tuple[Path, int, str, str]) -> None:
    folder, code, out, err = done
    run = only_run(folder)
    verdict = load_json(run / "verdict.json", VerdictDoc)
    assert code == verdict.exit_code, err
    assert verdict.measured == verdict.planned == len(load_json(run / "plan.json", Plan).measurements)
    assert {path.name for path in run.iterdir()} >= {"report.html", "report.json", "junit.xml"}
    assert not (run / "metrics.prom").exists()
    assert "prom left out: the library prometheus_client is not installed" in err
    assert "PDF left out: the library WeasyPrint is not installed" in err
    assert "no inventory declares this machine: nothing is owed, and nothing is accepted" in out


def test_it_is_never_an_acceptance_and_owes_nothing(done: tuple[Path, int, str, str]) -> None:
    run = only_run(done[0])
    verdict, topology = load_json(run / "verdict.json", VerdictDoc), load_json(run / "topology.json", Topology)
    assert verdict.sign_off in ("INSPECTION", "REHEARSAL")
    assert verdict.owed == ()
    assert topology.here is not None
    assert [node.name for node in topology.nodes] == [topology.site]
    assert load_json(run / "run.json", RunInfo).inventory == ""
    assert "no inventory declares this machine" in (run / "report.html").read_text()
    found = {c.id: c for c in verdict.criteria}
    assert found["co.membw"].judgements[0].value, found["co.membw"].reason
    assert found["co.exact"].verdict == "pass"


def test_quick_asks_for_less(done: tuple[Path, int, str, str], tmp_path: Path) -> None:
    code, out, _ = here(tmp_path, "--dry-run", "--json")
    assert code == 0
    whole, short = (
        Plan.model_validate_json(json.dumps(json.loads(out)["plans"][0])),
        load_json(only_run(done[0]) / "plan.json", Plan),
    )
    asked = [p.measurement(f"memory-bandwidth.{p.measurements[0].nodes[0]}").params["repeats"] for p in (short, whole)]
    assert asked == [5, 10]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-i", "inventories/lab"), "of which nothing is declared; omit --inventory"),
        (("--fabric", "tcp10"), "omit --fabric"),
        (("--profile", "network"), "omit --profile"),
        (("--suite", "operations"), "one machine by itself cannot do suite operations"),
        (("--suite", "remoting"), "remoting on one machine: it has no GPU"),
        (("--suite", "computer"), "unknown suite 'computer'; did you mean compute?"),
    ],
)
def test_what_makes_no_sense_of_one_machine_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = here(tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_leaves_nothing_running_and_it_goes_on_afterwards(tmp_path: Path) -> None:
    mark = f"here-{os.getpid()}"
    (tmp_path / mark).mkdir()
    process = start(tmp_path / mark, "--suite", "compute", "--quick", "--format", "none")
    deadline = time.monotonic() + 60
    while not (found := probes(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found, "the probe did not start"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    count = len(load_json(only_run(tmp_path / mark) / "plan.json", Plan).measurements)
    assert f" of {count} measurements are finished and kept" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in found)
    run = only_run(tmp_path / mark)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    again = [sys.executable, "-m", "toolkit", "validate", "--resume", str(run), "--format", "none", "--json"]
    resumed = subprocess.run(again, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert json.loads(resumed.stdout)["measured"] == count, resumed.stderr


def probes(pid: int) -> list[int]:
    """Process ids of what this one started to measure."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = [int(child) for child in children.read_text().split()]
    except (OSError, ValueError):
        return []
    return [child for child in found if "validation.probes" in " ".join(command_line(child))]


def test_nobody_continues_it_on_another_machine(done: tuple[Path, int, str, str], tmp_path: Path) -> None:
    run = only_run(done[0])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = (
        "import socket, sys, runpy; socket.gethostname = lambda: 'another'; sys.argv[0] = 'toolkit'; "
        "runpy.run_module('toolkit', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, "validate", "--resume", str(run)]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert "by itself, and this is another; continue it there" in refused.stderr
    assert processes_of("memory-bandwidth", str(run)) == []
