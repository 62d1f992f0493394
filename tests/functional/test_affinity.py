"""A session held to a few processors (CPUAffinity= of systemd) hides the others from nobody who has to count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.node_modules import ROOT, load, run
from validation.probes.affinity import take_all

slurm = load("plugins/plugin_utils/slurm.py")
ALLOWED = len(os.sched_getaffinity(0))
SHOW = "import os; from validation.probes.affinity import take_all; take_all(); print(len(os.sched_getaffinity(0)))"
pytestmark = pytest.mark.skipif(ALLOWED < 2, reason="this machine gives one processor")


@pytest.fixture
def held() -> Iterator[None]:
    """One processor alone, as a session has it whose manager is held to housekeeping cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("held")
def test_node_state_counts_the_processors_of_the_node() -> None:
    found = run("node_state", {})["cpus"]
    assert found == (ALLOWED if load("plugins/module_utils/container.py").read_container() else os.cpu_count())


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("in_container", [True, False])
def test_counting_leaves_the_session_as_it_was(in_container: bool) -> None:
    before = os.sched_getaffinity(0)
    assert load("plugins/modules/node_state.py").read_cpus(in_container) >= ALLOWED
    assert os.sched_getaffinity(0) == before


def test_the_scheduler_gets_the_hardware_and_not_the_sessions_share() -> None:
    """2 sockets x 32 cores x 2 threads: 128 processors, of which the session may use 0-3 and 64-67."""
    found = slurm.slurm_topology(128, "0,64", "0-31,64-95")
    assert found == {"sockets": 2, "cores": 32, "threads": 2}


@pytest.mark.usefixtures("held")
def test_a_probe_measures_the_whole_machine_and_a_jobs_share_of_it() -> None:
    def seen(**more: str) -> int:
        env = {**os.environ, **more}
        ran = subprocess.run([sys.executable, "-c", SHOW], cwd=ROOT, env=env, capture_output=True, check=True)
        return int(ran.stdout)

    assert seen() == ALLOWED
    assert seen(SLURM_JOB_ID="12") == 1, "what Slurm bound is the job's"


@pytest.mark.usefixtures("held")
def test_the_facts_of_a_node_count_all_processors() -> None:
    """Else a node of 128 processors, of which 9 work for somebody, would be busy: the session has 8."""
    command = [sys.executable, "-m", "validation.probes", "--controlled", "facts", "{}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdout is not None
        document = json.loads(probe.stdout.readline())
        probe.communicate()
    assert document["facts"]["cpu_count"] == ALLOWED


def test_a_refusal_of_the_kernel_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    take_all()


GRACE = {
    "/sys/devices/system/node/node0/cpulist": "0-71\n",
    "/sys/devices/system/node/node0/meminfo": "\nNode 0 MemTotal:       497000000 kB\n",
    "/sys/devices/system/node/node1/cpulist": "\n",
    "/sys/devices/system/node/node1/meminfo": "\nNode 1 MemTotal:       100000000 kB\n",
}


def test_memory_of_a_gpu_is_no_memory_of_jobs() -> None:
    alone = slurm.slurm_memory_mib("MemTotal: 497000000 kB")
    assert slurm.slurm_memory_mib("MemTotal:  597000000 kB\n", GRACE) == alone
    everything = {**GRACE, "/sys/devices/system/node/node1/cpulist": "72-143\n"}
    assert slurm.slurm_memory_mib("MemTotal:  597000000 kB\n", everything) > alone
