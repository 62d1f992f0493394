"""A validation as one Slurm job: steps of real probes, and a job that waits, ends early or loses a node.

Slurm's commands are stand-ins (tests/support/fake_slurm.py); on the lab they are Slurm's own (tests/integration).
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.support import fake_slurm
from tests.support.engine_run import ROOT
from tests.support.local_launcher import BANDWIDTH, with_port
from tests.support.report_fixture import make_run
from tests.support.run_case import Quiet, only, plan, processes_of, topology
from tests.support.site import run_info, verdict_of
from toolkit import acceptance
from toolkit.commands.validate import validate
from toolkit.errors import UsageFault
from toolkit.slurm_job import chosen
from toolkit.verdict_text import print_verdict
from validation.base.errors import RunError
from validation.execute import run_plan
from validation.execute.slurm import SlurmLauncher, Wanted
from validation.model import Node, Plan, Result, Topology
from validation.model.load import read_results

FACTS = ("facts.gpu1", "facts.gpu2", "facts.gpu3")
iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here")


class Pool:
    """Slurm's commands on PATH, and its state to be changed."""

    def __init__(self, folder: Path) -> None:
        self.nodes = dict.fromkeys(("gpu1", "gpu2", "gpu3"), "idle")
        self.programs = fake_slurm.install(folder, self.nodes)
        self.state = folder / "state"

    @property
    def job(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "job.json").read_text()))

    @property
    def steps(self) -> list[str]:
        path = self.state / "steps"
        return path.read_text().splitlines() if path.exists() else []

    def end(self, state: str) -> None:
        new = self.state / "job.other"
        new.write_text(json.dumps({**self.job, "state": state}))
        new.replace(self.state / "job.json")

    def lose(self, node: str) -> None:
        new = self.state / "nodes.other"
        new.write_text(json.dumps({**self.nodes, node: "down"}))
        new.replace(self.state / "nodes.json")


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    found = Pool(tmp_path)
    monkeypatch.setenv("PATH", f"{found.programs}:{os.environ['PATH']}")
    return found


def run(
    folder: Path,
    whole: Plan,
    topo: Topology,
    done: Sequence[str] = (),
    wait_s: float = 60,
    heard: Callable[[str], object] = lambda _: None,
) -> tuple[list[Result], Quiet, list[str]]:
    """Results on the disk, what progress was told, and what the launcher said, which `heard` is told as it comes."""
    folder.mkdir(exist_ok=True)
    progress, said = Quiet(), []

    def say(text: str) -> None:
        said.append(text)
        heard(text)

    async def work() -> None:
        launcher = SlurmLauncher("inventories/test", Wanted(17, wait_s), say)
        try:
            troubles = await launcher.connect(topo.nodes)
            assert not troubles, troubles
            await run_plan(whole, topo, launcher, folder, progress, done)
        finally:
            await launcher.close()

    asyncio.run(work())
    return read_results(folder / "results.jsonl", whole.run)[0], progress, said


def soon(change: Callable[[], object], seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, change)
    timer.start()
    return timer


@iperf3
def test_a_run_is_one_job_whose_steps_are_the_probes(pool: Pool, tmp_path: Path) -> None:
    topo = topology(3)
    whole = with_port(only(plan(topo, "preflight", "transport", seconds=1), *FACTS[:2], BANDWIDTH), 15411)
    results, _, said = run(tmp_path / "run", whole, topo)
    found = {r.measurement: r.status for r in results}
    assert found.pop(BANDWIDTH) in ("ok", "unparseable")  # a second of iperf3 on a machine that stands still
    assert found == dict.fromkeys(FACTS[:2], "ok")
    assert (pool.job["state"], pool.job["nodes"]) == ("COMPLETED", ["gpu1", "gpu2", "gpu3"])
    assert "--partition=all" in pool.job["words"]
    assert [step.partition(" ")[0] for step in pool.steps].count("gpu1") == 3  # its probes' release, facts, iperf3
    assert said == ["Slurm job 7 holds gpu1, gpu2, gpu3 for 17 minutes at most"]
    assert processes_of("fake_slurm.py", str(pool.state)) == []


def test_each_result_is_on_the_disk_before_the_next_step_begins(pool: Pool, tmp_path: Path) -> None:
    topo = topology(3)
    seen: list[int] = []

    class Looking(Quiet):
        def started(self, m: Any) -> None:
            path = tmp_path / "run/results.jsonl"
            seen.append(len(path.read_text().splitlines()) if path.exists() else 0)

    (tmp_path / "run").mkdir()

    async def work() -> None:
        launcher = SlurmLauncher("inventories/test", Wanted(17), lambda _: None)
        try:
            assert not await launcher.connect(topo.nodes)
            await run_plan(only(plan(topo), *FACTS), topo, launcher, tmp_path / "run", Looking())
        finally:
            await launcher.close()

    asyncio.run(work())
    assert seen == [0, 1, 2]


