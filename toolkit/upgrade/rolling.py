"""Batch by batch: drained, deployed with one reboot, validated, back to work; stops at the first bad batch."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.deploy.site_state import SiteBusy, SiteUnkept
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.inventory import read_site
from toolkit.node import checks, playbooks
from toolkit.node.drain import UpgradeDrain, drained_by_somebody, drained_by_upgrade
from toolkit.node.head import Head
from toolkit.node.leave import wait_empty
from toolkit.progress import duration
from toolkit.upgrade import held
from toolkit.upgrade.deploying import wanted, when_free
from toolkit.upgrade.plan import NodePlan, Plan, Verb
from toolkit.upgrade.planning import plan_rollback, plan_upgrade
from toolkit.upgrade.state import STEPS, Batch, Kept, State, Step, Unkept, now
from validation.base.errors import DiskError, ToolkitError

SERVES_WITHIN_S = 120.0
Say = Callable[[str], None]
_THIS_MACHINE = (Unkept, SiteBusy, SiteUnkept, DiskError)
"""What stops a batch and says nothing of its nodes."""


@dataclass(frozen=True)
class Asked:
    """What `toolkit upgrade` and `toolkit rollback` were asked. `to` is "" for a rollback; `accepted` None: the newest
    accepted run; `grace_s` None: leases and jobs are waited for; `budget_s` None: no end; `without`: nodes to be left
    out of what is open."""

    verb: Verb
    to: str
    inventory: Path
    limit: str | None
    runs_dir: Path
    accepted: str | None
    grace_s: int | None
    budget_s: int | None
    without: tuple[str, ...] = ()


class BadBatch(ToolkitError):
    """A batch that does not hold what it should; its nodes stay drained."""


class Halted(ToolkitError):
    """This machine stopped a batch, which is no worse for it; the same command goes on there."""


class Rolling:
    """One upgrade or rollback of one site."""

    def __init__(self, asked: Asked, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """Everything that needs no node is refused here."""
        self.asked, self.say, self.clock = asked, say, clock
        self.site = read_site(asked.inventory)
        checks.refuse_joined(self.site.topology, asked.inventory)
        self.head = Head(self.site.topology)
        self.kept = Kept(asked.inventory)
        self._waited_s = 0.0  # in the present batch, for jobs and for another deployment

    def open(self) -> State | None:
        """The state with which this command goes on; None where it is a new one. UsageFault while another is open."""
        found, asked = self.kept.read_open(), self.asked
        if found is None and asked.without:
            raise UsageFault(
                "--without: no upgrade or rollback of this site is open; of a new one nodes are left out by --limit "
                f"'all:!{asked.without[0]}'"
            )
        if found is None or found.verb != asked.verb:  # each takes the other's place
            return None
        if asked.verb == "upgrade" and found.to != asked.to:
            raise UsageFault(
                f"an upgrade to {found.to} is not finished: {found.where()}; finish it first: toolkit upgrade --to "
                f"{found.to} -i {asked.inventory}, or take it back: toolkit rollback -i {asked.inventory}"
            )
        if asked.limit and asked.limit != found.limit:
            own = f"with --limit {found.limit}, or without" if found.limit else "without --limit"
            raise UsageFault(
                f"--limit: the {found.verb} of {found.began} is not finished and has its own nodes ({found.where()}); "
                f"run the same command {own} to continue"
            )
        return self._left(found)

    def _left(self, found: State) -> State:
        """Without the nodes that are to be left out from now on. UsageFault for those that cannot be."""
        names = [name for name in dict.fromkeys(self.asked.without) if name not in found.left_out]
        there = [name for batch in found.batches for name in batch.nodes]
        done = [name for batch in found.batches if batch.step == "done" for name in batch.nodes]
        for name in names:
            if name == self.head.node.name:
                raise UsageFault(f"--without {name}: that is the head, and every batch is deployed together with it")
            if name not in there:
                raise UsageFault(f"--without {name}: no node of the {found.verb} to {found.to} ({', '.join(there)})")
            if name in done and found.verb == self.asked.verb:
                raise UsageFault(f"--without {name}: its batch is done already; it holds nothing up")
        return found.without(names)

    def leave_out(self, state: State) -> State:
        """The nodes that were left out get no work, and the state is written without them."""
        names = [name for name in state.left_out if name in self.asked.without]
        state = self._looked(state, names)
        for name in names:
            if state.of(name).pool and not state.of(name).kept:
                self.head.drain(checks.short(name), UpgradeDrain(state.verb, "left out"))
        return self.kept.write(state)

    def untouched(self) -> State | None:
        """The open upgrade that a rollback needs only drop, since it has changed no node; None for any other."""
        found = self.kept.read_open()
        if self.asked.verb != "rollback" or found is None or found.verb != "upgrade":
            return None
        found = self.source()
        return None if found.touched else found

    def drop(self, state: State) -> None:
        """Nodes that it had drained work again, and nothing is open."""
        self._give_back(self.leave_out(state), ())
        self.kept.drop()

    def replaced(self) -> State | None:
        """The open rollback whose place this upgrade takes."""
        found = self.kept.read_open()
        if self.asked.verb != "upgrade" or found is None or found.verb != "rollback":
            return None
        if self.asked.limit:
            raise UsageFault(
                f"--limit: a rollback is not finished ({found.where()}), whose place this takes on all nodes; run it "
                "without --limit, or finish the rollback first"
            )
        return self._left(found)

    def taken_back(self) -> State | None:
        """The finished rollback that a rollback would only repeat; None for anything else. Where that took back an
        unfinished upgrade, the same command may be one that lost its power at the very end, so the upgrade before it is
        not touched."""
        if self.asked.verb != "rollback" or self.kept.read_open() is not None:
            return None
        back = self.kept.read_back()
        return back if self.kept.read_last() is None or (back is not None and back.unfinished) else None

    def source(self) -> State:
        """The upgrade that a rollback takes back: the open one, else the last that was finished."""
        open_, last = self.kept.read_open(), self.kept.read_last()
        found = open_ or last
        if found is None:
            raise UsageFault(
                f"no upgrade of {self.asked.inventory} is on this machine's record, so nobody knows what to go back to"
            )
        if open_ is not None and self.asked.limit:
            raise UsageFault("--limit: that upgrade is not finished; take all of it back, or finish it first")
        return self._left(found)

    def plan(self) -> Plan:
        """What would be done; nothing is changed."""
        asked, topology = self.asked, self.site.topology
        if asked.verb == "upgrade":
            back = self.replaced()
            without = "".join(f":!{name}" for name in back.left_out) if back is not None else ""
            limit = f"all{without}" if without else asked.limit
            also = back.touched if back is not None else self._half()
            return plan_upgrade(asked.inventory, topology, asked.to, limit, self.head, also)
        return plan_rollback(asked.inventory, topology, self.source(), asked.limit, self.head)

    def _half(self) -> tuple[str, ...]:
        """Nodes that were left out of what was finished last: they are drained, and their record may be wrong."""
        return tuple(
            name for state in (self.kept.read_last(), self.kept.read_back()) if state is not None
            for name in state.left_out
        )  # fmt: skip

    def lost(self, plan: Plan) -> State | None:
        """The finished upgrade that no rollback can take back once this one is finished."""
        last = self.kept.read_last()
        return last if plan.verb == "upgrade" and plan.batches and last is not None and last.to != plan.to else None

    def begin(self, plan: Plan) -> State:
        """The state of a plan, written before anything is drained."""
        nodes, done = plan.nodes, tuple[Batch, ...]()
        taken = [name for batch in plan.batches for name in batch]
        before = self.source() if plan.verb == "rollback" else self.replaced()
        left_out = before.left_out if before is not None else ()
        if before is not None:
            nodes = _before(plan, before)
            if plan.verb == "upgrade":
                done = self._done_before(plan, before)
            self._give_back(before, taken)
        batches = tuple(Batch(nodes=batch) for batch in plan.batches)
        state = State(
            verb=plan.verb, to=plan.to, began=now(), nodes=nodes, batches=(*done, *batches), left_out=left_out,
            unfinished=plan.verb == "rollback" and self.kept.read_open() is not None, limit=self.asked.limit or "",
            back=before.unmoved if plan.verb == "rollback" and before is not None else (),
        )  # fmt: skip
        return self.leave_out(state)

    def _done_before(self, plan: Plan, back: State) -> tuple[Batch, ...]:
        """Nodes of the upgrade that a rollback which is replaced has not come to: they have that release, and a later
        rollback takes them back too."""
        last = self.kept.read_last()
        batches = [*back.batches, *(last.batches if last is not None else ())]
        names = {name for batch in batches for name in batch.nodes} - {name for batch in plan.batches for name in batch}
        names &= {one.node for one in back.nodes}
        there = tuple(one.node for one in plan.nodes if one.node in names and one.release == plan.to)
        return (Batch(nodes=there, step="done"),) if there else ()

    def _give_back(self, before: State, taken: Sequence[str]) -> None:
        """Nodes that the upgrade had drained and not changed yet work again."""
        if not (idle := [name for name in before.begun if name not in taken and before.of(name).pool]):
            return
        pool = self.head.nodes()
        for name in idle:
            there = pool.get(checks.short(name))
            if there is not None and not there.serves and drained_by_upgrade(there.reason):
                self.head.resume(checks.short(name))
                self.say(f"{name} was drained and not changed; it takes work again")

    def accepted(self) -> Path:
        """The run that each batch is held against. UsageFault where there is none."""
        return checks.accepted_run(self.asked.runs_dir, self.asked.accepted, self.site.topology, "the upgrade")

    def go(self, state: State) -> tuple[State, Exit]:
        """All batches that are not done; the state and with what the command ends. Halted where it was not the batch
        that failed: its nodes stay drained."""
        try:
            return self._go(state)
        except _THIS_MACHINE as fault:
            raise Halted(str(fault), Exit.INCOMPLETE) from fault
        except OSError as fault:
            where = f"{fault.filename}: " if fault.filename else ""
            raise Halted(
                f"{where}{fault.strerror or fault}; put that right on this machine and give the same command again",
                Exit.INCOMPLETE,
            ) from fault

    def _go(self, state: State) -> tuple[State, Exit]:
        began, accepted = self.clock(), self.accepted()
        for index in range(len(state.batches)):
            if state.batches[index].step == "done":
                continue
            spent = self.clock() - began
            if self.asked.budget_s is not None and spent >= self.asked.budget_s:
                self.say(f"the budget of {duration(self.asked.budget_s)} is used up; {state.where()}")
                return state, Exit.INCOMPLETE
            at, self._waited_s = self.clock(), 0.0
            try:
                state = self._batch(state, index, accepted)
            except _THIS_MACHINE:
                raise
            except ToolkitError as fault:
                return self._bad(self.kept.read_open() or state, index, str(fault)), Exit.FAILED
            took_s = self.clock() - at - self._waited_s
            done = state.batches[index].model_copy(update={"step": "done", "took_s": round(took_s, 1)})
            state = self.kept.write(state.with_batch(index, done))
            self.say(f"batch {index + 1} of {len(state.batches)} is done: {', '.join(done.nodes)}")
        self.kept.finish(state)
        return state, Exit.OK

    def _batch(self, state: State, index: int, accepted: Path) -> State:
        first = state.batches[index].step or STEPS[0]
        if first in ("deploy", "validate"):  # of an earlier call: somebody may have resumed a node meanwhile
            state = self._drain(state, state.batches[index])
        for step in STEPS[STEPS.index(first) :]:
            batch = state.batches[index].model_copy(update={"step": step, "failed": ""})
            state = self.kept.write(state.with_batch(index, batch))
            self.say(f"batch {index + 1} of {len(state.batches)} ({', '.join(batch.nodes)}): {step}")
            state = self._step(step, state, index, accepted)
        return state

    def _step(self, step: Step, state: State, index: int, accepted: Path) -> State:
        batch = state.batches[index]
        if step == "drain":
            return self._drain(state, batch)
        if step == "validate":
            return self._validate(state, index, accepted)
        if step == "resume":
            return self._resume(state, batch)
        self._deploy(state, batch)
        return state

    def _looked(self, state: State, names: Sequence[str]) -> State:
        """With why somebody else has these nodes drained by now: what was planned may be hours ago."""
        pool, kept = self.head.nodes() if names else {}, {}
        for name in names:
            there, before = pool.get(checks.short(name)), state.of(name).kept
            if there is None:
                continue
            if there.serves or drained_by_upgrade(there.reason):
                kept[name] = ""
            elif drained_by_somebody(there.state, there.reason):
                kept[name] = there.reason or there.state.lower()
                if not before:
                    self.say(f"{name} was drained by somebody else meanwhile ({kept[name]}); it stays so")
        found = state.with_kept(kept)
        return state if found == state else self.kept.write(found)

    def _drain(self, state: State, batch: Batch) -> State:
        """No new work on any of them, then what runs there is waited for."""
        ours = [name for name in batch.nodes if state.of(name).pool]
        state = self._looked(state, ours)
        for name in ours:
            if not state.of(name).kept:
                self.head.drain(checks.short(name), UpgradeDrain(state.verb))
        at = self.clock()
        for name in ours:
            wait_empty(self.head, checks.short(name), self.asked.grace_s, self.say)
        self._waited_s += self.clock() - at
        return state

    def _deploy(self, state: State, batch: Batch) -> None:
        """site.yml over the batch and the head, whose facts the others need; at most one reboot of each node."""
        head = self.head.node.name
        limit = ",".join(dict.fromkeys([*batch.nodes, head]))
        options = ["-e", json.dumps(wanted(state, batch, head))]
        inventory = self.asked.inventory
        waiting, waited_s = when_free(
            inventory, self.say, self.clock, lambda: playbooks.run(playbooks.SITE, inventory, limit, options)
        )
        self._waited_s += waited_s
        if left := [name for name in waiting if name in batch.nodes]:
            raise BadBatch(f"{', '.join(left)} still waits for a reboot", Exit.FAILED)

    def _validate(self, state: State, index: int, accepted: Path) -> State:
        """The batch's own run; one that was begun goes on."""
        batch = state.batches[index]
        earlier = Path(batch.run) if batch.run and (Path(batch.run) / "run.json").is_file() else None
        first = state.of(batch.nodes[0])
        release = first.release if state.verb == "rollback" else first.to
        asked = held.planned(self.site, self.asked.inventory, accepted, batch.nodes, release)

        def begun(run_dir: Path) -> None:
            found = state.batches[index].model_copy(update={"run": str(run_dir.resolve())})
            self.kept.write(state.with_batch(index, found))

        run_dir, faults = held.held(asked, accepted, self.asked.runs_dir, earlier, begun)
        state = state.with_batch(index, batch.model_copy(update={"run": str(run_dir.resolve())}))
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise BadBatch(f"{run_dir}: {faults[0]}{more}", Exit.FAILED)
        return self.kept.write(state)

    def _resume(self, state: State, batch: Batch) -> State:
        """Back to work, except nodes that somebody else had drained."""
        state = self._looked(state, [name for name in batch.nodes if state.of(name).pool])
        ours = [checks.short(n) for n in batch.nodes if state.of(n).pool and not state.of(n).kept]
        for name in ours:
            self.head.resume(name)
        deadline = self.clock() + SERVES_WITHIN_S
        while True:
            pool = self.head.nodes()
            idle = [name for name in ours if name not in pool or not pool[name].serves]
            if not idle:
                return state
            if self.clock() > deadline:
                raise BadBatch(f"{', '.join(idle)} was resumed and takes no work; see scontrol show node", Exit.FAILED)
            time.sleep(1)

    def _bad(self, state: State, index: int, words: str) -> State:
        """Written down and into Slurm; the next call deploys this batch again, and validates anew."""
        batch = state.batches[index]
        begun: Step = "drain" if batch.step == "drain" else "deploy"
        bad = batch.model_copy(update={"step": begun, "failed": words, "run": ""})
        try:
            state = self.kept.write(state.with_batch(index, bad))
        except Unkept as fault:
            raise Unkept(f"{words}; and {fault}") from None
        with contextlib.suppress(UsageFault):  # a head that does not answer: they are drained since the first step
            state = self._looked(state, [name for name in batch.nodes if state.of(name).pool])
            for name in batch.nodes:
                if state.of(name).pool and not state.of(name).kept:
                    self.head.drain(checks.short(name), UpgradeDrain(state.verb, f"failed in {batch.step}"))
        return state


def _before(plan: Plan, source: State) -> tuple[NodePlan, ...]:
    """What each node had before the upgrade, by which it goes back. A node that a replaced rollback brought back
    already is as the plan has it."""
    now_of = {one.node: one for one in plan.nodes}
    known = {one.node for one in source.nodes}
    found = []
    for was in source.nodes:
        there = now_of.get(was.node)
        if there is None:
            found.append(was)
        elif plan.verb == "rollback":
            found.append(was.model_copy(update={"kept": there.kept}))
        elif there.release == was.release:
            found.append(there)
        else:
            found.append(was.model_copy(update={"to": plan.to, "kept": there.kept, "pool": there.pool}))
    return (*found, *(one for one in plan.nodes if one.node not in known))
