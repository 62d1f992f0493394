"""A drill: each fault planted in turn, the lab validated, and counted what was found, localised, named and blamed.

What a validation says comes from its verdict.json alone; this module plants, waits for a command, reads and clears.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab import faults
from toolkit.lab.lab import Say
from toolkit.lab.spec import LabSpec, NodeSpec
from toolkit.lab.vmfaults import PORT
from toolkit.rundir import runs
from validation.model import Finding, VerdictDoc

SHORT = (
    "slow-link",
    "slow-sending",
    "wrong-mtu",
    "cable-swapped",
    "nccl-pinned",
    "sysctl-drift",
    "reboot-waits",
    "pcie-x8",
    "ecc",
    "library-empty",
)
"""The short drill: of each sort some that a container can have."""

AT_PORT = frozenset(
    {
        "slow-link",
        "slow-sending",
        "slow-receiving",
        "cable-swapped",
        "duplicate-address",
        "lossy-link",
        "port-closed",
        "flapping-port",
        "wrong-mtu",
        "port-down",
        "rxe-missing",
        "rocev1-gid",
        "firewall-4791",
        "dscp-unset",
    }
)
"""Faults whose very part is the node's fabric port; the others' is the node: a GPU stands in the finding's words."""

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
}
"""Words of which one must stand in the finding that names the cause. Of others the criterion is the cause's name."""


@dataclass(frozen=True)
class Drilled:
    """What came of one run. `kind` "" is a clean one. `blamed`: subjects that were named and have no fault; of a fault
    that runs into several parts the cluster is no false alarm, but is not localised either.
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


def suitable(spec: LabSpec, kinds: Iterable[str]) -> list[tuple[str, NodeSpec]]:
    """Each fault with a node that can have it, the last one of the GPU servers first; others are left out."""
    chosen = []
    by_preference = sorted(spec.nodes, key=lambda n: (n.group != "gpu_servers", -n.number))
    for kind in kinds:
        for node in by_preference:
            try:
                faults.check(spec, node, kind)
            except LabError:
                continue
            chosen.append((kind, node))
            break
    return chosen


def weighed(kind: str, node: str, verdict: VerdictDoc, seconds: float) -> Drilled:
    """What a verdict says of a planted fault; of none where `kind` is ""."""
    mine = [f for f in verdict.findings if node and node in _nodes(f)]
    blamed = tuple(f.subject for f in verdict.findings if f not in mine and (f.about.ends or not kind))
    exact = [f for f in mine if _exact(f, node, kind)]
    wanted = set(faults.FAULTS[kind].found_by) if kind else set()
    criteria = {c.id for c in verdict.criteria if c.verdict == "fail"} | {
        c for f in verdict.findings for c in f.criteria
    }
    found = bool(mine) or bool(wanted & criteria)
    words = WORDS.get(kind, ())
    cause = any(
        (not wanted or wanted & set(f.criteria)) and (not words or any(w in f"{f.text} {f.cause}" for w in words))
        for f in mine
    )
    said = "; ".join(f"{f.kind} {f.subject}: {', '.join(f.criteria)}" for f in verdict.findings) or verdict.headline
    return Drilled(kind, node, found and bool(kind), bool(exact), bool(kind) and cause, blamed, said, seconds)


def _nodes(finding: Finding) -> set[str]:
    return {end.node for end in finding.about.ends}


def _exact(finding: Finding, node: str, kind: str) -> bool:
    """It names the very part: of a port's fault the port or, where its node has no other, the node."""
    ends = finding.about.ends
    if finding.about.kind not in ("node", "port") or len(ends) != 1 or ends[0].node != node:
        return False
    return kind not in AT_PORT or ends[0].port in ("", PORT)


Validate = Callable[[str], VerdictDoc]


def drill(
    spec: LabSpec, chosen: Sequence[tuple[str, NodeSpec]], clean: int, validate: Validate, say: Say
) -> list[Drilled]:
    """First `clean` runs without a fault, then one for each fault. Every fault is cleared, whatever happens meanwhile.

    `validate` makes a run, named by what it is for, and reads its verdict; LabError where there is none.
    """
    done = []
    for number in range(clean):
        done.append(_one(f"clean-{number + 1}", "", "", validate))
        say(told(done[-1]))
    for kind, node in chosen:
        faults.plant(spec.name, node.name, kind, say)
        try:
            done.append(_one(f"{kind}-{node.name}", kind, node.name, validate))
        finally:
            faults.clear(spec.name, node.name, say)
        say(told(done[-1]))
    return done


def _one(name: str, kind: str, node: str, validate: Validate) -> Drilled:
    started = time.monotonic()
    try:
        verdict = validate(name)
    except LabError as error:
        return Drilled(kind, node, False, False, False, (), "", time.monotonic() - started, str(error))
    return weighed(kind, node, verdict, time.monotonic() - started)


def told(one: Drilled) -> str:
    """A line of the table."""
    what = f"{one.kind} on {one.node}" if one.kind else "clean"
    if one.trouble:
        return f"{what:32} no verdict: {one.trouble}"
    if not one.kind:
        return f"{what:32} {'no alarm' if not one.blamed else 'false alarm: ' + ', '.join(one.blamed)}"
    parts = [word if fine else f"not {word}" for word, fine in
             (("found", one.found), ("localised", one.localised), ("cause named", one.cause))]  # fmt: skip
    return f"{what:32} {', '.join(parts)}{'; also blamed: ' + ', '.join(one.blamed) if one.blamed else ''} ({one.said})"


def summary(done: Sequence[Drilled]) -> str:
    """Found, localised, named and false alarms, counted."""
    planted, clean = [d for d in done if d.kind], [d for d in done if not d.kind]
    of = len(planted)
    alarms = sum(bool(d.blamed) for d in done)
    unjudged = sum(bool(d.trouble) for d in done)
    words = (
        f"{sum(d.found for d in planted)} of {of} found, {sum(d.localised for d in planted)} localised, "
        f"{sum(d.cause for d in planted)} with their cause; {alarms} of {len(done)} runs with a false alarm"
        f" ({sum(bool(d.blamed) for d in clean)} of {len(clean)} clean ones)"
    )
    if unjudged:
        words += f"; {unjudged} without a verdict"
    return words + (f"; {statistics.median(d.seconds for d in done):.0f} s a run" if done else "")


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
