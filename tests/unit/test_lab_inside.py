"""What is seen of a lab's node from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.lab import inside


def process(folder: Path, pid: int, comm: str, *, started: int, inside_number: int | None = None) -> None:
    """A process as /proc shows it (proc(5)): only the fields that are read."""
    place = folder / str(pid)
    place.mkdir()
    place.joinpath("comm").write_text(f"{comm}\n")
    place.joinpath("wchan").write_text("do_wait")
    place.joinpath("stat").write_text(f"{pid} ({comm}) S {' '.join(['0'] * 18)} {started} 0\n")
    numbers = [pid] if inside_number is None else [pid, inside_number]
    place.joinpath("status").write_text("NSpid:\t" + "\t".join(map(str, numbers)) + "\n")


def test_the_oldest_processes_are_named_though_the_kernel_began_its_numbers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container inside the node has a first process too: the node's own init is the older one."""
    process(tmp_path, 32000, "systemd-nspawn", started=100)
    process(tmp_path, 32001, "systemd", started=101, inside_number=1)
    process(tmp_path, 300, "container-init", started=900, inside_number=1)
    for number in range(400, 420):
        process(tmp_path, number, "sleep", started=number)
    monkeypatch.setattr(inside, "PROC", tmp_path)
    monkeypatch.setattr(inside.nodes, "processes", lambda lab, node: {int(p.name) for p in tmp_path.iterdir()} | {77})
    asked: list[int] = []
    monkeypatch.setattr(inside, "_asked", lambda init, question: asked.append(init) or [])
    shown = inside.state("it", "gpu1")
    assert shown.startswith("24 processes: systemd-nspawn S do_wait, systemd S do_wait, sleep")
    assert set(asked) == {32001}
