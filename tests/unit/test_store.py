"""What is kept of a measurement: on the disk before the call returns, flushed at the same time, each file once."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from validation.base.errors import RunError
from validation.execute.store import FLUSHING, Store

BOTH = [("gpu1", "sent\n", ""), ("gpu2", "received\n", "warning\n")]


def test_every_file_and_both_folders_are_flushed_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, flushed = Store(tmp_path), os.fsync, []

    def fsync(descriptor: int) -> None:
        real(descriptor)
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    logs = store.raw("m1", BOTH, {"tool": "iperf3", "stdout": "sent\n"})
    assert sorted(flushed) == sorted([tmp_path / "raw", tmp_path / "raw/m1", *(tmp_path / log.path for log in logs)])
    assert [Path(log.path).name for log in logs] == ["gpu1.out", "gpu1.err", "gpu1.probe.json", "gpu2.out", "gpu2.err"]
    assert (tmp_path / logs[-1].path).read_text() == "warning\n"
    assert (tmp_path / logs[2].path).read_text() == '{"tool": "iperf3"}\n'
    store.close()


def test_files_of_a_measurement_are_flushed_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another they would wait for each other for ever."""
    store, together = Store(tmp_path), threading.Barrier(4, timeout=10)
    files = 4

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_file():
            together.wait()

    monkeypatch.setattr(os, "fsync", fsync)
    assert len(store.raw("m1", BOTH)) == files <= FLUSHING
    store.close()


def test_a_second_attempt_and_a_node_that_is_named_twice_get_files_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.raw("m1", BOTH)
    names = [Path(log.path).name for log in store.raw("m1", [("gpu1", "a", ""), ("gpu1", "b", "")])]
    assert names == ["gpu1.2.out", "gpu1.2.err", "gpu1.3.out", "gpu1.3.err"]
    assert (tmp_path / "raw/m1/gpu1.out").read_text() == "sent\n"
    store.close()


def test_a_disk_that_is_full_ends_it_when_nothing_is_being_flushed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ended = Store(tmp_path), []
    first = threading.Event()

    def fsync(descriptor: int) -> None:
        if not first.is_set():
            first.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        threading.Event().wait(0.1)
        ended.append(os.fstat(descriptor).st_size)  # OSError where the descriptor is closed already

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match=r"No space left on device.*--resume"):
        store.raw("m1", BOTH)
    assert len(ended) == 3
    store.close()