def test_a_job_that_waits_says_for_what_and_goes_on_by_itself(pool: Pool, tmp_path: Path) -> None:
    (pool.state / "busy").touch()
    begin = (pool.state / "busy").unlink
    whole, topo = only(plan(topology(3)), FACTS[0]), topology(3)
    results, _, said = run(tmp_path / "run", whole, topo, heard=lambda text: begin() if "waits" in text else None)
    assert said[0] == "Slurm job 7 waits: other jobs have its nodes (Resources); at most 1 minute"
    assert [r.status for r in results] == ["ok"]


def test_a_job_that_waits_too_long_is_taken_back_and_nothing_was_measured(pool: Pool, tmp_path: Path) -> None:
    (pool.state / "busy").touch()
    with pytest.raises(RunError, match=r"Slurm job 7 waits: .*Resources.*no start within .*nothing was measured"):
        run(tmp_path / "run", only(plan(topology(3)), FACTS[0]), topology(3), wait_s=4)
    assert pool.job["state"] == "CANCELLED"


def test_a_job_that_slurm_refuses_is_said_in_its_words(pool: Pool, tmp_path: Path) -> None:
    (pool.state / "refused").write_text("Invalid account or account/partition combination specified")
    with pytest.raises(RunError, match=r"Slurm does not take the job: .*Invalid account"):
        run(tmp_path / "run", only(plan(topology(3)), FACTS[0]), topology(3))


ENDS = [
    ("CANCELLED", "was cancelled by somebody"),
    ("TIMEOUT", "reached its time limit of 00:17:00"),
    ("PREEMPTED", "was preempted by another job"),
]


@iperf3
@pytest.mark.parametrize(("state", "words"), ENDS)
def test_a_job_that_ends_early_keeps_what_was_measured_and_resumes_in_another(
    pool: Pool, tmp_path: Path, state: str, words: str
) -> None:
    topo = topology(3)
    whole = with_port(only(plan(topo, "preflight", "transport", seconds=20), FACTS[0], BANDWIDTH, *FACTS[1:]), 15412)
    timer: list[threading.Timer] = []

    def when_sending() -> None:
        while not any("tcp-bandwidth" in step for step in pool.steps):
            time.sleep(0.1)
        pool.end(state)

    timer.append(soon(when_sending, 2))
    results, progress, _ = run(tmp_path / "run", whole, topo)
    found = {r.measurement: r.status for r in results}
    assert found == {FACTS[0]: "ok", BANDWIDTH: "unreachable", FACTS[1]: "unreachable", FACTS[2]: "unreachable"}
    line = f"gpu1: Slurm job 7 {words}; what was measured is kept, and --resume goes on in a new job"
    assert any(said.startswith(line) for said in progress.lines), progress.lines
    again, _, _ = run(tmp_path / "run", only(whole, *FACTS), topo, done=(FACTS[0],))
    assert {r.measurement: r.status for r in again if r.measurement in FACTS} == dict.fromkeys(FACTS, "ok")


@iperf3
def test_a_node_that_dies_costs_its_own_measurements_alone(pool: Pool, tmp_path: Path) -> None:
    topo = topology(3)
    whole = with_port(only(plan(topo, "preflight", "transport", seconds=20), BANDWIDTH, *FACTS), 15413)

    def when_sending() -> None:
        while not any("tcp-bandwidth" in step for step in pool.steps):
            time.sleep(0.1)
        pool.lose("gpu2")

    soon(when_sending, 2)
    results, progress, _ = run(tmp_path / "run", whole, topo)
    found = {r.measurement: r.status for r in results}
    assert found.pop(BANDWIDTH) in ("unreachable", "failed")
    assert found == {"facts.gpu1": "ok", "facts.gpu2": "unreachable", "facts.gpu3": "ok"}
    assert any("gpu2: Slurm has given it up: down (Not responding)" in line for line in progress.lines)


def connected(nodes: Sequence[Node]) -> dict[str, str]:
    async def work() -> dict[str, str]:
        launcher = SlurmLauncher("inventories/test", Wanted(17), lambda _: None)
        try:
            return await launcher.connect(nodes)
        finally:
            await launcher.close()

    return asyncio.run(work())


def test_a_node_that_slurm_has_shut_is_named_and_no_job_is_asked_for(pool: Pool) -> None:
    pool.lose("gpu2")
    found = connected(topology(3).nodes)
    assert found == {
        "gpu2": "Slurm has it down (Not responding); scontrol update nodename=gpu2 state=resume, when it is well"
    }
    assert not (pool.state / "job.json").exists()


