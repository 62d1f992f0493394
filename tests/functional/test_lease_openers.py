"""Who has a GPU open, with real processes, descriptors, maps and sockets; device files of the kernel's own stand in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease.machine import fence, openers, processes
from toolkit.lease.server import handover

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: it makes device files, and looks at all processes"),
    pytest.mark.engines,
]
ALICE, BOB = 12_345, 12_346
FULL, ZERO = (1, 7), (1, 5)
#: Waits with what its words open, as the user of its first word.
PROGRAM = """
import array, ctypes, mmap, os, socket, sys, threading, time
uid, how, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
handle = os.open(path, os.O_RDWR)
def side():
    global kept
    if how.startswith("apart"):
        assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    if how == "apart-queue":
        kept = socket.socketpair()
        kept[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    if how in ("apart-queue", "headless-map"):
        os.close(handle)
    has_it.set()
    if how.startswith("headless"):
        time.sleep(0.5)  # the first thread has ended by then
        print("there", flush=True)
    time.sleep(600)
if how.startswith(("apart", "headless")):
    os.setresuid(uid, uid, uid)
    kept = mmap.mmap(handle, 4096, flags=mmap.MAP_PRIVATE) if how == "headless-map" else None
    has_it = threading.Event()
    threading.Thread(target=side).start()
    has_it.wait()
    if how.startswith("headless"):
        ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)  # exit(2): of this thread alone
    os.close(handle)
if how == "map":
    kept = mmap.mmap(handle, 4096, flags=mmap.MAP_PRIVATE)
    os.close(handle)
if how == "queue":
    one, other = socket.socketpair()
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    os.close(handle)
if how == "backlog":
    server = socket.socket(socket.AF_UNIX)
    server.bind("")
    server.listen()
    one = socket.socket(socket.AF_UNIX)
    one.connect(server.getsockname())
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    os.close(handle)
if how == "uring":
    import ctypes
    call, words = ctypes.CDLL(None).syscall, (ctypes.c_uint * 64)()
    ring = call(425, 8, words)
    if ring < 0 or call(427, ring, 2, (ctypes.c_int * 1)(handle), 1) < 0:
        print("none", flush=True)
        sys.exit()
    os.close(handle)
os.setresuid(uid, uid, uid)
print("there", flush=True)
time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two GPUs, by the numbers of devices that hardly anybody has open."""
    for name, numbers in (("nvidia0", FULL), ("nvidia1", ZERO)):
        os.mknod(tmp_path / name, 0o20666, os.makedev(*numbers))
    monkeypatch.setattr(fence, "DEV", tmp_path)
    monkeypatch.setattr(fence, "EMULATED", tmp_path / "none")
    return tmp_path


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def go(uid: int, how: str, path: Path | str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", PROGRAM, str(uid), how, str(path)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        said = process.stdout.readline()
        if said == "none\n":
            pytest.skip("this machine gives nobody an io_uring")
        assert said == "there\n"
        return process

    yield go
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def seen(*owners: int) -> dict[int, tuple[int | None, bool]]:
    """GPU, and whether it may only be hidden there, by process of our two users."""
    found = [one for one in openers.find(owners) if one.process.uid in (ALICE, BOB)]
    return {one.process.pid: (one.index, one.hidden) for one in found}


def test_a_gpu_is_known_by_its_number_open_or_mapped_under_any_name(dev: Path, start: Start, tmp_path: Path) -> None:
    copy = tmp_path / "innocent"
    os.mknod(copy, 0o20666, os.makedev(*FULL))
    by_name, by_copy = start(ALICE, "open", dev / "nvidia0"), start(BOB, "open", copy)
    mapped = start(ALICE, "map", "/dev/zero")
    start(ALICE, "open", "/dev/null")
    assert seen() == {by_name.pid: (0, False), by_copy.pid: (0, False), mapped.pid: (1, False)}
    copy.unlink()  # a name that is gone changes nothing
    assert by_copy.pid in seen()


def test_a_plain_file_that_stands_in_for_gpus_is_known_by_what_it_is(
    dev: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulated GPUs of a lab: a file of root's, and not one of its name."""
    real, other = dev / "devices", dev / "other"
    for path in (real, other):
        path.write_bytes(b"x" * 4096)
    monkeypatch.setattr(fence, "EMULATED", real)
    has, maps = start(ALICE, "open", real), start(BOB, "map", real)
    start(ALICE, "open", other)
    assert seen() == {has.pid: (None, False), maps.pid: (None, False)}


@pytest.mark.parametrize("how", ["queue", "backlog", "uring"])
def test_a_descriptor_in_a_queue_is_seen_of_the_owner(dev: Path, start: Start, how: str) -> None:
    hides = start(ALICE, how, dev / "nvidia0")
    assert seen() == {}
    assert seen(ALICE) == {hides.pid: (None, True)}


