"""The key of munge: exchanged on all nodes in one moment, tried between the head and each, or taken back everywhere."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from toolkit.errors import UsageFault
from toolkit.node.head import Head
from toolkit.rotate import holding, there
from toolkit.rotate.holding import Pool, SchedulerFault
from toolkit.rotate.nodes import Faults, Machines, RotationFault, Say, listed
from toolkit.rotate.outcome import Done
from toolkit.upgrade.state import now
from validation.base.counting import number_of
from validation.base.errors import ToolkitError

LEAD_S = 3.0
"""From the order to restart until the moment at which all nodes do: every ssh connection is there by then."""
MOST_AT_ONCE = 512
CANNOT = (
    "no job starts for the time of the exchange; those that are submitted wait, and what runs goes on",
    "a command of Slurm's that is at work in the second in which munge restarts can fail (Invalid credential): an srun "
    "or sbatch, a step of a running job, a toolkit run; run it again",
    "what was sealed with the old key is refused afterwards; no seal lasts longer than five minutes by default",
)
Direction = Literal["forward", "back"]
HELD = "no job starts meanwhile"
UNSURE = "it can be that no job starts meanwhile"
ENDS_IT = "run toolkit rotate munge-key again, or with --back"


class MungeRotation:
    """One of a site. Everything that is no change is refused first."""

    def __init__(self, machines: Machines, head: Head, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """`head`: of the same site."""
        self.machines, self.say, self.clock = machines, say, clock
        self.pool = Pool(head, clock)
        self.looked: dict[str, dict[str, Any]] = {}
        self.paused_at: float | None = None
        self.paused_s = 0.0
        self.held = ""
        """HELD, UNSURE, or "" where jobs start."""

    def _look(self, opened: bool = False) -> dict[str, Any]:
        """The open rotation's note, {} without one. UsageFault where a node cannot take part."""
        self.looked, faults = self.machines.all("look")
        head = self.looked.get(self.machines.head.name)
        if head is None:
            raise UsageFault(f"{self.machines.head.name}: {faults[self.machines.head.name]}; nothing was changed")
        note = dict(head["open"].get("munge-key", {}))
        if not note and not opened:
            self._refuse(head["head_munge"], faults)
        return note

    def _refuse(self, key: str, faults: Faults) -> None:
        if not key:
            raise UsageFault(
                f"{self.machines.head.name} has no munge key of the toolkit's; a Slurm of the site's own has its "
                "administrator's. Nothing was changed"
            )
        bad = dict(faults)
        for name, said in self.looked.items():
            if said["munge"] != key:
                bad[name] = "it has another munge key than the head; deploy it first" if said["munge"] else "no munge"
            elif not said["munge_runs"]:
                bad[name] = "munge does not run there"
        if not bad:
            bad = self._check()
        if bad:
            raise UsageFault(
                f"{listed(bad)}; nothing was changed. Mend that first; a node that is away can be left out with "
                "--without, and takes the new key by its next deployment"
            )

    def plan(self) -> Done:
        """What would be done."""
        if note := self._look():
            words = f"begun {note['began']} and stopped in step {note['step']}; the next call ends it"
            return Done("munge-key", "open", why=words)
        jobs = self.pool.jobs()
        changes = {
            name: [there.MUNGE_KEY, *([f"{there.SLURM}/munge.key"] if name == self.machines.head.name else []),
                   "restarts munge"] for name in sorted(self.looked)
        }  # fmt: skip
        return Done("munge-key", "planned", changes, CANNOT, running=len(jobs.running), waiting=len(jobs.waiting))

    def go(self, back: bool = False) -> Done:
        """All of it. One that was stopped is ended: forward, or back where it was going back or that is asked for."""
        began, note = self.clock(), self._look(opened=back)
        opened = bool(note)
        if opened:
            self.say(f"a rotation of the munge key, begun {note['began']}, stopped in step {note['step']}; ending it")
            note.setdefault("placed", note["step"] != "begun")  # an earlier release's, whose "hold" can come later
            self.held, self.pool.patience_s = UNSURE, holding.PATIENCE_S
        elif back:
            return Done("munge-key", "nothing to do", why="no rotation of the munge key is open")
        with self._said_while_held():
            running, unread = self._running(opened)
            if not opened:
                note = {"began": now(), "step": "begun", "direction": "forward", "partitions": [], "placed": False}
                note = dict(self.machines.on_head("begin", what="munge-key", note=note)["note"])
                self.pool.patience_s = holding.PATIENCE_S
            state, why, left, interrupted = self._ended(note, back or note["direction"] == "back")
        lost: dict[int, str] = {}
        if state != "open" and not unread:
            try:
                lost = self.pool.lost(running)
            except SchedulerFault as fault:
                unread = _unread(fault)
        return Done(
            "munge-key", state, {}, (), left, len(running), 0, lost, self.clock() - began, self.paused_s, why,
            interrupted, unread,
        )  # fmt: skip

    def _running(self, opened: bool) -> tuple[tuple[int, ...], str]:
        """Jobs that run, or why they are not known: the scheduler can be mute for what a stopped call left."""
        try:
            return self.pool.jobs().running, ""
        except SchedulerFault as fault:
            if not opened:
                raise UsageFault(f"{fault}; nothing was changed") from None
            return (), _unread(fault)

    def _ended(self, note: dict[str, Any], back: bool) -> tuple[Any, str, Faults, bool]:
        """State, why, nodes that are left, and whether Ctrl-C came."""
        try:
            return *(self._back(note, "") if back else self._forward(note)), False
        except KeyboardInterrupt:
            if note["step"] == "release":  # all nodes have one key, and it was tried
                self.say("interrupted at its end")
                self._up(note)
                self.machines.on_head("end", what="munge-key")
                return "gone back" if note["direction"] == "back" else "done", "interrupted at its end", {}, True
            self.say("interrupted; going back to the old key")
            return *self._back(note, "interrupted"), True

    @contextlib.contextmanager
    def _said_while_held(self) -> Iterator[None]:
        """Whatever stops it, nobody is left with a pool in which no job starts and without a word of it."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{self.held}: {ENDS_IT}" if self.held else "") from None
        except (ToolkitError, OSError) as fault:
            if not self.held:
                raise
            what = fault.what if isinstance(fault, RotationFault) else fault
            raise RotationFault(f"{what}; {self.held}: {ENDS_IT}") from fault
        except Exception:
            if self.held:
                self.say(f"{self.held}: {ENDS_IT}")
            raise

    def _step(self, note: dict[str, Any], step: str, words: str) -> None:
        note["step"] = step
        self.machines.on_head("note", what="munge-key", note=note)
        self.say(words)

    def _hold(self, note: dict[str, Any]) -> None:
        note["partitions"] = sorted({*note["partitions"], *self.pool.open_partitions()})
        self._step(note, "hold", "holding new jobs; what runs goes on")
        self.paused_at, self.held = self.clock(), HELD
        self.pool.set_all(note["partitions"], "DOWN")

    def _up(self, note: dict[str, Any]) -> None:
        self.pool.set_all(note["partitions"], "UP")
        self.held = ""

    def _release(self, note: dict[str, Any]) -> None:
        self._step(note, "release", "jobs start again")
        self._up(note)
        if self.paused_at is not None:
            self.paused_s += self.clock() - self.paused_at
        self.machines.on_head("end", what="munge-key")

    def _forward(self, note: dict[str, Any]) -> tuple[Any, str, Faults]:
        try:
            self._hold(note)
            moving = self.pool.settle()
        except SchedulerFault as fault:
            return self._back(note, str(fault))
        if moving:
            why = f"job {', '.join(map(str, moving[:5]))} is starting or ending for more than a minute"
            return self._back(note, why)
        why = self._exchanged(note, "new")
        if why:
            self.say(why)
            return self._back(note, why)
        self._release(note)
        return "done", "", {}

    def _exchanged(self, note: dict[str, Any], which: str) -> str:
        """The key everywhere, munge restarted and tried; why not, "" where all of it is."""
        files = self.machines.on_head("held", what="munge-key")["files"]
        note["placed"] = True  # it stays so, whatever step a later call is stopped in
        self._step(note, f"place {which}", f"placing the {which} key on {number_of(len(self.machines.nodes), 'node')}")
        _, faults = self.machines.each("place", self._files(files[f"{which}.munge.key"]))
        if faults:
            return f"the {which} key was not placed: {listed(faults)}"
        self._step(note, f"restart {which}", "restarting munge on all of them in one moment")
        head = self.machines.on_head("look")
        at = head["clock"] + LEAD_S
        _, faults = self.machines.all("restart", MOST_AT_ONCE, unit="munge.service", at=at)
        if faults:
            return f"munge was not restarted: {listed(faults)}"
        self._step(note, f"check {which}", "trying credentials between the head and each of them")
        faults = self._check()
        return f"munge does not agree: {listed(faults)}" if faults else ""

    def _files(self, key: str) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for node in self.machines.nodes:
            munge = {"path": there.MUNGE_KEY, "content": key, "mode": 0o400, "user": "munge", "role": "slurm"}
            head = {"path": f"{there.SLURM}/munge.key", "content": key, "mode": 0o600, "role": "slurm"}
            found[node.name] = {"files": [munge, *([head] if node.name == self.machines.head.name else [])]}
        return found

    def _check(self) -> Faults:
        """A credential of the head on each node, and one of each node on the head."""
        sealed, faults = self.machines.all("seal")
        name = self.machines.head.name
        if name not in sealed:
            return faults or {name: "munge does not answer"}
        here = {name: sealed[name]["sealed"]}
        opened, more = self.machines.all("unseal", sealed=here)
        faults |= more
        faults |= {
            node: f"{one['faults'][name]} (of the head's)" for node, one in opened.items() if one["faults"][name]
        }
        theirs = {node: one["sealed"] for node, one in sealed.items() if node != name}  # each opens once on a machine
        said = self.machines.on_head("unseal", sealed=theirs)["faults"]
        return faults | {node: f"{why} (on the head)" for node, why in said.items() if why}

    def _back(self, note: dict[str, Any], why: str) -> tuple[Any, str, Faults]:
        """To the old key, as far as nodes answer; what does not is named, and the rotation stays open."""
        note["direction"] = "back"
        if note["placed"]:
            left = self._old_everywhere(note)
            if left:
                self._up(note)
                return "open", f"{why}; not back on {listed(left)}" if why else f"not back on {listed(left)}", left
        self._release(note)
        return "gone back", why, {}

    def _old_everywhere(self, note: dict[str, Any]) -> Faults:
        files = self.machines.on_head("held", what="munge-key")["files"]
        self._step(note, "place old", "going back to the old key everywhere")
        old = base64.b64decode(files["old.munge.key"])
        del files
        _, faults = self.machines.each("place", self._files(base64.b64encode(old).decode()))
        head = self.machines.on_head("look")
        _, more = self.machines.all("restart", MOST_AT_ONCE, unit="munge.service", at=head["clock"] + LEAD_S)
        return {**self._check(), **more, **faults}


def _unread(fault: SchedulerFault) -> str:
    return f"whether jobs ended meanwhile was not read: {fault}"
