"""What a container node that does not answer is doing, seen from the host: its processes, its init's open jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from toolkit.lab import nodes
from validation.base import bounded
from validation.base.counting import number_of

ASK_S = 10.0
#: What the node's own init is asked, in its namespaces.
QUESTIONS = (
    ["systemctl", "--no-pager", "--no-legend", "list-jobs"],
    ["systemctl", "--no-pager", "--no-legend", "--failed"],
    ["journalctl", "--no-pager", "--quiet", "--lines=5", "--output=cat"],
)


def state(lab: str, node: str) -> str:
    """Lines for people: the node's processes with their state and the kernel function they wait in, and what its init
    answers (each question has `ASK_S` seconds). Never raises."""
    found = sorted(nodes.processes(lab, node))
    if not found:
        return "no process of it runs"
    lines = [f"{number_of(len(found), 'process')}: {', '.join(_told(pid) for pid in found[:12])}"]
    if (init := next((pid for pid in found if _number_inside(pid) == 1), None)) is None:
        return "\n  ".join([*lines, "its init was not started"])
    for question in QUESTIONS:
        lines += _asked(init, question)
    return "\n  ".join(lines)


def _asked(init: int, question: list[str]) -> list[str]:
    try:
        words = [
            "nsenter",
            f"--target={init}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd",
            *question,
        ]
        done = bounded.run(words, most=bounded.STEADY_BYTES, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return [f"{' '.join(question[:1] + question[-1:])}: no answer within {ASK_S:g} s"]
    except bounded.TooMuch as fault:
        return [str(fault)]
    return [line.strip() for line in (done.stdout or done.stderr).decode("utf-8", "replace").splitlines()[:12]]


def _told(pid: int) -> str:
    try:
        folder = Path(f"/proc/{pid}")
        words = (folder / "stat").read_text().rpartition(")")[2].split()
        return f"{(folder / 'comm').read_text().strip()} {words[0]} {(folder / 'wchan').read_text().strip()}"
    except OSError:
        return f"{pid} has ended"


def _number_inside(pid: int) -> int:
    """The process id in its own namespace (NSpid of proc(5)), 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return 0
