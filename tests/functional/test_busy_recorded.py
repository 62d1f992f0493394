"""What a machine was denied while a measurement ran: read from the kernel's files, and recorded with the result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.local_launcher import execute
from tests.support.run_case import only, plan, topology
from validation.execute.denied import denied_on
from validation.execute.remote import Output
from validation.kinds import KINDS
from validation.model import Denied, Result
from validation.model.load import read_results
from validation.probes.denied import Reading, between, reading

TICK = os.sysconf("SC_CLK_TCK")
V2 = "30 25 0:26 {root} {mount} rw - cgroup2 cgroup2 rw\n"
V1 = "31 25 0:27 / {mount} rw - cgroup cgroup rw,cpu,cpuacct\n"


def machine(folder: Path, *, steal: float = 0, user: float = 0, idle: float = 0, waits: float | None = None) -> Path:
    """A /proc of a machine with two processors; all figures are seconds since its start."""
    (folder / "self").mkdir(parents=True, exist_ok=True)
    (folder / "pressure").mkdir(exist_ok=True)
    ticks = [int(v * TICK) for v in (user, 0, 0, idle, 0, 0, 0, steal, 0, 0)]
    words = " ".join(map(str, ticks))
    (folder / "stat").write_text(f"cpu  {words}\ncpu0 {words}\ncpu1 {words}\nintr 5\n")
    if waits is not None:
        (folder / "pressure/cpu").write_text(pressure(waits))
    return folder


def pressure(seconds: float) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={int(seconds * 1e6)}\nfull avg10=0.00 total=0\n"


def apart(before: Reading, after: Reading, seconds: float = 10.0) -> dict[str, float | None]:
    """Shares as if `seconds` lay between the readings, and the test itself had used no processor."""
    return between(before._replace(moment=0.0, own=0.0), after._replace(moment=seconds, own=0.0))


def test_steal_pressure_and_the_programs_of_others_become_shares(tmp_path: Path) -> None:
    before = reading(machine(tmp_path, steal=1, user=5, idle=100, waits=2))
    after = reading(machine(tmp_path, steal=5.6, user=11, idle=109.4, waits=5))
    assert apart(before, after) == {
        "seconds": 10.0,
        "cpus": 2,
        "steal": 0.23,
        "pressure": 0.3,
        "throttled": None,
        "others": 0.3,
    }
    assert between(before._replace(moment=0, own=0), after._replace(moment=10, own=4))["others"] == 0.1


def test_what_the_kernel_does_not_have_is_not_known_and_not_zero(tmp_path: Path) -> None:
    nothing = apart(reading(tmp_path / "none"), reading(tmp_path / "none"))
    assert nothing == {"seconds": 10.0, **dict.fromkeys(("cpus", "steal", "pressure", "throttled", "others"))}
    old = tmp_path / "old"
    old.mkdir()
    (old / "stat").write_text("cpu  1 2 3 4\ncpu0 1 2 3 4\n")  # before there was steal
    assert apart(reading(old), reading(old))["steal"] is None


def test_a_counter_that_fell_tells_nothing(tmp_path: Path) -> None:
    before = reading(machine(tmp_path, steal=9, idle=100, waits=9))
    found = apart(before, reading(machine(tmp_path, steal=1, idle=120, waits=1)))
    assert (found["steal"], found["pressure"]) == (None, None)


@pytest.mark.parametrize("inside", [False, True])
def test_the_own_cgroup_counts_where_it_is_of_version_2(tmp_path: Path, inside: bool) -> None:
    """Its pressure is the measurement's own waiting; the quota of a group above it holds the measurement back, too.

    `inside`: in a container, where the hierarchy is mounted from the container's own group.
    """
    proc, groups = machine(tmp_path / "proc", idle=100, waits=9), tmp_path / "groups"
    own = groups / "user.slice/session-1.scope"
    own.mkdir(parents=True)
    (own / "cpu.pressure").write_text(pressure(1))
    (own / "cpu.stat").write_text("usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n")
    (groups / "user.slice/cpu.stat").write_text("nr_throttled 4\nthrottled_usec 1000000\n")
    top = "/machine.slice/node" if inside else ""
    (proc / "self/cgroup").write_text(f"0::{top}/user.slice/session-1.scope\n")
    (proc / "self/mountinfo").write_text(V2.format(root=top or "/", mount=groups))
    before = reading(proc)
    (own / "cpu.pressure").write_text(pressure(3))
    (groups / "user.slice/cpu.stat").write_text("nr_throttled 9\nthrottled_usec 5000000\n")
    found = apart(before, reading(proc))
    assert (found["pressure"], found["throttled"]) == (0.2, 0.4)
    assert reading(proc, own_group=False).waited == 9


def test_a_hybrid_machine_is_throttled_by_version_1_and_pressed_by_version_2(tmp_path: Path) -> None:
    proc = machine(tmp_path / "proc", idle=100, waits=9)
    first, second = tmp_path / "v1/job", tmp_path / "v2/job"
    first.mkdir(parents=True)
    second.mkdir(parents=True)
    (proc / "self/cgroup").write_text("5:memory:/job\n1:cpu,cpuacct:/job\n0::/job\n")
    (proc / "self/mountinfo").write_text(V2.format(root="/", mount=second.parent) + V1.format(mount=first.parent))
    (first / "cpu.stat").write_text("nr_periods 9\nnr_throttled 1\nthrottled_time 0\n")
    (second / "cpu.pressure").write_text(pressure(0))
    before = reading(proc)
    (first / "cpu.stat").write_text("nr_periods 9\nnr_throttled 5\nthrottled_time 2500000000\n")
    (second / "cpu.pressure").write_text(pressure(4))
    found = apart(before, reading(proc))
    assert (found["pressure"], found["throttled"]) == (0.4, 0.25)


def test_the_root_of_the_hierarchy_has_the_machines_own_pressure(tmp_path: Path) -> None:
    proc = machine(tmp_path, waits=7)
    (proc / "self/cgroup").write_text("0::/\n")
    (proc / "self/mountinfo").write_text(V2.format(root="/", mount=tmp_path / "groups"))
    assert reading(proc).waited == 7


def test_a_supervisors_words_become_typed_or_nothing() -> None:
    said = b'{"ready": true}\n{"denied": {"seconds": 4.0, "cpus": 2, "steal": 0.23, "pressure": null}}\n'
    assert denied_on("gpu1", Output(0, said, b""), by_daemon=False) == Denied(
        where="gpu1", seconds=4.0, cpus=2, steal=0.23
    )
    for odd in (b"", b'{"denied": 3}', b'{"denied": {"seconds": 1, "steal": 7}}', b'{"denied": {"seconds": -1}}'):
        assert denied_on("gpu1", Output(0, odd, b""), by_daemon=False) is None


def test_a_jobs_ranks_are_not_taken_for_the_programs_of_others() -> None:
    """A daemon starts them, not the probe: what the machine ran beside them is not known."""
    said = Output(0, b'{"denied": {"seconds": 4.0, "others": 0.9, "pressure": 0.1}}\n', b"")
    found = {
        kind: denied_on("gpu1", said, KINDS[kind].by_daemon)
        for kind in ("tcp-bandwidth", "training-short", "remoting-copy")
    }
    assert [d.others if d else 0 for d in found.values()] == [0.9, None, None]


def recorded(folder: Path) -> Result:
    topo = topology(2)
    execute(folder, only(plan(topo), "path-mtu.gpu1-lo.gpu2-lo"), topo)
    results, _ = read_results(folder / "results.jsonl", "test")
    return results[0]


def test_a_result_says_what_its_node_and_the_labs_host_were_denied(tmp_path: Path) -> None:
    denied = recorded(tmp_path).denied
    assert [d.where for d in denied] == ["gpu1", "host"]
    assert all(d.seconds > 0 and d.cpus == os.cpu_count() and d.steal is not None for d in denied)
    assert denied[0].others is not None
    assert denied[1].others is None  # on the host the lab's own programs are not told from others'


def test_a_probe_that_ran_too_long_still_says_what_it_was_denied(tmp_path: Path) -> None:
    topo = topology(2)
    whole = only(plan(topo), "path-mtu.gpu1-lo.gpu2-lo")
    slow = whole.measurements[0].model_copy(update={"timeout_s": 0.01})
    execute(tmp_path, whole.model_copy(update={"measurements": (slow,)}), topo)
    result = read_results(tmp_path / "results.jsonl", "test")[0][0]
    assert result.status == "timeout"
    assert [d.where for d in result.denied] == ["gpu1", "host"]
