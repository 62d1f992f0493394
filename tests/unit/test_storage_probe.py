"""Probes of storage: nothing is written where it must not be, nothing is left there, a path that hangs is given up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validation.measures.storage import storage_alone_probe, storage_shared_probe
from validation.probes import storage_fio, storage_place
from validation.probes.storage_fio import Load, command, wrong
from validation.probes.storage_meet import Meeting, rounds, writers
from validation.probes.storage_place import OURS, Own, Refused, clear, looked_at, mount_of, ours_and_dead, room
from validation.probes.storage_watch import watched
from validation.probes.tool import Ran

pytestmark = pytest.mark.systems
ROOT = Path(__file__).parents[2]
MOUNTS = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:50 / /mnt/shared rw,relatime - nfs4 nfs:/export rw,vers=4.2,nconnect=8
41 22 0:51 / /mnt/shared\040two rw - tmpfs tmpfs rw
42 40 0:52 / /mnt/shared/deep rw - lustre fs:/x rw,flock"""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk: pytest's own may be in memory, below /dev, where no storage is measured."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-storage-", dir="/var/tmp") as folder:
        yield Path(folder)


def test_the_mount_of_a_path_is_the_nearest_above_it() -> None:
    def at(path: str) -> str:
        return mount_of(path, MOUNTS)["filesystem"]

    assert [at(p) for p in ("/scratch", "/mnt/shared", "/mnt/shared/a", "/mnt/sharedx", "/mnt/shared/deep/b")] == [
        "ext4", "nfs4", "nfs4", "ext4", "lustre",
    ]  # fmt: skip
    assert at("/mnt/shared two/x") == "tmpfs"
    assert "nconnect=8" in mount_of("/mnt/shared", MOUNTS)["options"]


def test_what_is_no_folder_of_a_storage_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "to-the-root").symlink_to("/")
    (tmp_path / "to-a-device").symlink_to("/dev/null")
    for name, words in (
        ("gone", "does not exist on this node"),
        ("file", "is no folder"),
        ("to-the-root", "leads to /, a folder of the system: nothing was written"),
        ("to-a-device", "is a device, and only folders are measured: nothing was written"),
    ):
        with pytest.raises(Refused, match=words):
            looked_at(str(tmp_path / name), None)


def test_a_file_system_in_memory_and_one_that_is_not_mounted_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    table = tmp_path / "proc/self/mountinfo"
    monkeypatch.setattr(storage_place, "PROC", tmp_path / "proc")
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path} rw - tmpfs tmpfs rw\n")
    with pytest.raises(Refused, match="is in memory"):
        looked_at(str(tmp_path), None)
    table.write_text("1 0 0:1 / / rw - ext4 /dev/vda rw\n")
    with pytest.raises(Refused, match=r"is on ext4 \(/dev/vda\), the inventory wants nfs4: is it mounted\?"):
        looked_at(str(tmp_path), "nfs4")
    assert looked_at(str(tmp_path), "ext4")["filesystem"] == "ext4"


