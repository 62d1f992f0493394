"""Execution of real probes on this machine's loopback: what is kept, what is lost, what is left behind."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.local_launcher import BACK, BANDWIDTH, LocalLauncher, bandwidth, execute, with_port
from tests.support.run_case import Quiet, only, plan, processes_of, topology
from tests.support.site import result
from validation.execute import Output, Remote, RunError, run_plan
from validation.execute.measure import read
from validation.execute.store import RESULTS, Store
from validation.kinds import job_for
from validation.measures.training import training_short_probe
from validation.model import Result
from validation.model.load import read_results
from validation.probes.asked import make

TOOLS = pytest.mark.skipif(
    not (shutil.which("iperf3") and shutil.which("sockperf")), reason="iperf3 and sockperf are not installed here"
)
ROOT = Path(__file__).parents[2]
LATENCY = "tcp-latency.gpu1-lo.gpu2-lo"


@TOOLS
def test_every_kind_is_measured_and_kept_with_its_raw_output(tmp_path: Path) -> None:
    topo = topology(2)
    whole = plan(topo, "preflight", "transport", seconds=2)
    ids = ("facts.gpu1", "path-mtu.gpu1-lo.gpu2-lo", BANDWIDTH, LATENCY)
    progress = execute(tmp_path, with_port(only(whole, *ids), 15301), topo)
    assert {i: (r.status, r.error) for i, r in progress.results.items()} == dict.fromkeys(ids, ("ok", None))
    results, torn = read_results(tmp_path / RESULTS, "test")
    assert (results, torn) == (list(progress.results.values()), None)
    assert progress.results[BANDWIDTH].values("tcp_bandwidth_gbps")
    assert len(progress.results[LATENCY].values("tcp_rtt_us")) >= 10
    assert progress.results["path-mtu.gpu1-lo.gpu2-lo"].values("path_mtu_bytes")[0] >= 9000
    logs = [log for r in results for log in r.provenance.raw]
    assert len(logs) == 3 + 3 + 5 + 5  # out and err of each end, the report of the measuring one
    for log in logs:
        assert hashlib.sha256((tmp_path / log.path).read_bytes()).hexdigest() == log.sha256
    assert progress.results[BANDWIDTH].provenance.tool_version
    assert processes_of("127.0.0.3", "15301") == []


@TOOLS
def test_a_measurement_that_does_not_end_costs_itself(tmp_path: Path) -> None:
    whole, topo = bandwidth(60, 15302, BANDWIDTH, BACK)
    slow, other = whole.measurements
    other = other.model_copy(update={"params": {**other.params, "seconds": 2}})
    whole = whole.model_copy(update={"measurements": (slow.model_copy(update={"timeout_s": 1.0}), other)})
    began = time.monotonic()
    progress = execute(tmp_path, whole, topo)
    assert progress.results[BANDWIDTH].status == "timeout"
    assert "1 s" in str(progress.results[BANDWIDTH].error)
    assert progress.results[BACK].status == "ok", progress.results[BACK].error
    assert time.monotonic() - began < 25
    assert processes_of("iperf3", "15302") == []


class DyingLauncher(LocalLauncher):
    """gpu2 is switched off a second after its first transport probe began, as ssh would see it (status 255)."""

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        if node != "gpu2" or node in self.refuse:
            return await super().start(node, probe)
        self.refuse[node] = "does not answer; is it up?"
        command = [sys.executable, "-I", "-m", "validation.probes", "--controlled", *probe]
        script = '"$@" <&0 & p=$!; sleep 1; kill -9 $p; exit 255'
        remote = await Remote.spawn(node, ["sh", "-c", script, "sh", *command])
        self.running.append(remote)
        return remote


@TOOLS
def test_a_node_that_dies_costs_its_own_measurements(tmp_path: Path) -> None:
    topo = topology(3)
    pairs = [f"tcp-bandwidth.gpu{a}-lo.gpu{b}-lo" for a, b in ((1, 2), (1, 3), (2, 3), (3, 2), (3, 1))]
    whole = with_port(only(plan(topo, "transport", seconds=2), *pairs), 15303)
    launcher = DyingLauncher()
    began = time.monotonic()
    progress = execute(tmp_path, whole, topo, launcher)
    found = {i: r.status for i, r in progress.results.items()}
    errors = {i: r.error for i, r in progress.results.items()}
    said = [one.said for one in launcher.running if one.node == "gpu2"]
    assert found == {i: "unreachable" if "gpu2" in i else "ok" for i in pairs}, (errors, progress.lines, said)
    assert launcher.asked.count("gpu2") == 1, "one try to reach it again, not one for each measurement"
    assert "does not answer" in str(progress.results[pairs[3]].error)
    assert any(line.startswith("gpu2: ") for line in progress.lines)
    assert time.monotonic() - began < 25, "a dead node's measurements do not wait for their deadlines"
    assert processes_of("iperf3", "15303") == []


@TOOLS
def test_a_server_that_cannot_listen_says_why(tmp_path: Path) -> None:
    whole, topo = bandwidth(2, 15304)
    command = ["iperf3", "-s", "-B", "127.0.0.3", "-p", "15304"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as busy:
        time.sleep(0.5)
        try:
            result = execute(tmp_path, whole, topo).results[BANDWIDTH]
        finally:
            busy.terminate()
    assert result.status == "failed"
    assert "in use" in str(result.error)


def test_a_torn_line_is_cut_and_measured_again(tmp_path: Path) -> None:
    topo = topology(2)
    whole = only(plan(topo), "facts.gpu1", "facts.gpu2")
    execute(tmp_path, whole, topo)
    path = tmp_path / RESULTS
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    progress = execute(tmp_path, whole, topo, done={"facts.gpu1"})
    assert list(progress.results) == ["facts.gpu2"]
    assert any("torn last line" in line for line in progress.lines)
    results, torn = read_results(path, "test")
    assert [r.measurement for r in results] == ["facts.gpu1", "facts.gpu2"]
    assert torn is None
    assert path.read_bytes().startswith(content[: content.index(b"\n")])
    assert results[1].provenance.raw[0].path == "raw/facts.gpu2/gpu2.2.out", "the first attempt's output stays"


def some_result(number: int) -> Result:
    return result(f"m{number}", run="test")


def test_every_cut_of_the_results_leaves_whole_lines(tmp_path: Path) -> None:
    lines = [some_result(n).model_dump_json().encode() + b"\n" for n in (1, 2)]
    whole = b"".join(lines)
    for end in range(len(whole) + 1):
        (tmp_path / RESULTS).write_bytes(whole[:end])
        store = Store(tmp_path)
        store.append(some_result(3))
        store.close()
        kept = [r.measurement for r in read_results(tmp_path / RESULTS, "test")[0]]
        assert kept == [*["m1", "m2"][: whole[:end].count(b"\n")], "m3"]
        assert (store.torn is None) == (end in (0, len(lines[0]), len(whole)))


def test_a_full_disk_is_one_clear_error_and_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.append(some_result(1))
    before = (tmp_path / RESULTS).read_bytes()
    real = os.write

    def half(fd: int, content: bytes) -> int:
        if len(content) < 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunError, match=r"No space left on device.*--resume"):
        store.append(some_result(2))
    monkeypatch.undo()
    assert (tmp_path / RESULTS).read_bytes() == before
    store.append(some_result(3))
    store.close()
    assert [r.measurement for r in read_results(tmp_path / RESULTS, "test")[0]] == ["m1", "m3"]


@TOOLS
def test_a_full_disk_stops_the_run_and_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topo = topology(3)
    whole = with_port(only(plan(topo, "preflight", "transport", seconds=60), "facts.gpu3", BANDWIDTH), 15305)
    whole = whole.model_copy(update={"rounds": (("facts.gpu3", BANDWIDTH),)})

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def fill() -> None:  # after the store was opened
        await asyncio.sleep(0.1)
        monkeypatch.setattr(os, "fsync", full)

    launcher = LocalLauncher()

    async def work() -> None:
        filling = asyncio.ensure_future(fill())
        await run_plan(whole, topo, launcher, tmp_path, Quiet())
        await filling

    with pytest.raises(RunError, match="No space left"):
        asyncio.run(work())
    assert processes_of("iperf3", "15305") == []
    assert (tmp_path / RESULTS).read_bytes() == b""


@TOOLS
def test_cancelling_stops_every_process_and_keeps_results(tmp_path: Path) -> None:
    topo = topology(3)
    whole = with_port(only(plan(topo, "preflight", "transport", seconds=60), "facts.gpu3", BANDWIDTH), 15306)

    async def work() -> None:
        task = asyncio.ensure_future(run_plan(whole, topo, LocalLauncher(), tmp_path, Quiet()))
        while not processes_of("iperf3 -c", "15306"):
            await asyncio.sleep(0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
    assert processes_of("15306") == []
    assert [r.measurement for r in read_results(tmp_path / RESULTS, "test")[0]] == ["facts.gpu3"]


@TOOLS
def test_killing_the_controller_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom pathlib import Path\n"
        "from tests.support.local_launcher import LocalLauncher, bandwidth\nfrom tests.support.run_case import Quiet\n"
        "from validation.execute import run_plan\n"
        "whole, topo = bandwidth(60, 15307)\n"
        f"asyncio.run(run_plan(whole, topo, LocalLauncher(), Path({str(tmp_path)!r}), Quiet()))\n"
    )
    controller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    until = time.monotonic() + 20
    while not processes_of("iperf3 -c", "15307"):
        assert time.monotonic() < until, "the measurement did not begin"
        time.sleep(0.05)
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    until = time.monotonic() + 10
    while left := processes_of("15307"):
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.05)


def test_only_a_document_that_its_parser_accepts_is_ok() -> None:
    m = plan(topology(2)).measurement("facts.gpu1")
    for output, status in (
        (Output(0, b"", b""), "unparseable"),
        (Output(0, b"no json\n", b""), "unparseable"),
        (Output(0, b'{"ready": true}\n', b""), "unparseable"),
        (Output(1, b"", b"Traceback\nKeyError: 'x'\n"), "failed"),
        (Output(255, b"", b"client_loop: send disconnect: Broken pipe\n"), "unreachable"),
        (Output(124, b"", b""), "timeout"),
    ):
        taken = read(m, "gpu1", output)
        assert (taken.status, taken.samples) == (status, ())
        assert taken.error


def test_a_plan_that_does_not_fit_is_refused_before_anything_starts(tmp_path: Path) -> None:
    topo = topology(2)
    whole = plan(topology(3))
    launcher = LocalLauncher()
    with pytest.raises(RunError, match="does not fit topology"):
        execute(tmp_path, whole, topo, launcher)
    assert launcher.started == []


def test_training_is_launched_in_the_fabric_with_addresses_and_slots() -> None:
    topo = topology(2)
    m = plan(topo, "training").measurement("training-short.inter")
    job = job_for(m, topo)
    assert job.node == "gpu1"
    asked = make(training_short_probe.Asked, job.probe.params)
    assert asked.hosts == ["127.0.0.2:1", "127.0.0.3:1"]
    assert asked.networks == ["127.0.0.0/8"]
    assert asked.ranks == 2
    assert asked.shared_cores, "the nodes of this topology are virtual"
    real = topo.model_copy(update={"nodes": tuple(n.model_copy(update={"virtual": None}) for n in topo.nodes)})
    assert not job_for(m, real).probe.params["shared_cores"]