def test_nodes_that_slurm_does_not_know_are_none_of_its_job(pool: Pool) -> None:
    strangers = [node.model_copy(update={"name": f"other{at}"}) for at, node in enumerate(topology(2).nodes)]
    with pytest.raises(RunError, match="Slurm knows none of these nodes"):
        connected(strangers)


def test_without_slurm_here_and_without_a_head_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"salloc is not on this machine, and no host of group heads"):
        connected(topology(2).nodes)


def test_a_controller_that_is_gone_takes_its_job_along(pool: Pool) -> None:
    """salloc's command ends when its stdin does, however the controller ends."""

    async def work() -> None:
        launcher = SlurmLauncher("inventories/test", Wanted(17), lambda _: None)
        assert not await launcher.connect(topology(3).nodes)
        assert pool.job["state"] == "RUNNING"
        assert launcher._holder is not None
        launcher._holder._process.stdin.close()  # type: ignore[union-attr]
        await launcher._holder.finish()

    asyncio.run(work())
    assert pool.job["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--slurm", "-p gpu"], "--slurm and --slurm-wait go with --launcher slurm"),
        (["--launcher", "slurm", "--here"], "--here is this machine"),
        (["--launcher", "slurm", "--slurm", "'"], "No closing quotation"),
        (["--launcher", "slurm", "--slurm", "rm -rf"], "takes options of salloc"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: list[str], words: str) -> None:
    found = CliRunner().invoke(validate, given)
    assert isinstance(found.exception, UsageFault)
    assert words in str(found.exception)


def test_a_suite_that_asks_for_leases_is_none_for_a_job_that_holds_the_servers(pool: Pool) -> None:
    site = ROOT / "inventories/c4140-roce40"
    given = ["--launcher", "slurm", "-i", str(site), "--suite", "remoting"]
    found = CliRunner().invoke(validate, given)
    assert isinstance(found.exception, UsageFault)
    assert "suite remoting asks Slurm for leases" in str(found.exception)


def test_the_jobs_time_is_twice_the_plans_and_a_quarter_of_an_hour() -> None:
    job = chosen("slurm", "-p gpu -t 90", None)
    assert job is not None
    assert job.options == ("-p", "gpu", "-t", "90")
    launcher: Any = job.make("inventories/test", 600)
    assert launcher._wanted == Wanted(35, 600.0, ("-p", "gpu", "-t", "90"))
    assert chosen("ssh", "", None) is None


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["--fabric", "tcp10"], ""),
        (["--launcher", "slurm", "--slurm=-p gpu -t 90", "-i", "x"], " --launcher slurm '--slurm=-p gpu -t 90'"),
        (["--slurm-wait", "3", "--fabric", "tcp10", "--launcher=slurm"], " --slurm-wait 3 --launcher=slurm"),
    ],
)
def test_who_is_told_to_go_on_with_a_run_is_told_to_go_the_same_way(words: list[str], again: str) -> None:
    """Where nobody may log in to the servers, `--resume` over ssh would reach none of them."""
    topo = topology(3)
    whole = plan(topo)
    info = run_info(topo, whole, command=("toolkit", "validate", *words))
    assert info.resume("runs/a") == f"toolkit validate --resume runs/a{again}"
    shown = io.StringIO()
    print_verdict(Console(file=shown, width=200), info, verdict_of(topo, whole, ()), Path("runs/a"), None)
    assert f"finish: toolkit validate --resume runs/a{again}\n" in shown.getvalue()


@pytest.mark.parametrize(("slurm", "reached"), [(True, ["head", "gpu2"]), (False, ["gpu2"])])
def test_who_goes_on_by_slurm_reaches_the_head_where_its_commands_are(
    tmp_path: Path, slurm: bool, reached: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing of the head is missing: else the rest of a run cannot be measured."""
    run_dir = make_run(tmp_path / "run")
    path = run_dir / "results.jsonl"
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["measurement"] != "facts.gpu2"]
    path.write_text("".join(f"{line}\n" for line in kept))
    asked: list[str] = []

    class Nobody:
        async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
            asked.extend(node.name for node in nodes)
            return {}

        async def close(self) -> None:
            pass

    async def work(*_: object) -> None:
        pass

    monkeypatch.setattr(acceptance, "finished", lambda _: {json.loads(line)["measurement"] for line in kept})
    monkeypatch.setattr(acceptance, "make_launcher", lambda _: Nobody())
    assert acceptance.go_on(run_dir, work, (lambda site, seconds: Nobody()) if slurm else None)  # type: ignore[arg-type,return-value]
    assert asked == reached