def test_what_another_user_of_the_storage_prepared_is_not_written_through(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{OURS}token").symlink_to(elsewhere)
    with (
        pytest.raises(Refused, match="is no folder: somebody put it there; remove it"),
        Own(str(tmp_path), "token", "gpu1"),
    ):
        pass
    assert list(elsewhere.iterdir()) == []
    (tmp_path / f"{OURS}open").mkdir()
    (tmp_path / f"{OURS}open").chmod(0o777)  # whoever is there may lead `meet` elsewhere
    with (
        pytest.raises(Refused, match="somebody else's, who could lead what is written elsewhere"),
        Own(str(tmp_path), "open", "gpu1"),
    ):
        pass
    assert list((tmp_path / f"{OURS}open").iterdir()) == []


def test_folders_of_the_system_are_refused_by_whatever_name() -> None:
    for folder in ("/etc", "/usr", "/proc"):
        with pytest.raises(Refused, match="a folder of the system: nothing was written"):
            looked_at(folder, None)


def test_too_little_room_is_refused_before_anything_is_written(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path_factory.mktemp("bin") / "fio"  # on a machine without fio, that would be what is refused
    tool.write_text("#!/bin/sh\necho fio-3.33\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    with pytest.raises(Refused, match=r"has too little room: .* nothing was written"):
        room(str(tmp_path), 1 << 60, 1)
    assert room(str(tmp_path), 1, 1)["free_bytes"] > 0
    args = storage_alone_probe.Asked("x", str(tmp_path), "gpu1", "t", ["read"], 1 << 30, 2, 5, 1, 10)
    doc = storage_alone_probe.probe(args)
    assert "has too little room" in str(doc["error"])
    assert not list(tmp_path.iterdir())


def test_our_folder_is_removed_however_the_work_ends_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("x")

    def fails() -> None:
        with Own(str(tmp_path), "t", "gpu1") as own:
            (own.folder / "data.0").write_text("y")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    with Own(str(tmp_path), "t", "gpu1"), pytest.raises(Refused, match="another run measures here"):
        Own(str(tmp_path), "t", "gpu1").__enter__()


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    program = (
        "import os,sys,time\nfrom validation.probes.storage_place import Own\n"
        f"Own({str(tmp_path)!r}, 't', 'gpu1').__enter__()\nprint('made', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        assert clear(str(tmp_path)) == [], "it is alive"
        process.kill()
    theirs = tmp_path / f"{OURS}t" / "node-gpu2"
    theirs.mkdir()
    (theirs / "owner.json").write_text(json.dumps({"machine": "another", "pid": 1, "started": "1"}))
    (tmp_path / f"{OURS}t" / "meet").mkdir()
    assert clear(str(tmp_path)) == [f"{OURS}t/node-gpu1"]
    assert theirs.is_dir()
    assert not ours_and_dead(theirs)


def test_a_path_that_does_not_answer_is_given_up_and_what_was_found_before_is_kept() -> None:
    def hangs(say: Any, tell: Any) -> None:
        tell(place={"filesystem": "nfs4"})
        say("read", 0.3)
        time.sleep(600)

    begin = time.monotonic()
    found = watched("/mnt/home", hangs, 5.0)
    assert time.monotonic() - begin < 20
    assert found == {"place": {"filesystem": "nfs4"}, "silent": "/mnt/home did not answer in 0.3 s (read)"}
    first = watched("/mnt/home", lambda say, tell: time.sleep(600), 0.3)
    assert first == {"silent": "/mnt/home did not answer in 0.3 s (the first look)"}


def test_a_fault_in_the_work_is_words_and_no_second_document() -> None:
    def fails(say: Any, tell: Any) -> None:
        raise OSError(5, "Input/output error")

    assert "Input/output error" in watched("/x", fails, 5.0)["refused"]


def test_fio_goes_past_the_cache_into_files_that_are_there_and_streams_have_their_own() -> None:
    many = command("read", Load(8, 1 << 29, 5, 1), Path("/mnt/home/x"), "libaio", Path("/tmp/logs"))
    assert {"--direct=1", "--time_based=1", "--runtime=5", "--ramp_time=1", "--numjobs=8", "--allow_file_create=0",
            "--filename_format=data.$jobnum", f"--size={1 << 29}"} <= set(many)  # fmt: skip
    one = command("one-read", Load(2, 1 << 29, 5, 1), Path("/mnt/home/x"), "psync", Path("/tmp/logs"))
    assert {"--numjobs=1", "--filename=data.0:data.1", f"--size={1 << 30}", "--iodepth=1"} <= set(one)


def test_what_fio_says_of_a_failure_is_found_whatever_its_exit_status() -> None:
    noise = 'fio: io_u error on file /x: Input/output error: read\n{"jobs": [{"error": 5}]}'
    assert "Input/output error" in wrong(Ran(["fio"], 0, noise, ""))
    assert wrong(Ran(["fio"], 0, '{"jobs": [{"error": 0}]}', "")) == ""
    assert wrong(Ran(["fio"], 0, '{"jobs": [', "")) == "fio printed no whole report"
    assert "not installed" in wrong(Ran(["fio"], 127, "", "fio is not installed on this node"))


def test_intervals_are_those_that_every_stream_has(tmp_path: Path) -> None:
    for number, rates in ((1, (10, 20, 30)), (2, (1, 2))):
        lines = [f"{500 * at}, {rate}, 0, 0, 0" for at, rate in enumerate(rates)]
        (tmp_path / f"read_bw.{number}.log").write_text("\n".join(lines))
    assert storage_fio.intervals(tmp_path, "read", 2) == [[10, 20], [1, 2]]
    assert storage_fio.intervals(tmp_path, "write", 1) == [[]]


def test_of_many_nodes_some_that_are_spread_write() -> None:
    nodes = [f"n{number}" for number in range(20)]
    assert writers(nodes) == ["n0", "n2", "n5", "n7", "n10", "n12", "n15", "n17"]
    assert len(rounds(["a", "b"])) == 8


def _nodes(folder: Path, names: tuple[str, ...], present: tuple[str, ...]) -> dict[str, Any]:
    """The documents of nodes that run the probe at the same time; `present`: those that do."""
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        asked = {"name": "home", "path": str(folder), "node": name, "token": "t", "nodes": list(names)}
        words = [sys.executable, "-m", "validation.probes", "storage-shared", json.dumps(asked)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        found[name] = json.loads(done.stdout)

    threads = [threading.Thread(target=run, args=(name,)) for name in present]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_nodes_see_each_other_hold_locks_and_leave_nothing(tmp_path: Path) -> None:
    found = _nodes(tmp_path, ("a", "b"), ("a", "b"))
    said = {name: json.loads(doc["stdout"]) for name, doc in found.items()}
    assert {name: doc["error"] for name, doc in found.items()} == {"a": None, "b": None}
    assert said["a"]["held"] == {"holder": "taken"}
    assert said["b"]["held"] == {"meanwhile": "refused", "after": "taken"}
    assert said["a"]["count"]["total"] == said["b"]["count"]["total"] == 200
    assert [row["what"] for row in said["b"]["seen"]] == ["content"] * 3 + ["new"]
    assert not list(tmp_path.iterdir())


def test_a_node_that_does_not_come_is_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(tmp_path / "meet", "a", ["a", "b"])
    (tmp_path / "meet" / "hello.b").write_text(json.dumps({"nonce": "old", "seen": {"a": "older"}}))
    assert meeting.come(0.2) == ["a"], "what an earlier run left is no node"
    monkeypatch.setattr(storage_shared_probe, "COME_S", 0.2)
    meeting.remove()
    assert not (tmp_path / "meet").exists()


@pytest.mark.parametrize("signal_name", ["TERM", "KILL"])
def test_a_probe_that_is_stopped_leaves_nothing_or_the_next_one_removes_it(tmp_path: Path, signal_name: str) -> None:
    asked = {"name": "x", "path": str(tmp_path), "node": "a", "token": "t", "nodes": ["a", "b"]}
    words = [sys.executable, "-m", "validation.probes", "storage-shared", json.dumps(asked)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while not (tmp_path / f"{OURS}t/meet/hello.a").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(15 if signal_name == "TERM" else 9)
        process.wait(30)
    left = list(tmp_path.iterdir())
    if signal_name == "TERM":
        assert left == []
    else:
        until = time.monotonic() + 10
        while not clear(str(tmp_path)) and time.monotonic() < until:
            time.sleep(0.1)
        assert not (tmp_path / f"{OURS}t/node-a").exists()
