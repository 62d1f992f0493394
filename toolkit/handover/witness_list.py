"""A list of witnessed tests, one after the other: each result is in the run before the next test begins."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit import acceptance, rundir
from toolkit.errors import UsageFault
from toolkit.handover.witness_state import Kept, State
from toolkit.handover.witnessing import BrokenOff, Leading, Talk, Watching, told
from validation.base.counting import number_of
from validation.execute.measure import read
from validation.execute.remote import Output
from validation.execute.scheduler import record
from validation.execute.store import Store
from validation.model import Measurement, Plan
from validation.probes import ProbeDoc


@dataclass(frozen=True)
class Listed:
    """What came of it: how many tests have a result, and of which the list was broken off ("" where it was not)."""

    measured: int
    left: int
    broken: str = ""


def tests_of(plan: Plan) -> list[Measurement]:
    """The witnessed tests of a run, in their order."""
    return [m for m in plan.measurements if m.kind == "witness"]


def lead_list(run_dir: Path, talk: Talk, watching: Watching) -> Listed:
    """Go on with the list where it was; the caller holds the run's lock."""
    _, _, plan = rundir.asked(run_dir)
    every, kept = tests_of(plan), Kept(run_dir)
    if not every:
        raise UsageFault(
            f"{run_dir}: has no witnessed tests; make a run with them: toolkit handover witness -i INVENTORY"
        )
    done = acceptance.finished(run_dir)
    state = kept.state
    if state.test and state.test not in (names := [str(m.params["test"]) for m in every]):
        words = f"{kept.folder}: is at test {state.test!r}, and the run has {', '.join(names)}"
        raise UsageFault(f"{words}; to begin this list again: rm -r {kept.folder}")
    left = [m for m in every if m.id not in done and str(m.params["test"]) not in state.skipped]
    talk.say(
        f"{number_of(len(every), 'test')}, {len(every) - len(left)} behind us; Ctrl-C breaks off, and it goes on there"
    )
    if left and not state.witness:
        state = _named(kept, state, talk)
    for m in left:
        leading = Leading(m, every.index(m) + 1, len(every), kept, talk, watching)
        try:
            doc = leading.lead()
        except (BrokenOff, KeyboardInterrupt):
            _take(run_dir, plan, m, leading.broken_off())
            return Listed(_count(run_dir, every), len(left), str(m.params["test"]))
        _take(run_dir, plan, m, doc)
        for line in [] if doc["error"] else told(doc["stdout"], m.params):
            talk.say(line)
        _passed(kept, str(m.params["test"]), doc["error"])
    kept.clear()
    measured = _count(run_dir, every)
    return Listed(measured, len(every) - measured)


def _named(kept: Kept, state: State, talk: Talk) -> State:
    try:
        name = " ".join(talk.ask("Who is the witness (name, firm)? ").split())[:120]
    except EOFError:
        name = ""
    if not name:
        again = f"toolkit handover witness {kept.folder.parent}"
        raise UsageFault(f"nobody said who the witness is; a test needs a name; go on with: {again}")
    state = state.model_copy(update={"witness": name})
    kept.write(state)
    return state


def _passed(kept: Kept, test: str, error: str | None) -> None:
    state = kept.state
    skipped = {**state.skipped, test: error} if error else state.skipped
    kept.write(state.model_copy(update={"test": "", "step": 1, "times": {}, "skipped": skipped}))


def _count(run_dir: Path, every: Sequence[Measurement]) -> int:
    done = acceptance.finished(run_dir)
    return sum(m.id in done for m in every)


def _take(run_dir: Path, plan: Plan, m: Measurement, doc: ProbeDoc) -> None:
    """A test's document becomes a result of the run, read as that of every probe. Its time is that of the test."""
    taken = read(m, m.nodes[0], Output(0 if doc["error"] is None else 1, json.dumps(doc).encode(), b""))
    with contextlib.closing(Store(run_dir)) as store:
        record(store, plan.run, m, taken, doc["started"], doc["duration_s"])
