"""A plan and a state in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from toolkit.inventory import declared
from toolkit.progress import duration
from toolkit.upgrade.declared import RELEASE, place_of
from toolkit.upgrade.plan import NEVER, NodePlan, Plan
from toolkit.upgrade.state import State
from validation.base.counting import number_of


def plan_lines(plan: Plan) -> list[str]:
    """Which node goes where, in which batches, how long it takes, and what does not go back."""
    width = max((len(one.node) for one in plan.nodes), default=0)
    rolled = {name for batch in plan.batches for name in batch}
    lines = [line for one in plan.nodes for line in _node(one, width, one.node in rolled)]
    if not plan.batches:
        return [*lines, f"every node has release {plan.to} already; nothing to do"]
    for number, batch in enumerate(plan.batches, 1):
        lines.append(f"batch {number} of {len(plan.batches)}: {', '.join(batch)}")
    lines.append(_how_long(plan))
    lines += [f"cannot go back: {words}" for words in NEVER] if plan.verb == "upgrade" else []
    return lines


def lost_lines(last: State | None) -> list[str]:
    """Of the upgrade to another release before this one, whose record this one's takes the place of."""
    if last is None:
        return []
    names = ", ".join(sorted({name for batch in last.batches for name in batch.nodes}))
    return [
        f"the upgrade to {last.to} ({last.ended}) of {names} can then not be taken back by rollback any more, only "
        "this one; if you may want that, run toolkit rollback first"
    ]


def _node(one: NodePlan, width: int, rolled: bool) -> Iterator[str]:
    name = one.node.ljust(width)
    if not rolled:
        yield f"{name}  {one.release}: nothing changes"
        return
    if not one.changes:
        yield f"{name}  {one.release} to {one.to}: no version on record changes"
    for change in one.changes:
        reboot = " (reboot)" if change.reboot else ""
        yield f"{name}  {change.part} {change.before} to {change.after}{reboot}"
    for reason in one.waits:
        yield f"{name}  waits for a reboot already: {reason} (reboot)"
    if one.jobs:
        yield f"{name}  is drained first, and waits for: {', '.join(one.jobs)}"
    if one.kept:
        yield f"{name}  was drained before ({one.kept}), and stays so"


def _how_long(plan: Plan) -> str:
    reboots = sum(bool(plan.of(name).reboots) for batch in plan.batches for name in batch)
    what = f"{number_of(reboots, 'node')} to be rebooted"
    if plan.batch_s is None:
        return f"{what}; how long a batch takes is not known: nothing was deployed from here yet"
    whole = duration(plan.batch_s * len(plan.batches))
    return (
        f"{what}; about {duration(plan.batch_s)} a batch and {whole} in all, by {plan.estimated_from}; waiting for "
        "jobs is not counted"
    )


def state_lines(state: State, last: State | None) -> list[str]:
    """Where an upgrade or rollback is, batch by batch. `last`: the finished upgrade that a rollback takes back."""
    lines = [f"{state.verb} to {state.to}, begun {state.began}: {state.where()}"]
    for number, batch in enumerate(state.batches, 1):
        at = {"": "not begun", "done": "done"}.get(batch.step, f"in {batch.step}")
        why = f": {batch.failed}" if batch.failed else ""
        took = f" in {duration(batch.took_s)}" if batch.took_s else ""
        lines.append(f"batch {number} of {len(state.batches)}: {', '.join(batch.nodes)}  {at}{took}{why}")
    return [*lines, *_left_out(state, last)]


def _left_out(state: State, last: State | None) -> list[str]:
    """And what brings them back. A node that a finished upgrade still has goes back by its record, its own versions
    too."""
    by_record = {name for batch in last.batches for name in batch.nodes} if last is not None else set()
    found = []
    for name in state.left_out:
        to = state.of(name).to if state.verb == "upgrade" else state.of(name).release
        how = f"toolkit upgrade --to {to}, with --limit of the head and {name}"
        if state.verb == "rollback" and not state.unfinished and name in by_record:
            how = "toolkit rollback"
        found.append(f"left out: {name}, which stays drained; once it is repaired: {how}")
    return found


def drained(state: State) -> str:
    """Who is drained for the batch at which it stopped; "" where nobody is."""
    found = []
    for batch in state.batches:
        names = [name for name in batch.nodes if state.of(name).pool and not state.of(name).kept]
        if names and batch.step not in ("", "done"):
            stay = "stay" if len(names) > 1 else "stays"
            how = "may still be" if batch.step == "resume" else stay
            found.append(f"{', '.join(names)} {how} drained")
    return "; ".join(found)


def dropped_lines(state: State, done: bool) -> list[str]:
    """Of an upgrade that had changed no node when it was taken back."""
    names = [name for name in state.begun if state.of(name).pool]
    again = "take" if len(names) > 1 else "takes"
    nodes = f"; {', '.join(names)} {again} work again" if names else ""
    what = "is given up" if done else "would be given up"
    return [
        f"the upgrade to {state.to} had changed no node and {what}{nodes}",
        *(f"left out: {name}, which stays drained" for name in state.left_out),
    ]


def taken_back_lines(state: State, last: State | None) -> list[str]:
    """Of a rollback after a rollback. `last`: an upgrade that was finished before."""
    lines = [f"the last upgrade was taken back already, {state.ended}; nothing to do", *_left_out(state, last)]
    if last is not None:
        before = f"the upgrade before it, to {last.to} ({last.ended}), is not taken back"
        lines.append(f"{before}; for that give 'toolkit rollback' once more")
    return lines


def afterwards(state: State, inventory: Path) -> str:
    """What to do after the last batch: the inventory names the release, so that the next deployment keeps it."""
    names = sorted({state.of(name).release for batch in state.batches for name in batch.nodes})
    wanted = [state.to] if state.verb == "upgrade" else names
    host = state.nodes[0].node
    said = declared(inventory, host, RELEASE)
    there = said or "current"
    if wanted == [there] and not (state.verb == "rollback" and any(one.pins for one in state.nodes)):
        return f"next: toolkit validate -i {inventory}"
    place = place_of(inventory, host, said)
    pins = "; the next deployment with today's stacks/ would upgrade it again" if state.verb == "rollback" else ""
    return f"next: write stack_release: {', '.join(wanted)} into {place} (it has {there}){pins}"


def plan_document(plan: Plan) -> dict[str, object]:
    """The answer of --dry-run --json."""
    return {
        "verb": plan.verb,
        "release": plan.to,
        "state": "planned" if plan.batches else "nothing to do",
        "nodes": [{**one.model_dump(mode="json"), "reboots": list(one.reboots)} for one in plan.nodes],
        "batches": [
            {"nodes": list(batch), "step": "", "failed": "", "run": "", "took_s": None} for batch in plan.batches
        ],
        "batch_s": plan.batch_s,
        "estimated_from": plan.estimated_from,
        "cannot_go_back": list(NEVER),
    }


def state_document(state: State, how: str) -> dict[str, object]:
    """The answer of a run, and of --dry-run where one is open; `how`: done, open, stopped or failed."""
    return {
        "verb": state.verb,
        "release": state.to,
        "state": how,
        "nodes": [{**one.model_dump(mode="json"), "reboots": list(one.reboots)} for one in state.nodes],
        "batches": [
            {**batch.model_dump(mode="json"), "took_s": batch.took_s or None} for batch in state.batches
        ],
        "batch_s": None,
        "estimated_from": "",
        "cannot_go_back": list(NEVER),
    }  # fmt: skip
