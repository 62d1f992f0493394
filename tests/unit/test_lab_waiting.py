"""Waiting until the nodes of a lab answer ssh: how long, what is said meanwhile, and why one does not."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolkit.errors import LabError
from toolkit.lab import waiting
from toolkit.lab.spec import LabSpec, make_spec
from toolkit.lab.waiting import NodeWatch, greets, wait_for_all, wait_for_ssh


@pytest.fixture
def spec() -> LabSpec:
    return replace(make_spec("x", 3, 4, 1, vms=True), accel="tcg")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state and cache folder."""
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by sleeping alone: a busy machine does not count, to the tenth of a second that errors name."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def watch(greets: Callable[[], bool] = lambda: False, dead: str = "", **more: Any) -> NodeWatch:
    """Nodes whose ssh answers as `greets` says; the machine `dead` has no process."""
    return NodeWatch(lambda _address: greets(), lambda _lab, node: node != dead, **more)


@pytest.mark.usefixtures("own_clock")
def test_console_of_a_machine_that_never_answers_is_shown(spec: LabSpec, folders: Path):
    gpu1 = spec.node("gpu1")
    spec.node_dir(gpu1).mkdir(parents=True)
    (spec.node_dir(gpu1) / "console.log").write_text("# qemu-system-x86_64 …\n\nKernel panic - not syncing\n")
    with pytest.raises(LabError, match=r"gpu1 did not answer ssh within 0\.1 s; .*ends with:\n  Kernel panic"):
        wait_for_ssh(spec, gpu1, watch(), 0.1)
    with pytest.raises(LabError, match="the machine gpu1 has stopped"):
        wait_for_ssh(spec, gpu1, watch(dead="gpu1", ended_after_s=0.0), 5)


@pytest.mark.usefixtures("own_clock")
def test_a_container_that_never_answers_says_what_it_does(spec: LabSpec, folders: Path):
    """client1 was never started: that, and not only an empty console, stands in the error."""
    client1 = spec.node("client1")
    spec.node_dir(client1).mkdir(parents=True)
    with pytest.raises(
        LabError, match=r"client1 did not answer ssh within 0\.1 s; .*\n.*\ninside: no process of it runs"
    ):
        wait_for_ssh(spec, client1, watch(), 0.1)


@pytest.mark.usefixtures("own_clock")
def test_an_emulated_machine_is_waited_for_longer_where_the_host_is_busy(
    spec: LabSpec, folders: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "VM_SSH_DEADLINE_S", 0.1)
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 2)
    for load, times in ((0.2, "0.1"), (6.0, "0.3"), (60.0, "0.4")):
        monkeypatch.setattr(waiting.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        with pytest.raises(LabError, match=rf"gpu1 did not answer ssh within {times} s"):
            wait_for_ssh(spec, spec.node("gpu1"), watch())


def test_a_banner_may_take_longer_than_the_connection():
    """An sshd on an emulated machine starts a process for each connection: who gives up early only makes more work."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20.0)
        port = server.getsockname()[1]

        def answer() -> None:
            for _ in range(2):
                try:
                    there, _peer = server.accept()
                except OSError:  # nobody asks
                    return
                with there:
                    time.sleep(0.4)
                    with contextlib.suppress(OSError):
                        there.sendall(b"SSH-2.0-x\r\n")

        serving = threading.Thread(target=answer)
        serving.start()
        try:
            assert not greets("127.0.0.1", 0.1, port=port)
            assert greets("127.0.0.1", 0.1, banner_s=20.0, port=port)
        finally:
            serving.join()
    assert not greets("127.0.0.1", 0.1, banner_s=20.0, port=port), "nobody listens any more"


def test_a_container_that_hangs_at_boot_is_started_once_more(spec: LabSpec, folders: Path):
    started: list[str] = []
    watched = watch(lambda: bool(started), again=lambda node, doing: started.append(f"{node.name}: {doing}"))
    wait_for_ssh(spec, spec.node("client1"), replace(watched, again_after_s=0.1), 5)
    assert started == ["client1: no process of it runs"]
    with pytest.raises(LabError, match="client1 did not answer ssh"):
        wait_for_ssh(
            spec, spec.node("client1"), replace(watched, again_after_s=0.1, greets=lambda _address: False), 0.3
        )
    assert len(started) == 2, "once for each wait"


def test_one_node_that_fails_ends_the_wait_for_all(spec: LabSpec, folders: Path):
    """gpu1's program has ended while gpu2 would be waited for until the deadline."""
    both = (spec.node("gpu1"), spec.node("gpu2"))
    with pytest.raises(LabError, match="the machine gpu1 has stopped"):
        wait_for_all(spec, both, lambda _words: None, watch(dead="gpu1", ended_after_s=0.0))


def test_progress_names_the_nodes_that_still_boot(spec: LabSpec):
    answers = iter([False] * 3 + [True] * 9)
    said: list[str] = []
    wait_for_all(spec, (spec.node("gpu1"),), said.append, watch(lambda: next(answers), say_every_s=0.01))
    assert re.fullmatch(r"gpu1: booting, \d s", said[0])
