"""What the last run measured at a node: values, bounds and verdicts, each beside what the node's peers have."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import rundir
from toolkit.support.package import Package
from toolkit.support.parts import Part, of_bmc, of_node
from validation.base import bounded
from validation.base.errors import ToolkitError
from validation.measures.hardware.facts import BmcFacts
from validation.model import Judgement
from validation.model.node_facts import NodeFacts
from validation.run.names import RESULTS, RUN
from validation.run.read import Run, read

LOG_BYTES = 1 << 20
"""Of one raw log of a measurement that did not pass, the newest; at most MOST_LOGS of them. Project defaults."""
MOST_LOGS = 100
MOST_PEERS = 64
RESULT_BYTES = 8 << 20


@dataclass(frozen=True)
class Row:
    """A judgement of the node. `peers`: of the same criterion and sort at other nodes, subject -> value or text;
    `ports`: the interfaces of the node that it is about.
    """

    criterion: str
    statement: str
    subject: str
    verdict: str
    reason: str
    value: float | None
    text: str | None
    unit: str
    floor: float | None
    maximum: float | None
    median_of_peers: float | None
    peers: dict[str, float | str | None]
    evidence: tuple[str, ...]
    ports: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether it did not pass, though it was judged or owed."""
        return self.verdict in ("fail", "not-measured")

    @property
    def figure(self) -> str:
        """Its value with its unit, or its text."""
        return f"{self.value:.6g} {self.unit}".rstrip() if self.value is not None else (self.text or "-")

    @property
    def bound(self) -> str:
        """What had to hold, in words."""
        sides = (("at least", self.floor), ("at most", self.maximum))
        return ", ".join(f"{word} {side:.6g} {self.unit}".rstrip() for word, side in sides if side is not None) or "-"

    @property
    def beside(self) -> str:
        """What the peers have, in words."""
        if self.median_of_peers is not None:
            return f"median of {len(self.peers)} peers {self.median_of_peers:.6g} {self.unit}".rstrip()
        return f"{len(self.peers)} peers" if self.peers else "no peer"


