"""Runs a plan round by round. A node that hangs or dies costs its own measurements and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from validation.base.errors import RunError
from validation.execute.denied import HostWatch
from validation.execute.measure import Taken, take, unforeseen, utc_now
from validation.execute.remote import Launcher
from validation.execute.store import RESULTS, Store
from validation.kinds import KINDS, job_for
from validation.kinds.parsing import place
from validation.model import DENIED, Endpoint, Job, Measurement, Plan, Provenance, Result, Topology
from validation.model.load import read_results


class Progress(Protocol):
    """Told about every change; shows it."""

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        """Before the first measurement; `done` ids are not measured again."""

    def started(self, m: Measurement) -> None:
        """A measurement begins."""

    def finished(self, m: Measurement, result: Result) -> None:
        """A measurement's result is on the disk."""

    def again(self, rounds: Sequence[Sequence[Measurement]]) -> None:
        """These are measured once more, for what is known of them does not decide."""

    def said(self, text: str) -> None:
        """Something the operator should know, one line."""


Again = Callable[[str, Sequence[Result]], Sequence[Sequence[str]]]
"""(suite, all results so far) -> rounds of measurements of it that need another attempt; none when there are none."""


class _Runner:
    def __init__(self, plan: Plan, topology: Topology, launcher: Launcher, store: Store, progress: Progress) -> None:
        self.plan = plan
        self.topology = topology
        self.launcher = launcher
        self.store = store
        self.progress = progress
        self.results: list[Result] = []
        self.dead: dict[str, str] = {}
        self.broken: dict[tuple[str, tuple[Endpoint, ...]], Taken] = {}  # kinds that others need, where they failed
        # Before anything starts: a plan that does not fit must not stop half way.
        self.jobs: dict[str, Job] = {m.id: job_for(m, topology) for m in plan.measurements}

    async def round(self, ids: list[str]) -> None:
        """All measurements of a round at the same time, then a look at the nodes of those that went wrong."""
        measurements = [self.plan.measurement(id_) for id_ in ids]
        tasks = [asyncio.ensure_future(self.one(m)) for m in measurements]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            # Until each has stopped its probes; what they say then is no longer of interest.
            await asyncio.gather(*tasks, return_exceptions=True)
        suspects = {
            node
            for m, result in zip(measurements, results, strict=True)
            if result.status in ("unreachable", "timeout") or KINDS[m.kind].restarts
            for node in m.nodes
            if node not in self.dead
        }
        await self.look_at(sorted(suspects))

    async def look_at(self, nodes: list[str]) -> None:
        """One try to reach each of `nodes` again; those that do not answer are out for the rest of the run."""
        found = await asyncio.gather(*(self.launcher.alive(n) for n in nodes), return_exceptions=True)
        for node, why in zip(nodes, found, strict=True):
            if isinstance(why, Exception):
                why = f"could not be looked at again: {place(why)}"
            if isinstance(why, BaseException):
                raise why
            if why is not None:
                self.dead[node] = why
                self.progress.said(f"{node}: {why}; its remaining measurements are not tried")

    async def one(self, m: Measurement) -> Result:
        gone = [node for node in m.nodes if node in self.dead]
        if KINDS[m.kind].on_controller and len(gone) < len(m.nodes):
            gone = []  # it says of each node by itself whether it was reached
        started, begin = utc_now(), time.monotonic()
        if gone:
            taken = Taken("unreachable", "; ".join(f"{node}: {self.dead[node]}" for node in gone))
        elif (before := self.broken.get((KINDS[m.kind].needs, m.endpoints))) is not None:
            why = f"skipped, because {KINDS[m.kind].needs} failed: {before.error}"
            taken = Taken("failed", why, facts=before.facts, failure=before.failure)
        else:
            self.progress.started(m)
            taken = await self.take(m)
            if taken.failure is not None and taken.failure.code not in KINDS[m.kind].bearable:
                self.broken[m.kind, m.endpoints] = taken
        result = self.record(m, taken, started, time.monotonic() - begin)
        self.progress.finished(m, result)
        return result

    async def take(self, m: Measurement) -> Taken:
        """One measurement. An error that nobody foresaw costs it alone; its traceback is kept with the raw output."""
        host = HostWatch(self.topology)
        try:
            taken = await take(m, self.jobs[m.id], self.launcher)
            taken.denied += host.denied()
            return taken
        except RunError:
            raise
        except Exception as fault:
            words = f"the toolkit could not take this measurement: {place(fault)}; the raw log has the traceback"
            return Taken("failed", words, outputs=[unforeseen(fault)])

    def record(self, m: Measurement, taken: Taken, started: str, took_s: float) -> Result:
        result = record(self.store, self.plan.run, m, taken, started, took_s)
        self.results.append(result)
        return result


