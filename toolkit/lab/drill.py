"""A drill: faults planted, the lab validated, and counted what was found, localised, named and blamed.

What a validation says comes from its verdict.json alone; this module plants, waits for a command, reads and clears.
Which faults are planted at once: drillplan.py.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab import faults
from toolkit.lab.devices import GPU_COUNT, GPU_PCI
from toolkit.lab.drillplan import AT_PORT, IN_MID_RUN, REFUSED, Turn
from toolkit.lab.gpufaults import GPU_FAULTS
from toolkit.lab.lab import Say
from toolkit.lab.leaf.leaf import CROSSED
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.spec import LabSpec
from toolkit.lab.storagefaults import STORAGE_FAULTS
from toolkit.lab.vmfaults import PORT
from toolkit.rundir import runs
from validation.base.counting import number_of
from validation.model import Finding, VerdictDoc

WORDS = {
    "slow-sending": ("when sending",),
    "slow-receiving": ("when receiving",),
    "wrong-mtu": ("1500",),
    "reboot-waits": ("reboot",),
    "nccl-pinned": ("NCCL_PROTO",),
    "sysctl-drift": ("somaxconn",),
    "pcie-x8": ("x8", "8 of", "lanes"),
    "gpu-missing": ("GPU",),
    "ecc": ("ECC", "uncorrect"),
    "library-empty": ("libnvidia-opencl",),
    "memlock-low": ("lock",),
    "cable-swapped": ("no usable result",),
    "port-closed": ("no usable result",),
    "dead-node": ("no usable result",),
    "duplicate-address": ("has the address of",),
    "flapping-port": ("its link went",),
    "port-down": ("is down", "lowerlayerdown"),
    "noisy-neighbour": ("busy",),
    "dns-dead": ("name servers",),
    "wrong-clock": ("its clock is",),
    "wrong-time-zone": ("time zone",),
    "disk-full": ("is full",),
    "few-files": ("open files",),
    "names-wrong": ("not as in the inventory",),
    "clock-free": ("does not run", "chrony"),
    "docker-stopped": ("docker does not run",),
    "unit-failed": ("failed: elastic-ai",),
    "psu-not-redundant": ("power supply",),
    "bios-differs": ("SysProfile",),
    "bmc-event": ("memory error",),
    "dimm-other": ("D9999999",),
    "ipmi-on": ("IPMI",),
    CROSSED: ("should be",),
    **{kind: (fault.words,) for kind, fault in LEAF_FAULTS.items()},
    **{kind: (fault.words,) for kind, fault in STORAGE_FAULTS.items()},
}
"""Words of which one must stand in the finding that names the cause. Of others the criterion is the cause's name."""

TOLD = {"slow-gpu": "tr.uniform", "storage-hangs": "st.read"}
"""Faults that nothing judges: rates of emulated GPUs, and what does not answer, which is not measured. Found where the
criterion's own words name them."""


@dataclass(frozen=True)
class Drilled:
    """What came of one fault, or (`kind` "") of a clean turn.

    `blamed`: subjects that were named there and have no fault, told with the first fault of a turn; of a fault that
    runs into several parts the cluster is no false alarm, but is not localised either. `turn`: the run, which several
    faults share; `seconds`: how long it took, planting included; `load`: this machine's 1-minute load at its end.
    """

    kind: str
    node: str
    found: bool
    localised: bool
    cause: bool
    blamed: tuple[str, ...]
    said: str
    seconds: float
    trouble: str = ""  # why there is no verdict, "" where there is one
    turn: str = ""
    told: bool = False  # found by words alone: of emulated GPUs no rate is judged
    load: float = 0.0
    refused: bool = False  # found by a validation that refused to begin, and named the node and why
    blamed_for: str = ""  # what was said of those who were blamed


class Refused(LabError):
    """A validation that refused to begin. `lines`: all that it said."""

    def __init__(self, words: str, lines: Sequence[str]) -> None:
        """`words`: of the error where no fault of the turn explains it."""
        super().__init__(words)
        self.lines = tuple(line.strip() for line in lines)


