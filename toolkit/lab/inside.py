"""What a container node that does not answer is doing, seen from the host: its processes, its init's open jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from toolkit.lab import nodes
from validation.base import bounded
from validation.base.counting import number_of

PROC = Path("/proc")
ASK_S = 10.0
SHOWN = 12
#: What the node's own init is asked, in its namespaces.
QUESTIONS = (
    ["systemctl", "--no-pager", "--no-legend", "list-jobs"],
    ["systemctl", "--no-pager", "--no-legend", "--failed"],
    ["journalctl", "--no-pager", "--quiet", "--lines=5", "--output=cat"],
)


def state(lab: str, node: str) -> str:
    """Lines for people: the node's processes, oldest first, with their state and the kernel function they wait in, and
    what its init answers (each question has `ASK_S` seconds). Never raises."""
    # by age, since a kernel that ran out of numbers starts again with small ones
    found = sorted(nodes.processes(lab, node), key=_started)
    if not found:
        return "no process of it runs"
    lines = [f"{number_of(len(found), 'process')}: {', '.join(_told(pid) for pid in found[:SHOWN])}"]
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
        folder = PROC / str(pid)
        return f"{(folder / 'comm').read_text().strip()} {_stat(pid)[0]} {(folder / 'wchan').read_text().strip()}"
    except OSError:
        return f"{pid} has ended"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on (proc(5))."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _started(pid: int) -> tuple[float, int]:
    """When it was started, in ticks since the machine's boot (field 22); what has ended counts as youngest."""
    try:
        return float(_stat(pid)[19]), pid
    except OSError:
        return float("inf"), pid


def _number_inside(pid: int) -> int:
    """The process id in its own namespace (NSpid of proc(5)), 0 when it has ended."""
    try:
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return 0
