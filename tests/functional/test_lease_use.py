"""What a lease's GPUs do, from the server's NVML by the agent to the file that a program's own NVML reads: the real
agent, the reference engine and its emulated GPUs on loopback."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.engine_run import MIB, ROOT, UUIDS, built, describe, wait_for
from toolkit.engine import build
from toolkit.lease import heartbeat, use, wire
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.heartbeat import Keeper
from toolkit.lease.wire import Deadline, Use

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
]
TOKEN = lease_forms.TOKEN
AGENT = "import sys; from toolkit.lease.server.agent import main; sys.exit(main())"
HOLDS = """
from tests.support.engine_run import PRELUDE
import sys; exec(PRELUDE)
start(); alloc(int(sys.argv[1]) << 20); print("held", flush=True); sys.stdin.read()
"""


def free_port() -> int:
    """One that the kernel gives to no connection by itself, so that it is still free when it is used."""
    while True:
        port = random.randint(10000, 30000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass
class Lease:
    """A lease's agent with its engine, and the environment of that."""

    endpoint: LeaseEndpoint
    devices: dict[str, str]
    folder: Path

    def holder(self, mib: int) -> subprocess.Popen[str]:
        """A program of the lease's client that holds so much of its first device."""
        (self.folder / "client-token").write_text(f"{TOKEN}\n")
        client = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": f"{built()}/lib",
            "ELASTIC_AI_SERVERS": f"127.0.0.1:{self.endpoint.port}",
            "ELASTIC_AI_TOKEN_FILE": str(self.folder / "client-token"),
        }  # fmt: skip
        command = [sys.executable, "-c", HOLDS, str(mib)]
        for last in (False, False, True):  # on a machine that is overloaded the door closes after its 5 s
            one = subprocess.Popen(command, env=client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if last or holds(one):
                break
            one.communicate()
        return one


def holds(program: subprocess.Popen[str]) -> bool:
    """Whether it has what it was started for."""
    assert program.stdout is not None
    return program.stdout.readline() == "held\n"


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def started(folder: Path, *gpus: LeasedGpu) -> Iterator[Lease]:
    """The agent, with these devices."""
    devices = describe(folder)
    instance = lease_forms.instance(
        port=free_port(), agent_port=free_port(), devices=gpus, engine_dir=built(), release="test",
        deadline_file=folder / "deadline", heartbeat_s=0.2, mode="hold",
    )  # fmt: skip
    (folder / "deadline").write_text(Deadline().text())
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "instance").write_text(instance.text())
    environment = {
        "CREDENTIALS_DIRECTORY": str(folder), "RUNTIME_DIRECTORY": str(folder), "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": f"{built()}/devices", **devices,
    }  # fmt: skip
    # As its unit hands on to the engine whatever finds the driver's libraries.
    script = AGENT.replace("import sys;", f"import os, sys; import toolkit.lease.server.agent as a; "
        f"run = a.subprocess.Popen; "
        f"a.subprocess.Popen = lambda argv, env, **more: run(argv, env={{**env, **{devices!r}, "
        f"'LD_LIBRARY_PATH': os.environ['LD_LIBRARY_PATH']}}, **more);")  # fmt: skip
    agent = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: agent.poll() is not None or answers(instance.agent_port), limit_s=30)
        assert agent.poll() is None, agent.stderr and agent.stderr.read()
        yield Lease(LeaseEndpoint.of(instance, TOKEN, "gpu1"), devices, folder)
    finally:
        agent.terminate()
        agent.communicate(timeout=10)


def told(lease: Lease, file: use.UseFile, line: str) -> bool:
    """Whether the file's first line is that now."""
    file.update()
    return file.path.exists() and file.path.read_text().splitlines()[0] == line