def refused(spec: LabSpec, turn: Turn, fault: Refused, seconds: float) -> list[Drilled]:
    """What a refusal says of a turn's faults: of those that a validation refuses, whether it names the node and the
    cause, and whom else; of others nothing, which is their trouble.
    """
    said = {node.name: line for line in fault.lines for node in spec.nodes if line.startswith(f"{node.name}: ")}
    sick = {node.name for _, node in turn.planted}
    blamed = tuple(name for name in said if name not in sick)
    done = []
    for kind, node in turn.planted:
        line = said.get(node.name, "")
        if kind not in REFUSED or not line:
            done.append(Drilled(kind, node.name, False, False, False, (), "", seconds, str(fault), turn.name))
            continue
        words, cause = f"refused: {line}", REFUSED[kind] in line
        done.append(Drilled(kind, node.name, True, cause, cause, blamed, words, seconds, turn=turn.name, refused=True,
                            blamed_for="; ".join(said[name] for name in blamed)))  # fmt: skip
    return done


def weighed(turn: Turn, verdict: VerdictDoc, seconds: float, mates: Collection[str] = ()) -> list[Drilled]:
    """What a verdict says of each planted fault; of a turn without any, one entry. mates: nodes that a fault of another
    node is a fault of, too."""
    sick = {node.name for _, node in turn.planted} | {*mates}
    against = [f for f in verdict.findings if not (_nodes(f) & sick) and (f.about.ends or not turn.planted)]
    blamed, why = tuple(f.subject for f in against), "; ".join(f"{f.subject}: {f.text}" for f in against)
    if not turn.planted:
        words = _said(verdict.findings)
        return [Drilled("", "", False, False, False, blamed, words, seconds, turn=turn.name, blamed_for=why)]
    done = []
    for number, (kind, node) in enumerate(turn.planted):
        mine = [f for f in verdict.findings if node.name in _nodes(f)]
        others = blamed if number == 0 else ()  # told once
        one = _weighed(kind, node.name, mine, verdict, others, seconds, turn.name)
        done.append(replace(one, blamed_for=why) if others else one)
    return done


def _weighed(
    kind: str,
    node: str,
    mine: Sequence[Finding],
    verdict: VerdictDoc,
    blamed: tuple[str, ...],
    seconds: float,
    turn: str,
) -> Drilled:
    wanted = set(faults.FAULTS[kind].found_by)
    if kind in TOLD:
        said = [why for why in _judged(verdict, {TOLD[kind]}, node, ("not-measured", "fail")) if _names(kind, why)]
        fine = bool(said)
        return Drilled(kind, node, fine, fine, fine, blamed, "; ".join(said[:1]), seconds, turn=turn, told=True)
    failed = list(_judged(verdict, wanted, node, ("fail",)))
    of_gpu = kind in GPU_FAULTS
    words = WORDS.get(kind, ())
    exact = [f for f in mine if _exact(f, node, kind) and (not of_gpu or _names_gpu(f"{f.text} {f.cause}"))]
    cause = any(
        (not wanted or wanted & set(f.criteria)) and (not words or any(w in f"{f.text} {f.cause}" for w in words))
        for f in mine
    )
    told = _said(mine) or (failed[0] if failed else verdict.headline)
    return Drilled(kind, node, bool(mine or failed), bool(exact), cause, blamed, told, seconds, turn=turn)