@dataclass(frozen=True)
class LastRun:
    """The newest judged run with the node. `skipped`: newer ones that could not be used, and why."""

    run: Run | None
    rows: tuple[Row, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def last_run(runs_dir: Path, node: str) -> LastRun:
    """Of all runs in a folder the newest that measured the node and was judged."""
    skipped: list[tuple[str, str]] = []
    for folder in reversed(rundir.runs(runs_dir)):
        run = read(folder)
        try:
            if not any(one.name == node for one in run.topology.nodes):
                continue
            rows = tuple(_rows(run, node))
            _ = run.results
        except ToolkitError as fault:
            skipped.append((folder.name, str(fault)))
            continue
        return LastRun(run, rows, tuple(skipped))
    return LastRun(None, (), tuple(skipped))


def _at(judgement: Judgement, node: str) -> bool:
    return any(end.node == node for end in judgement.about.ends)


def _rows(run: Run, node: str) -> Iterator[Row]:
    for criterion in run.verdict.criteria:
        every = list(criterion.judgements)
        for mine in every:
            if not _at(mine, node):
                continue
            peers = [one for one in every if one.about.sort == mine.about.sort and not _at(one, node)][:MOST_PEERS]
            values = [one.value for one in peers if one.value is not None]
            bound = mine.bound
            yield Row(
                criterion.id, criterion.statement, mine.subject, mine.verdict, mine.reason, mine.value, mine.text,
                bound.unit if bound else "", bound.floor if bound else None, bound.maximum if bound else None,
                statistics.median(values) if values and mine.value is not None else None,
                {one.subject: one.value if one.value is not None else one.text for one in peers}, mine.evidence,
                tuple(end.port for end in mine.about.ends if end.node == node and end.port),
            )  # fmt: skip


def parts_of(last: LastRun, node: str) -> list[Part]:
    """Parts of the node as the run's facts have them, also those that nobody sees any more."""
    if last.run is None:
        return []
    found: list[Part | None] = []
    for result in last.run.results:
        facts = result.facts_of(NodeFacts)
        if facts is not None and facts.parts is not None and node in result.provenance.nodes:
            found += [_of_host(part.model_dump()) for part in facts.parts.parts]
            found.append(of_node({"kind": "server", "serial": facts.parts.serial}))
        bmcs = result.facts_of(BmcFacts)
        for one in bmcs.nodes if bmcs is not None else ():
            found += [of_bmc(part.model_dump()) for part in one.parts] if one.node == node else []
    named = [part for part in found if part is not None]
    return [Part(**{**vars(part), "seen_by": (f"run {last.run.folder.name}",)}) for part in named]


def _of_host(said: dict[str, Any]) -> Part | None:
    """A part of node facts, where the slot is an interface, a PCI address or a device by its kind."""
    key = {"nic": "interface", "gpu": "pci", "drive": "device"}.get(said["kind"], "slot")
    slot = said["slot"]
    if key == "pci" and len(slot.partition(":")[0]) == 8:
        slot = slot[4:]  # nvidia-smi's domain has eight digits
    return of_node({**said, "slot": "", key: slot})


def pack_run(package: Package, last: LastRun, node: str, runs_dir: Path) -> None:
    """Everything of the run that concerns the node."""
    for name, why in last.skipped:
        package.unread(f"run {name}", why)
    if last.run is None:
        package.unread("run", f"{runs_dir} has no judged run with {node} (--runs-dir names another folder)")
        return
    run, where = last.run, f"run {last.run.folder.name}"
    package.add("run/measurements.txt", table(last), f"{where}: values, bounds, verdicts, peers")
    rows = [vars(row) for row in last.rows]
    package.add("run/measurements.json", json.dumps(rows, indent=2) + "\n", f"{where}: the same for programs")
    package.add(f"run/{RUN}", run.source(RUN).text, f"{where}: when, by which release")
    findings = [one.model_dump(mode="json") for one in run.verdict.findings
                if any(end.node == node for end in one.about.ends)]  # fmt: skip
    package.add("run/findings.json", json.dumps(findings, indent=2) + "\n", f"{where}: findings that name the node")
    mine = {result.measurement for result in run.results if node in result.provenance.nodes}
    lines = [line for line in run.text.splitlines(keepends=True) if _measurement(line) in mine]
    text = b"".join(lines)
    package.add(f"run/{RESULTS}", text[:RESULT_BYTES], f"{where}: results of the node, line by line", total=len(text))
    _pack_logs(package, last, where)


def _measurement(line: bytes) -> str:
    try:
        return str(json.loads(line)["measurement"])
    except (ValueError, KeyError, TypeError):
        return ""


def _pack_logs(package: Package, last: LastRun, where: str) -> None:
    """Raw logs of measurements that did not pass."""
    assert last.run is not None
    wanted = {name for row in last.rows if row.bad for name in row.evidence}
    top, taken = last.run.folder.resolve(), 0
    for result in last.run.results:
        for raw in result.provenance.raw if result.measurement in wanted else ():
            path = top / raw.path
            name = f"run/{raw.path}"
            if taken >= MOST_LOGS:
                package.leave_out(name, f"at most {MOST_LOGS} raw logs are taken; the run has it")
                continue
            if not path.resolve().is_relative_to(top) or path.is_symlink() or not path.is_file():
                package.unread(name, "is no plain file of the run")
                continue
            taken += 1
            try:
                data = bounded.read_file(path, bounded.LOG_BYTES)
            except (OSError, ToolkitError) as fault:
                package.unread(name, str(fault))
                continue
            package.add(name, data[-LOG_BYTES:], f"{where}: raw log of {result.measurement}", total=len(data))


def table(last: LastRun) -> str:
    """All judgements of the node, those that did not pass first."""
    assert last.run is not None
    lines = [f"Measurements of run {last.run.folder.name}: each beside the same of other nodes (peers).", ""]
    for row in sorted(last.rows, key=lambda row: not row.bad):
        lines += row_lines(row)
    return "\n".join(lines) + "\n"


def row_lines(row: Row) -> Sequence[str]:
    """A judgement in words."""
    first = f"{row.verdict.upper():<14}  {row.criterion:<12}  {row.subject}"
    second = f"    {row.figure}   ({row.bound}; {row.beside})"
    return (first, f"    {row.statement}", second, *([f"    {row.reason}"] if row.bad and row.reason else []))
