"""Before a GPU goes to the next nobody has it, and what one user does on a server is no fault of another's lease."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.support.lease_host import UNIT_UID, FakeHost
from tests.support.lease_texts import Job, jobs_of, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.instance_record import Instance
from toolkit.lease.machine import processes
from toolkit.lease.machine.openers import Opener
from toolkit.lease.machine.processes import Process
from toolkit.lease.machine.sockets import Occupant
from toolkit.lease.machine.unit import UnitFailed
from toolkit.lease.server import handover, hooks, instance, leftovers, native, static, sweep
from toolkit.lease.server.lease_locks import Busy, turn
from toolkit.lease.server.native_records import read_records
from toolkit.lease.static_forms import StaticWish

ALICE, BOB = os.getuid() or 12_345, 12_346
UNITS = "/system.slice/system-elastic\\x2dai\\x2dlease.slice/elastic-ai-lease@{}.service"


@pytest.fixture(autouse=True)
def _no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these tests run in one, control groups have a beginning of their own."""
    monkeypatch.setattr(processes, "_base", lambda _proc: "")


def said(number: int = 41, gres: str = "gpu:v100:1(IDX:2)", uid: int = ALICE, **more: Any) -> list[Job]:
    return slurm_job(number, gres=gres, uid=uid, **more)


def has(pid: int, index: int | None = 2, uid: int = ALICE, group: str = "/user.slice", **more: Any) -> Opener:
    """A process with a GPU."""
    return Opener(Process(pid, "1", uid, "python3", (group,)), index, "has /dev/nvidia2 open", **more)


def run(monkeypatch: pytest.MonkeyPatch, host: FakeHost, program: Any, number: int) -> int:
    monkeypatch.setenv("SLURM_JOB_ID", str(number))
    return int(program(host))


def natively(monkeypatch: pytest.MonkeyPatch, host: FakeHost, number: int = 50, **more: Any) -> None:
    """A native job that runs."""
    host.slurm.said = [said(number, name="train", comment="", **more)]
    assert run(monkeypatch, host, hooks.prolog, number) == 0