def _said(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{f.kind} {f.subject}: {', '.join(f.criteria)}" for f in findings)


def _judged(verdict: VerdictDoc, wanted: set[str], node: str, verdicts: Sequence[str]) -> Iterator[str]:
    """Reasons of the judgements by these criteria that name a node: by their subject, or in their words."""
    for criterion in verdict.criteria:
        for one in criterion.judgements if criterion.id in wanted else ():
            named = node in {end.node for end in one.about.ends} or re.search(rf"\b{re.escape(node)}\b", one.reason)
            if one.verdict in verdicts and named:
                yield one.reason


def _names(kind: str, text: str) -> bool:
    """Whether a text names the part of a fault of GPUs, and of others what it is."""
    return _names_gpu(text) if kind in GPU_FAULTS else any(word in text for word in WORDS[kind])


def _names_gpu(words: str) -> bool:
    """The GPU that faults are planted on, the last: by its number, by how many are left, or by its PCI address."""
    last = GPU_COUNT - 1
    words = words.lower()
    return any(
        word.lower() in words for word in (f"GPU {last}", f"{last} of {GPU_COUNT} GPUs", f"{GPU_PCI[last]}:00.0")
    )


def _nodes(finding: Finding) -> set[str]:
    return {end.node for end in finding.about.ends}


def _exact(finding: Finding, node: str, kind: str) -> bool:
    """It names the very part: of a port's fault the port or, where its node has no other, the node."""
    ends = finding.about.ends
    if finding.about.kind not in ("node", "port") or len(ends) != 1 or ends[0].node != node:
        return False
    return kind not in AT_PORT or ends[0].port in ("", PORT)


Validate = Callable[[Turn, Callable[[], None] | None], VerdictDoc]
"""Makes a run of a turn and reads its verdict, LabError where there is none; the second is called when the first
results are there."""


def drill(
    spec: LabSpec,
    chosen: Sequence[Turn],
    validate: Validate,
    say: Say,
    keep: Callable[[list[Drilled]], None] = lambda done: None,
) -> list[Drilled]:
    """All turns in their order. Every fault is cleared, whatever happens meanwhile; `keep` gets each turn's outcome as
    soon as it is known.
    """
    done: list[Drilled] = []
    begun = time.monotonic()
    for number, turn in enumerate(chosen, 1):
        took = time.monotonic() - begun
        left = f", about {took / (number - 1) * (len(chosen) - number + 1) / 60:.0f} min left" if number > 1 else ""
        say(f"[{number} of {len(chosen)}, {took / 60:.0f} min{left}] {turn.words}: {', '.join(turn.suites)}")
        mine = _one(spec, turn, validate, say)
        done += mine
        keep(mine)
        for one in mine:
            say("  " + told(one))
    return done


def _one(spec: LabSpec, turn: Turn, validate: Validate, say: Say) -> list[Drilled]:
    started = time.monotonic()
    troubles: dict[str, str] = {}
    planted: list[str] = []

    def plant(mid_run: bool) -> None:
        for kind, node in turn.planted:
            if (kind in IN_MID_RUN) is mid_run:
                planted.append(node.name)
                try:
                    faults.plant(spec.name, node.name, kind, say)
                except LabError as error:
                    planted.pop()
                    troubles[kind] = f"it could not be planted: {error}"

    try:
        plant(False)
        later = any(kind in IN_MID_RUN for kind, _ in turn.planted)
        left = tuple((kind, node) for kind, node in turn.planted if kind not in troubles)
        try:
            if turn.planted and not left:
                found = []
            else:
                verdict = validate(turn, (lambda: plant(True)) if later else None)
                mates = [spec.after(node).name for kind, node in left if kind == CROSSED]
                found = weighed(Turn(turn.name, left, turn.suites), verdict, time.monotonic() - started, mates)
        except Refused as error:
            found = refused(spec, Turn(turn.name, left, turn.suites), error, time.monotonic() - started)
        except LabError as error:
            found, why = [], str(error)
            took = time.monotonic() - started
            for kind, node in [(k, n.name) for k, n in left] or [("", "")]:
                found.append(Drilled(kind, node, False, False, False, (), "", took, why, turn.name))
        load = os.getloadavg()[0]
    finally:
        _clear(spec, planted, say)
    for kind, node_spec in turn.planted:
        if kind in troubles:
            found.append(Drilled(kind, node_spec.name, False, False, False, (), "", 0.0, troubles[kind], turn.name))
    return [replace(one, load=round(load, 1)) for one in found]


def _clear(spec: LabSpec, names: Sequence[str], say: Say) -> None:
    """All of them, also where one of them cannot be; LabError with what is left."""
    left = []
    for name in names:
        try:
            faults.clear(spec.name, name, say)
        except LabError as error:
            left.append(f"{name}: {error}")
    if left:
        raise LabError(f"not cleared: {'; '.join(left)}; toolkit lab fault clear, or lab down")


def told(one: Drilled) -> str:
    """A line of the table."""
    what = f"{one.kind} on {one.node}" if one.kind else one.turn or "clean"
    if one.trouble:
        return f"{what:32} no verdict: {one.trouble}"
    who = one.blamed_for or ", ".join(one.blamed)
    if not one.kind:
        said = f" ({one.said})" if one.blamed else ""
        return f"{what:32} {'no alarm' if not one.blamed else 'false alarm: ' + who}{said}"
    parts = [word if fine else f"not {word}" for word, fine in
             (("found", one.found), ("localised", one.localised), ("cause named", one.cause))]  # fmt: skip
    return f"{what:32} {', '.join(parts)}{'; also blamed: ' + who if one.blamed else ''} ({one.said})"


def summary(done: Sequence[Drilled]) -> str:
    """Found, localised, named and false alarms, counted."""
    planted, clean = [d for d in done if d.kind and not d.trouble], [d for d in done if not d.kind and not d.trouble]
    of = len(planted)
    seconds = {d.turn or d.kind: d.seconds for d in done if not d.trouble}
    alarmed = {d.turn or d.kind for d in planted if d.blamed}
    turns = {d.turn or d.kind for d in planted}
    words = (
        f"{sum(d.found for d in planted)} of {of} found, {sum(d.localised for d in planted)} localised, "
        f"{sum(d.cause for d in planted)} with their cause; {len(alarmed)} of "
        f"{number_of(len(turns), 'run')} with faults and "
        f"{sum(bool(d.blamed) for d in clean)} of {len(clean)} clean ones with a false alarm"
    )
    unjudged = sum(bool(d.trouble) for d in done)
    if unjudged:
        words += f"; {unjudged} without a verdict"
    return words + (f"; {statistics.median(seconds.values()):.0f} s a run" if seconds else "")


def passed(done: Sequence[Drilled]) -> bool:
    """All found, nobody blamed who has no fault, and a verdict of each run."""
    return all((d.found or not d.kind) and not d.blamed and not d.trouble for d in done)


def newest(folder: Path) -> VerdictDoc:
    """The verdict of the newest run in a folder; LabError where there is none."""
    found = runs(folder)
    if not found:
        raise LabError(f"{folder}: no run")
    try:
        return VerdictDoc.model_validate_json((found[-1] / "verdict.json").read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{found[-1]}: no verdict: {error}") from None


def table(done: Sequence[Drilled], left_out: Mapping[str, str]) -> str:
    """The outcome as a table in Markdown, and what was not planted, with why."""

    def yes(fine: bool, one: Drilled) -> str:
        how = ", in words" if one.told else ", refused" if one.refused else ""
        return "-" if one.trouble else f"yes{how}" if fine else "**no**"

    rows = ["| run | fault | node | found | the very part | cause named | others blamed | s | load |"]
    rows.append("|---" * 9 + "|")
    for one in done:
        name = f"`{one.kind}`" if one.kind else "none"
        marks = [yes(one.found, one), yes(one.localised, one), yes(one.cause, one)] if one.kind else ["", "", ""]
        who = one.trouble or ", ".join(one.blamed) or "nobody"
        took = f"{one.seconds:.0f} | {one.load:g}"
        rows.append(f"| {one.turn} | {name} | {one.node} | {' | '.join(marks)} | {who} | {took} |")
    rows += ["", summary(done)]
    if left_out:
        rows += ["", "Not planted: " + "; ".join(f"`{kind}` ({why})" for kind, why in sorted(left_out.items()))]
    return "\n".join(rows) + "\n"