def record(store: Store, run: str, m: Measurement, taken: Taken, started: str, took_s: float) -> Result:
    """Keep what became of a measurement: its raw logs, then its result. `took_s`: from `started` on."""
    doc = taken.doc
    # an attempt that came to no end leaves a report, too: without its line one would not know that it was made
    report: dict[str, Any] = {DENIED: [denied.model_dump() for denied in taken.denied]}
    if doc is not None:
        report = {**doc, **report}
    outputs = taken.outputs
    if not outputs or outputs[0][0] not in m.nodes:
        outputs = [(m.nodes[0], "", ""), *outputs]
    logs = store.raw(m.id, outputs, report)  # the report belongs to the first: it measured
    ended = datetime.fromisoformat(started) + timedelta(seconds=took_s)
    result = Result(
        run=run,
        measurement=m.id,
        attempt=store.attempt(m.id),
        status=taken.status,
        error=taken.error,
        samples=taken.samples,
        facts=taken.facts,
        failure=taken.failure,
        denied=taken.denied,
        provenance=Provenance(
            nodes=m.nodes,
            devices=tuple(str(e) for e in m.endpoints),
            tool=doc["tool"] if doc else "",
            tool_version=doc["tool_version"] if doc else "",
            command=tuple(doc["command"]) if doc else (),
            started=started,
            ended=ended.isoformat(timespec="milliseconds"),
            duration_s=doc["duration_s"] if doc else round(took_s, 3),  # the tool's, not ssh's
            raw=logs,
        ),
    )
    store.append(result)
    return result


async def run_plan(
    plan: Plan,
    topology: Topology,
    launcher: Launcher,
    run_dir: Path,
    progress: Progress,
    done: Collection[str] = frozenset(),
    again: Again | None = None,
) -> None:
    """Take every measurement of `plan` that is not in `done`, and write each result as soon as it is there.

    When a suite is through, what `again` asks for is taken once more, until it asks for nothing. The launcher is
    connected already; closing it is the caller's part. RunError when results cannot be written; on cancellation all
    probes are stopped first, and what was finished stays.
    """
    with contextlib.closing(Store(run_dir)) as store:
        runner = _Runner(plan, topology, launcher, store, progress)
        runner.results += read_results(run_dir / RESULTS, plan.run)[0]
        if store.torn:
            progress.said(store.torn)
        progress.planned(plan, done)
        suites = [{plan.measurement(id_).suite for id_ in ids} for ids in plan.rounds]
        for position, ids in enumerate(plan.rounds):
            pending = [id_ for id_ in ids if id_ not in done]
            if pending:
                await runner.round(pending)
            later = {suite for following in suites[position + 1 :] for suite in following}
            for suite in sorted(suites[position] - later):
                await _repeat(runner, suite, again)


async def _repeat(runner: _Runner, suite: str, again: Again | None) -> None:
    while again is not None and (rounds := again(suite, tuple(runner.results))):
        runner.progress.again([[runner.plan.measurement(id_) for id_ in ids] for ids in rounds])
        for ids in rounds:
            await runner.round(list(ids))


__all__ = ["Again", "Progress", "RunError", "run_plan"]