def test_memory_of_a_part_is_what_the_leases_programs_hold(tmp_path: Path) -> None:
    """Not what a neighbour holds on the same GPU, and nothing of how busy it is."""
    half = lease_forms.leased_gpu(0, 70, uuid=UUIDS[0])
    with started(tmp_path, half) as lease:
        neighbour = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": f"{built()}/devices", **lease.devices}
        beside = subprocess.Popen(
            ["setsid", sys.executable, "-c", HOLDS, "50"],
            env=neighbour, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        holder = lease.holder(30)
        keepers, _lost = heartbeat.keep([lease.endpoint])
        file = use.UseFile(tmp_path, keepers)
        try:
            assert holds(beside)
            keepers[0].start()
            # both are in one control group here: that the unit's alone are counted is tested below
            wait_for(lambda: told(lease, file, f"{80 * MIB} -1 -1"))
            beside.kill()
            beside.communicate()
            wait_for(lambda: told(lease, file, f"{30 * MIB} -1 -1"))
            holder.kill()
            holder.communicate()
            wait_for(lambda: told(lease, file, "0 -1 -1"))
        finally:
            for one in (holder, beside):
                one.kill()
                one.communicate()
            keepers[0].end()


def test_of_a_whole_gpu_its_memory_and_how_busy_it_is(tmp_path: Path) -> None:
    with started(tmp_path, lease_forms.leased_gpu(1, uuid=UUIDS[1])) as lease:
        keepers, _lost = heartbeat.keep([lease.endpoint])
        file, holder = use.UseFile(tmp_path, keepers), lease.holder(40)
        try:
            keepers[0].start()
            wait_for(lambda: told(lease, file, f"{40 * MIB} 0 0"))
            seen = {
                "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{built()}/client/lib", use.VARIABLE: str(file.path),
                "ELASTIC_AI_GPUS": json.dumps([{"uuid": UUIDS[1], "memory_bytes": 256 * MIB}]),
            }  # fmt: skip
            asked = ["--query-gpu=memory.used,memory.free,utilization.gpu", "--format=csv,noheader"]
            done = subprocess.run([built() / "client/bin/nvidia-smi", *asked], env=seen, capture_output=True, text=True)
            assert done.stdout == "40 MiB, 216 MiB, 0 %\n"
        finally:
            holder.kill()
            holder.communicate()
            keepers[0].end()


class Held:
    """A device on which these processes hold so much."""

    def __init__(self, held: dict[int, int] | None) -> None:
        self.held = held

    def processes(self) -> dict[int, int] | None:
        return self.held


def test_a_neighbours_memory_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        os.getpid(): ("/system.slice/elastic-ai-lease@1.service",),
        7: ("/system.slice/elastic-ai-lease@2.service",),
    }
    groups[8] = groups[os.getpid()]
    monkeypatch.setattr(use, "groups_of", lambda pid: groups.get(pid, ()))
    part: Any = use._used_of_part
    assert part(Held({7: 50, 8: 30, 9: 5}), False) == 30
    assert part(Held({7: 50, 8: 0}), False) is None, "NVML does not say how much it is"
    assert part(Held({7: 50, 8: 0}), True) == 0
    assert part(Held({7: 0, 8: 30}), False) == 30, "a neighbour of whom it says nothing is nobody's matter"
    assert part(Held({}), False) == 0
    assert part(Held(None), False) is None
    groups[os.getpid()] = ()
    assert part(Held({9: 5}), False) == 0, "without control groups nobody is of the unit"


@pytest.mark.parametrize(
    ("engine", "where", "emulated", "looked"),
    [
        ("reference", "client", True, True),
        ("reference", "client", False, True),
        ("torch", "client", False, True),
        ("torch", "client", True, False),  # its PyTorch computes on the processor: NVML counts nothing of it
        ("", "server", False, False),
    ],
)
def test_whose_use_is_looked_at(engine: str, where: str, emulated: bool, looked: bool) -> None:
    gpu = lease_forms.leased_gpu(emulated=emulated)
    assert use.looked_at(lease_forms.instance(engine=engine, where=where, devices=(gpu,))) is looked


def test_without_nvml_nothing_is_told_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.nvml.Nvml.__init__.__defaults__", ("libnvidia-ml-of-nobody.so.1",))
    looker = use.Looker([lease_forms.leased_gpu()])
    looker.start()
    looker.ask()
    looker.join(10)
    assert (looker.is_alive(), looker.said) == (False, ())


@pytest.mark.parametrize("one", [Use(), Use(0, 0, 0), Use(5 << 40, 100, None), Use(None, 3, 4)])
def test_it_is_read_as_it_was_told(one: Use) -> None:
    assert wire.parse_use(f"12 {one.words()}") == (12, one)


@pytest.mark.parametrize(
    "rest", ["", "0", "0 1 2", "0 1 2 3 4", "x 1 2 3", "0 -2 1 1", "0 1.5 1 1", "0 " + "9" * 40 + " 1 1", "٣ 1 1 1"]
)
def test_what_is_no_use_is_none(rest: str) -> None:
    assert wire.parse_use(rest) is None


def heard(endpoint: LeaseEndpoint, **uses: Use) -> Keeper:
    """A keeper without a connection that heard this of its devices."""
    keeper: Any = Keeper.__new__(Keeper)
    threading.Thread.__init__(keeper)
    keeper.endpoint, keeper.use, keeper.use_told = endpoint, {}, 0
    for place, one in uses.items():
        keeper._hear_use(f"{place[1:]} {one.words()}")
    return keeper


def test_the_file_has_a_line_for_each_device_of_the_program(tmp_path: Path) -> None:
    two = lease_forms.endpoint(devices=(lease_forms.leased_gpu(0), lease_forms.leased_gpu(1)))
    first, second = heard(two, _1=Use(5, 1, 2), _2=Use(9, 9, 9)), heard(lease_forms.endpoint(), _0=Use(7))
    assert first.use == {1: Use(5, 1, 2)}, "it has no third device"
    file = use.UseFile(tmp_path, [first, second])
    file.update()
    assert file.path.read_text() == "-1 -1 -1\n5 1 2\n7 -1 -1\n"
    before = file.path.stat()
    file.update()
    assert file.path.stat().st_mtime_ns == before.st_mtime_ns, "nobody said anything"
    second._hear_use("0 8 -1 -1")
    file.update()
    assert file.path.read_text().endswith("8 -1 -1\n")
    assert [one.name for one in tmp_path.iterdir()] == ["use"]


def test_a_folder_that_is_gone_or_full_ends_nothing(tmp_path: Path) -> None:
    file = use.UseFile(tmp_path / "none", [heard(lease_forms.endpoint(), _0=Use(7))])
    file.update()
    assert not file.path.exists()