def test_a_job_without_a_gpu_that_listens_on_a_leases_port_drains_nothing(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance.start(host, jobs_of(said())[0], host.serve())
    host.sockets.whose[host.endpoint(41)["port"]] = BOB
    assert run(monkeypatch, host, hooks.epilog, 41) == 0
    assert f"process 4711 of uid {BOB} listens on port" in capsys.readouterr().err
    assert not (host.run_dir / "41").exists()


def test_what_a_unit_left_on_its_port_is_known_after_its_processes_are_gone(host: FakeHost) -> None:
    """Its uid is kept from the first end that failed to the next."""
    instance.start(host, jobs_of(said())[0], host.serve())
    port = host.endpoint(41)["port"]
    host.sockets.whose[port] = UNIT_UID
    assert instance.end_instance(host, "41") == [f"something still listens on port {port}"]
    assert "41" not in host.systemd.units
    assert instance.end_instance(host, "41") == [f"something still listens on port {port}"]
    host.sockets.whose.clear()
    assert instance.end_instance(host, "41") == []


def test_a_number_of_a_lease_that_another_process_has_now_is_not_the_leases(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = iter(["100", "200"])
    monkeypatch.setattr(instance, "started", lambda _pid: next(starts))
    monkeypatch.setattr(leftovers, "started", lambda _pid: next(starts))
    instance.start(host, jobs_of(said())[0], host.serve())
    host.gpus.users = {"GPU-3": [999_999]}
    assert instance.end_instance(host, "41") == []


def test_a_gpu_that_its_last_owner_keeps_is_taken_from_him(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process of another job of his has the open file; access by name is gone already."""
    host.serve()
    natively(monkeypatch, host)
    host.openers.found = [has(7), has(8, index=3), has(9, uid=BOB, index=None, hidden=True)]
    assert run(monkeypatch, host, hooks.epilog, 50) == 0
    assert host.openers.ended == [7], "the other has another GPU, and the third shows none"
    assert host.openers.asked[-1] == {ALICE}
    assert f"process 7 (python3, uid {ALICE}) has /dev/nvidia2 open, and is ended" in capsys.readouterr().err


def test_a_gpu_that_somebody_keeps_drains_the_server_and_names_him(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.serve()
    natively(monkeypatch, host)
    host.openers.found, host.openers.stay = [has(7, uid=BOB)], True
    assert run(monkeypatch, host, hooks.epilog, 50) == 1
    words = f"job 50: its GPUs are not free: process 7 (python3, uid {BOB}) has /dev/nvidia2 open"
    assert words in capsys.readouterr().err
    host.slurm.said = [said(51)]
    assert run(monkeypatch, host, hooks.prolog, 51) == 1
    assert "job 51: its GPUs are not free: process 7" in capsys.readouterr().err
    assert host.systemd.units == {}
    host.slurm.said = [said(52, gres="gpu:v100:1(IDX:3)")]
    assert run(monkeypatch, host, hooks.prolog, 52) == 0, "another GPU"


def test_a_long_look_is_followed_by_another(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server with many processes one look takes longer than who was ended may take to go."""
    host.serve()
    natively(monkeypatch, host)
    find = host.openers.find

    def slow(owners: Any = ()) -> list[Opener]:
        host.clock.now += 30
        return find(owners)

    monkeypatch.setattr(host.openers, "find", slow)
    host.openers.found = [has(7, uid=BOB)]
    assert run(monkeypatch, host, hooks.epilog, 50) == 0
    assert host.openers.ended == [7]


def test_a_queue_is_seen_twice_before_it_counts(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the first look took; and from process to process it is one queue."""
    host.serve()
    natively(monkeypatch, host)
    looks: list[int] = []

    def slow(_owners: Any = ()) -> list[Opener]:
        looks.append(0)
        host.clock.now += 3
        return [has(7, index=None, hidden=True)] if len(looks) == 1 else []

    monkeypatch.setattr(host.openers, "find", slow)
    assert run(monkeypatch, host, hooks.epilog, 50) == 0
    assert host.openers.ended == []
    natively(monkeypatch, host, 51)
    looks.clear()

    def passed_on(_owners: Any = ()) -> list[Opener]:
        looks.append(0)
        return [] if host.openers.ended else [has(100 + len(looks), index=None, hidden=True)]

    monkeypatch.setattr(host.openers, "find", passed_on)
    assert run(monkeypatch, host, hooks.epilog, 51) == 0
    assert len(host.openers.ended) == 1


def test_what_a_lease_ends_with_is_looked_at_too(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the Epilog and, where that never ran, by the sweep."""
    instance.start(host, jobs_of(said())[0], host.serve())
    host.openers.found, host.openers.stay = [has(7)], True
    assert run(monkeypatch, host, hooks.epilog, 41) == 1
    host.openers.stay = False
    instance.start(host, jobs_of(said(42))[0], host.serve())
    host.clock.now += 60
    host.slurm.answers["squeue"] = ""
    host.openers.found = [has(8)]
    assert sweep.sweep(host) == 0
    assert host.openers.ended[-1] == 8


def test_who_may_have_a_gpu_keeps_it(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = replace(host.serve(device_users=["daemon"]), device_users=("daemon",))
    monkeypatch.setattr(handover, "_number", lambda name: {"daemon": [1], "elastic-ai-engine": [998]}.get(name, []))
    monkeypatch.setattr(handover, "service_uids", lambda _conf: {1})
    natively(monkeypatch, host, 50, gres="gpu:v100:1(IDX:2)", uid=BOB)
    instance.start(host, jobs_of(said(41, gres="gpu:v100:1(IDX:3)"))[0], conf)
    may = [
        has(1, uid=0),
        has(2, uid=1),
        has(3, uid=998, group="/system.slice/elastic-ai-mps.service"),
        has(4, uid=BOB),
        has(5, index=None, uid=BOB),
        has(6, index=3, uid=UNIT_UID, group=UNITS.format(41)),
        has(7, index=None, uid=UNIT_UID, group=UNITS.format(41)),
    ]
    may_not = [
        has(11, index=3, uid=BOB),
        has(12, index=2, uid=UNIT_UID, group=UNITS.format(41)),
        has(13, index=3, uid=UNIT_UID, group=UNITS.format(44)),
        has(14, index=3, uid=0, group=UNITS.format(44)),
        has(15, index=3, uid=998, group=UNITS.format(44)),
        has(16, index=3, uid=UNIT_UID),
    ]
    found = handover.entitled(host, conf)
    assert [one.process.pid for one in (*may, *may_not) if found.has(one)] == [1, 2, 3, 4, 5, 6, 7]
    instance.close(host, "41")
    assert handover.entitled(host, conf).has(may[5]), "it is ending, and its own end looks at what is left of it"
    assert instance.end_instance(host, "41") == []
    assert not handover.entitled(host, conf).has(may[5])


def test_where_device_files_are_open_to_all_nobody_but_the_owner_is_ended(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any user may open them there: that must not drain the server."""
    conf = host.serve(fence=False)
    instance.start(host, jobs_of(said())[0], conf)
    host.openers.found, host.openers.stay = [has(7, uid=BOB)], True
    assert run(monkeypatch, host, hooks.epilog, 41) == 0
    assert (host.openers.ended, "process 7" in capsys.readouterr().err) == ([], True)
    host.openers.stay = False
    instance.start(host, jobs_of(said())[0], conf)
    host.openers.found = [has(8)]
    assert run(monkeypatch, host, hooks.epilog, 41) == 0
    assert host.openers.ended == [8]


def test_where_device_files_are_open_to_all_other_gpus_of_the_owner_stay_his(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His other job here, and his program on a GPU that nobody asked Slurm for: both have nvidiactl open, too."""
    conf = host.serve(fence=False)
    instance.start(host, jobs_of(said())[0], conf)
    natively(monkeypatch, host, 50, gres="gpu:v100:1(IDX:3)", uid=ALICE)
    host.openers.found = [has(7, index=None), has(8, index=1), has(8, index=None), has(9, index=2), has(9, index=None)]
    assert run(monkeypatch, host, hooks.epilog, 41) == 0
    assert host.openers.ended == [9], "his job on the third GPU, and what he has elsewhere, go on"
    host.openers.found = [has(7, index=None)]
    assert run(monkeypatch, host, hooks.epilog, 50) == 0
    assert host.openers.ended == [9, 7], "with his last job"


def test_a_native_job_that_starts_beside_the_sweep_keeps_its_gpu(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's answer is older than its Prolog; and one that is queued again has a new record under its old number."""
    host.serve()
    natively(monkeypatch, host, 50)
    host.slurm.answers["squeue"] = ""
    ask = host.slurm.run

    def meanwhile(args: Any, *words: Any, **more: Any) -> Any:
        answer = ask(args, *words, **more)
        if args[0] == "squeue":
            natively(monkeypatch, host, 50)
            natively(monkeypatch, host, 51, gres="gpu:v100:1(IDX:3)")
            host.openers.found = [has(7), has(8, index=3)]
        return answer

    monkeypatch.setattr(host.slurm, "run", meanwhile)
    assert sweep.sweep(host) == 0
    assert (host.openers.ended, set(native.known(host))) == ([], {"50", "51"})
    monkeypatch.setattr(host.slurm, "run", ask)
    with turn(host, "50"):
        assert sweep.sweep(host) == 0
        assert set(native.known(host)) == {"50"}, "its Epilog is at it"
    assert sweep.sweep(host) == 0
    assert (host.openers.ended, set(native.known(host))) == ([8, 7], set())


def test_memory_that_the_driver_alone_tells_of_counts(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a process that has closed all files and kept what they gave it."""
    host.serve()
    natively(monkeypatch, host)
    host.gpus.users = {"GPU-2": [77], "GPU-3": [78]}
    monkeypatch.setattr(host.openers, "end", lambda one: host.gpus.users["GPU-2"].remove(one.process.pid))
    assert run(monkeypatch, host, hooks.epilog, 50) == 0
    assert host.gpus.users == {"GPU-2": [], "GPU-3": [78]}
    host.gpus.users = {"GPU-2": [77]}
    monkeypatch.setattr(host.openers, "numbered_as_driver", lambda: False)  # a container: another process's number
    natively(monkeypatch, host)
    assert host.gpus.users == {"GPU-2": [77]}


def test_leases_without_slurm_are_given_no_gpu_that_somebody_keeps(host: FakeHost, tmp_path: Path) -> None:
    conf = host.serve()
    wanted = StaticWish(count=1, part="1", clients=("10.77.1.12",), host="client1", seconds=600)
    host.openers.found, host.openers.stay = [has(7, index=0, uid=BOB)], True
    with pytest.raises(LeaseError, match="its GPUs are not free: process 7"):
        static.start(host, wanted, conf)
    assert host.systemd.units == {}
    host.openers.stay = False
    static.start(host, wanted, conf)
    host.openers.found = [has(8, index=0, uid=BOB)]
    static._end(host, conf, "s1")
    assert (host.systemd.units, host.openers.ended[-1]) == ({}, 8)


def test_jobs_without_a_gpu_look_at_nobody(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.serve()
    host.openers.found = [has(7)]
    host.slurm.said = [said(50, gres="", name="train", comment="")]
    for program in (hooks.prolog, hooks.epilog):
        assert run(monkeypatch, host, program, 50) == 0
    assert (host.openers.asked, host.openers.ended) == ([], [])


def test_a_prolog_without_room_starts_nothing_and_drains_nothing(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any user can fill a server's processes or disk for a moment."""
    host.serve()
    host.slurm.said = [said()]

    def full(*_args: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(host.fence, "keep", full)
    assert run(monkeypatch, host, hooks.prolog, 41) == 0
    assert "no lease started: BlockingIOError" in capsys.readouterr().err


def test_start_and_end_of_a_lease_take_turns(host: FakeHost) -> None:
    with turn(host, "41"):
        with turn(host, "42"):
            pass
        with pytest.raises(Busy, match="job 41"), turn(host, "41", wait_s=1):
            pass
    with turn(host, "41"):
        pass
    assert not list(host.run_dir.with_name("lease-turns").iterdir())


def test_the_sweep_leaves_a_lease_alone_that_is_being_ended(host: FakeHost) -> None:
    instance.start(host, jobs_of(said())[0], host.serve())
    host.clock.now += 60
    host.slurm.answers["squeue"] = ""
    with turn(host, "41"):
        assert sweep.sweep(host) == 0
        assert set(host.systemd.units) == {"41"}
    assert sweep.sweep(host) == 0
    assert host.systemd.units == {}


def test_a_lease_whose_ports_were_taken_has_others(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between their choice and the start of its unit somebody sits down on one."""
    conf, begin, ended = host.serve(), host.systemd.start, []

    class Squatter(Process):
        def kill(self) -> None:
            ended.append(self.pid)
            host.sockets.squatters.clear()

    def start(data: Instance, folder: Path) -> None:
        if not ended:
            host.sockets.squatters.append(Occupant(Squatter(7, "1", BOB, "nc"), (data.port,)))
            raise UnitFailed("the engine's server ended at its start")
        begin(data, folder)

    monkeypatch.setattr(host.systemd, "start", start)
    instance.start(host, jobs_of(said())[0], conf)
    assert (ended, set(host.systemd.units)) == ([7], {"41"})
    told = host.endpoint(41)
    assert {port for _client, port in host.firewall.open} == {told["port"], told["agent_port"]}
    monkeypatch.setattr(host.systemd, "start", begin)
    host.systemd.fails = UnitFailed("of itself")
    other = jobs_of(said(42, gres="gpu:v100:1(IDX:3)"))[0]
    with pytest.raises(LeaseError, match="its last words"):
        instance.start(host, other, conf)


def test_native_records_are_read_for_their_gpus(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.serve()
    natively(monkeypatch, host, 50, gres="gpu:v100:2(IDX:0-1)")
    assert read_records(host).had(["50", "51"]) == ({0, 1}, {ALICE})


def test_the_system_bus_that_was_passed_a_gpu_is_not_ended(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps descriptors for whoever does not read his messages; without it the server does not work."""
    host.serve()
    natively(monkeypatch, host)
    names = {101: "messagebus", 102: "systemd-resolve", 103: "dbusser"}
    monkeypatch.setattr(handover.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=names[uid]))
    host.openers.found = [has(7, uid=101), has(8, uid=102), has(9, uid=103)]
    assert run(monkeypatch, host, hooks.epilog, 50) == 1
    assert host.openers.ended == [9]
    assert "its GPUs are not free: process 7 (python3, uid 101)" in capsys.readouterr().err
    looks = len(host.openers.asked)
    host.openers.found = [has(7, uid=101)]
    sleep = host.clock.sleep

    def lets_go(seconds: float) -> None:
        host.openers.found = []
        sleep(seconds)

    monkeypatch.setattr(host.clock, "sleep", lets_go)
    host.slurm.said = [said(51)]
    assert run(monkeypatch, host, hooks.prolog, 51) == 0
    assert len(host.openers.asked) > looks


def test_an_end_without_room_goes_on(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills the disk of /run may be the lease's own."""
    instance.start(host, jobs_of(said())[0], host.serve())
    (host.run_dir / "41" / instance.UIDS).mkdir()
    monkeypatch.setattr(Path, "read_text", _no_uids(Path.read_text))
    assert run(monkeypatch, host, hooks.epilog, 41) == 0
    assert host.systemd.units == {}


def _no_uids(read: Any) -> Any:
    def reads(path: Path, *words: Any, **more: Any) -> Any:
        if path.name == instance.UIDS:
            raise FileNotFoundError(path)
        return read(path, *words, **more)

    return reads


def test_users_of_nvidias_packages_may_have_gpus_by_default() -> None:
    """nvidia-persistenced; DCGM 3 and 4 start their daemon as root, and with `--service-account nvidia-dcgm`."""
    defaults = Path(__file__).parents[2] / "roles" / "remoting_server" / "defaults" / "main.yml"
    assert {"nvidia-persistenced", "nvidia-dcgm"} <= set(
        yaml.safe_load(defaults.read_text())["remoting_server_device_users"]
    )
