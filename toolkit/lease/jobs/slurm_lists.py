"""The small texts in which Slurm writes resources, hosts, numbers, states of nodes and times: their grammar alone.

As Slurm's own code writes and reads them, 22.05 to 25.11 (src/interfaces/gres.c, src/stepmgr/gres_stepmgr.c,
src/common/hostlist.c and slurm_protocol_defs.c; their names of folders differ by release).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolkit.lease import LeaseError

_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
#: One resource: name, type, count with its unit of 1024, and what stands in parentheses.
_NAME, _COUNT = re.compile(r"[A-Za-z_][\w./-]*"), re.compile(r"(\d+)([KMGTPE]?)", re.IGNORECASE)
_UNITS = "KMGTPE"
_NOTHING = ("", "(null)", "N/A")
#: What a node does whose State begins so, and flags that keep no work away. Of others Slurm gives the node none: DOWN,
#: DRAIN, FAIL, FUTURE, INVALID_REG, MAINTENANCE, NOT_RESPONDING, POWERED_DOWN, POWERING_UP, REBOOT_ISSUED, BLOCKED ...
_WORKS = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "RESERVED"}
_HARMLESS = {
    *_WORKS,
    "CLOUD",
    "DYNAMIC_NORM",
    "DYNAMIC_FUTURE",  # a node that took the place of one in the state FUTURE (slurmd -F)
    "REBOOT_REQUESTED",
    "UNDRAIN",
    "",  # sinfo's ALLOCATED+
}
#: The marks behind a state in sinfo's column, as flags. From the manual of sinfo, NODE STATE CODES.
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}


@dataclass(frozen=True)
class Gres:
    """A resource: `where` is what stands in parentheses: S:0-1 of a node, IDX:0-1, CNT:2 or 35/140,0/140 of a job."""

    name: str
    type: str
    count: int
    where: str = ""


def gres_list(text: str) -> list[Gres]:
    """The resources of a list; ValueError with the one that cannot be read. Without a count there is one."""
    return [] if text in _NOTHING else [_gres(token) for token in _tokens(text)]


def _tokens(text: str) -> list[str]:
    """Parts between the commas that stand in no parentheses."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    if depth:
        raise ValueError(text)
    return found


def _gres(token: str) -> Gres:
    match = re.fullmatch(r"([^()]+)(?:\((.*)\))?", token.replace(":(null)", ""))
    parts = [part for part in match[1].split(":") if part != "no_consume"] if match else []
    if match is None or not parts or not _NAME.fullmatch(parts[0]):
        raise ValueError(token)
    where, count = match[2] or "", 1
    if len(parts) > 1 and parts[-1][:1].isdigit():  # as Slurm: what begins with a digit, at the end, is a count
        number = _COUNT.fullmatch(parts.pop())
        if number is None:
            raise ValueError(token)
        count = int(number[1]) * (1024 ** (_UNITS.index(number[2].upper()) + 1) if number[2] else 1)
    elif re.fullmatch(r"CNT:\d+", where):
        count = int(where[4:])
    if len(parts) > 2 or "" in parts:
        raise ValueError(token)
    return Gres(parts[0], parts[1] if len(parts) > 1 else "", count, where)


def tres(text: str, name: str) -> int:
    """How much of a resource a list like cpu=1,mem=5G,gres/gpu=2,gres/gpu:v100=2 has, of all types; 0 where none."""
    counts: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        number = _COUNT.fullmatch(value)
        if number and (key == name or key.startswith(f"{name}:")):
            counts[key] = int(number[1]) * (1024 ** (_UNITS.index(number[2].upper()) + 1) if number[2] else 1)
    return counts.get(name, sum(counts.values()))


def index_list(text: str) -> list[int]:
    """The numbers of '0-2,5'; none of 'N/A'."""
    if not _RANGES.fullmatch(text):
        return []
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def takes_work(state: str) -> bool:
    """Whether Slurm gives a node of that State work, now or when what it does has ended: of scontrol (IDLE+DRAIN,
    MIXED+CLOUD), and of sinfo (idle*, drained~). A state that is not known here is none in which it does."""
    base, *flags = state.upper().split("+")
    marks = base[len(base.rstrip("".join(_MARKS))) :]
    flags += [_MARKS[mark] for mark in marks]
    return base[: len(base) - len(marks)] in _WORKS and set(flags) <= _HARMLESS


def expand_hosts(text: str) -> tuple[str, ...]:
    """Node names of 'gpu[1-2,07],head,rack[1-2]n[1-4]'; () of '(null)'. LeaseError where it is no such list."""
    if text in ("", "(null)"):
        return ()
    found: list[str] = []
    for part in re.split(r",(?![^\[\]]*\])", text):
        names = [""]
        if not re.fullmatch(r"(?:[^\[\]\s,]+|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+", part):
            raise LeaseError(f"Slurm names hosts in a way that cannot be read: {text[:80]!r}")
        for words, ranges in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            names = [name + end for name in names for end in ([words] if words else _numbers(ranges))]
        found += names
    return tuple(found)


def _numbers(ranges: str) -> list[str]:
    """'01-03,7' as Slurm counts: as wide as the first of each range."""
    found: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return found


def epoch(text: str) -> float | None:
    """Seconds since the epoch as Slurm prints them with SLURM_TIME_FORMAT=%s; None of 'Unknown' and 'N/A'."""
    return float(text) if re.fullmatch(r"\d+", text) else None


def duration_s(text: str) -> int | None:
    """Seconds of Slurm's M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None where there is no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        return None
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    if match[1] is None and len(parts) < 3:
        parts.insert(0, 0)  # minutes come first where there are no days
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return int(match[1] or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