def test_a_process_that_was_passed_a_gpu_is_ended_and_nobody_else(dev: Path, start: Start, tmp_path: Path) -> None:
    """As after a job with a GPU whose owner has another job here: the second keeps what the first has passed on."""
    host = FakeHost(folder=tmp_path / "host")
    (tmp_path / "host").mkdir()
    conf = host.serve()
    object.__setattr__(host, "openers", openers)
    object.__setattr__(host, "clock", time)
    keeps, passed_on = start(ALICE, "open", dev / "nvidia0"), start(BOB, "map", "/dev/zero")
    innocent = start(ALICE, "open", "/dev/null")
    told, left = handover.clear(host, conf, {0}, {ALICE})
    assert left == []
    assert [words for words in told if f"process {keeps.pid} (python" in words and "nvidia0 open" in words]
    assert keeps.wait(5) == -signal.SIGKILL
    assert (passed_on.poll(), innocent.poll()) == (None, None), "another GPU, and none"
    hides = start(ALICE, "queue", dev / "nvidia0")
    assert handover.clear(host, conf, {0}, {ALICE})[1] == []
    assert hides.wait(5) == -signal.SIGKILL
    assert passed_on.poll() is None


def test_a_number_that_is_given_again_is_another_process(start: Start, dev: Path) -> None:
    process = processes.read(start(ALICE, "open", "/dev/null").pid)
    assert process is not None
    other = processes.Process(process.pid, "1", process.uid, process.name)
    other.kill()
    time.sleep(0.1)
    assert processes.started(process.pid) == process.started
    assert processes.read(2**22 - 2) is None


def test_a_name_of_a_process_says_nothing_but_itself() -> None:
    """Whoever reads the journal is told no line of a user's."""
    assert processes.Process(7, "1", 5, "a\x1b[1A\nroot: ok").told() == "process 7 (a??1A?root??ok, uid 5)"


def test_a_control_group_of_a_users_is_no_unit_of_a_lease() -> None:
    """A user names the units of his own manager as he likes, and makes folders in his control groups."""
    name, system = "elastic-ai-lease@41.service", "/system.slice/system-elastic\\x2dai\\x2dlease.slice"
    base = processes._base(processes.PROC)
    user = "/user.slice/user-1001.slice/user@1001.service"
    assert processes.lease_of([f"{base}{system}/{name}"]) == "41"
    assert processes.lease_of([f"{base}{system}/{name}/below"]) == "41"
    for path in (
        f"{user}/app.slice/{name}",
        f"{user}/{name}",
        f"/x/system.slice/{name}",
        f"{user}/system.slice/{name}",
    ):
        assert processes.lease_of([base + path]) == "", path
    assert processes.lease_of([f"{base}/system.slice/slurmstepd.scope/job_5/step_0/user/{name}"]) == ""


def test_who_has_too_many_files_open_holds_nobody_up(
    dev: Path, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the owner it is taken for hiding, of others it is told; and where the time is up the rest is told."""
    monkeypatch.setattr(openers, "MOST_DESCRIPTORS", 2)
    many, others = start(ALICE, "open", "/dev/null"), start(BOB, "open", dev / "nvidia0")
    found = seen(ALICE)  # others of this machine may have as many
    assert {pid: found.get(pid) for pid in (many.pid, others.pid)} == {many.pid: (None, True), others.pid: (None, True)}
    monkeypatch.setattr(openers, "LOOK_S", -1.0)
    late = openers.find([ALICE])
    assert late[-1].hidden
    assert "no time left" in late[-1].how
    assert many.pid in {one.process.pid for one in late}, "the owner's in any case"
    monkeypatch.undo()
    assert not openers.key_of(str(tmp_path / "none"))


def test_a_thread_that_keeps_what_its_process_has_not_is_seen(dev: Path, start: Start) -> None:
    """Threads may have open files of their own; and of a process whose first thread has ended /proc shows nothing."""
    apart, headless = start(ALICE, "apart", dev / "nvidia0"), start(BOB, "headless", dev / "nvidia0")
    maps = start(BOB, "headless-map", "/dev/zero")
    assert seen() == {apart.pid: (0, False), headless.pid: (0, False), maps.pid: (1, False)}
    for one in openers.find():
        if one.process.uid in (ALICE, BOB):
            openers.end(one)
    assert [one.wait(5) for one in (apart, headless, maps)] == [-signal.SIGKILL] * 3


def test_a_queue_of_a_thread_of_its_own_is_seen(dev: Path, start: Start) -> None:
    hides = start(ALICE, "apart-queue", dev / "nvidia0")
    assert seen() == {}
    assert seen(ALICE) == {hides.pid: (None, True)}


def test_no_user_keeps_the_look_from_the_others(dev: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose files take longer than his share is told once, or, as an owner, taken for hiding with each process."""
    first, second = (start(ALICE, "open", "/dev/null").pid for _ in range(2))
    has = start(BOB, "open", dev / "nvidia0").pid
    monkeypatch.setattr(openers, "USER_S", 100.0)
    monkeypatch.setattr(openers, "LOOK_S", 10_000.0)
    now, look = [0.0], openers._one

    def one(process: processes.Process, *words: object) -> object:
        now[0] += 60.0 if process.uid == ALICE else 0.0
        return look(process, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(openers, "_one", one)
    monkeypatch.setattr(openers.time, "monotonic", lambda: now[0])
    assert seen() in ({late: (None, True), has: (0, False)} for late in (first, second))
    late = [one for one in openers.find([ALICE]) if one.process.uid == ALICE]
    assert {one.process.pid for one in late} in ({first}, {second})
    assert all("no time left" in one.how and one.hidden for one in late)
