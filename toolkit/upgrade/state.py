"""How far an upgrade or a rollback has come, kept beside the site's deployments: the same command goes on there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from toolkit.upgrade.plan import NodePlan, Verb
from validation.base import bounded

Step = Literal["", "drain", "deploy", "validate", "resume", "done"]
STEPS: tuple[Step, ...] = ("drain", "deploy", "validate", "resume")
"""What is done with a batch, in this order. A step is written down before it begins, and each can be done again."""


class Unkept(UsageFault):
    """A state that the disk of this machine refuses."""


class Batch(BaseModel):
    """`step`: the one that was begun last, "" where nothing was; `failed`: why the batch is bad; `run`: the folder of
    its validation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[str, ...]
    step: Step = ""
    failed: str = ""
    run: str = ""
    took_s: float = 0.0


class State(BaseModel):
    """The whole of it. `began`, `ended`: ISO 8601 in UTC. `nodes`: what each had before, by which a rollback goes.
    `left_out`: nodes that were taken out of it since (--without); they stay drained. `unfinished`: a rollback takes
    back an upgrade that was not finished. `limit`: as it was asked for, with which the same command goes on. `back`: of
    a rollback, nodes that an earlier one has taken back already."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Verb
    to: str
    began: str
    nodes: tuple[NodePlan, ...]
    batches: tuple[Batch, ...]
    ended: str = ""
    left_out: tuple[str, ...] = ()
    unfinished: bool = False
    limit: str = ""
    back: tuple[str, ...] = ()

    def of(self, name: str) -> NodePlan:
        """What a node had, and where it goes."""
        return next(one for one in self.nodes if one.node == name)

    @property
    def touched(self) -> tuple[str, ...]:
        """Nodes on which something may have been changed."""
        return tuple(name for batch in self.batches if batch.step not in ("", "drain") for name in batch.nodes)

    @property
    def begun(self) -> tuple[str, ...]:
        """Nodes that may be drained for it, or changed."""
        return tuple(name for batch in self.batches if batch.step for name in batch.nodes)

    @property
    def unmoved(self) -> tuple[str, ...]:
        """Of an upgrade, nodes that have what they had before it: it has not come to them, or a rollback of some nodes
        has taken them back since."""
        return tuple(one.node for one in self.nodes if one.moves and one.node not in self.touched)

    def has_before(self, name: str) -> bool:
        """Whether a node has by now what it goes back to."""
        done = any(batch.step == "done" and name in batch.nodes for batch in self.batches)
        return self.verb == "rollback" and (done or name in self.back)

    def where(self) -> str:
        """In words: `batch 2 of 5 (gpu3, gpu4), in deploy`."""
        for number, batch in enumerate(self.batches, 1):
            if batch.step != "done":
                at = f"in {batch.step}" if batch.step else "not begun"
                why = f", bad: {batch.failed}" if batch.failed else ""
                return f"batch {number} of {len(self.batches)} ({', '.join(batch.nodes)}), {at}{why}"
        return "all batches are done"

    def without(self, names: Sequence[str]) -> State:
        """The same without these nodes. A batch that loses one is validated anew: its run was of other nodes."""
        batches = []
        for batch in self.batches:
            if left := tuple(name for name in batch.nodes if name not in names):
                batches.append(batch if left == batch.nodes else batch.model_copy(update={"nodes": left, "run": ""}))
        return self.model_copy(update={"batches": tuple(batches), "left_out": (*self.left_out, *names)})

    def with_kept(self, kept: Mapping[str, str]) -> State:
        """The same with why somebody else has these nodes drained, "" where nobody has."""
        nodes = tuple(one.model_copy(update={"kept": kept.get(one.node, one.kept)}) for one in self.nodes)
        return self.model_copy(update={"nodes": nodes})

    def with_batch(self, index: int, batch: Batch) -> State:
        """The same with another batch."""
        batches = tuple(batch if number == index else one for number, one in enumerate(self.batches))
        return self.model_copy(update={"batches": batches})

    def after(self, first: State) -> State:
        """One record of two finished upgrades to the same release, of which this is the later: each node has what it
        had before the first of them. The same again where this is that record already."""
        mine = {one.node: one for one in self.nodes}
        changed = {name for batch in first.batches for name in batch.nodes} | set(first.left_out)
        nodes = [_first_of(was, mine.pop(was.node, was), was.node in changed) for was in first.nodes]
        ours = {name for batch in self.batches for name in batch.nodes}
        before = first.without((*ours, *self.left_out)).batches
        left_out = (name for name in dict.fromkeys((*first.left_out, *self.left_out)) if name not in ours)
        return self.model_copy(
            update={
                "began": first.began,
                "nodes": (*nodes, *mine.values()),
                "batches": (*before, *self.batches),
                "left_out": tuple(left_out),
            }
        )


def _first_of(was: NodePlan, later: NodePlan, changed: bool) -> NodePlan:
    """What a node had before two upgrades. `changed`: the first may have changed it; otherwise the later one knows. A
    part that only the later one changed is as that found it."""
    if not changed:
        return later
    after = {(change.part, change.key): change for change in later.changes}
    both = [
        change.model_copy(update={"after": after.pop((change.part, change.key), change).after})
        for change in was.changes
    ]
    return later.model_copy(update={"release": was.release, "changes": (*both, *after.values())})


def now() -> str:
    """ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Kept:
    """The states of one site on the disk: that which is open, the upgrade that was finished last, and the rollback that
    took all of it, or an unfinished one after it, back.

    A finished upgrade is written as the open one first, with its end, and then gets its name in one step. Killed in
    between, it is read as what it is, and gets its name by the next command.
    """

    def __init__(self, inventory: Path) -> None:
        """The files need not be there."""
        folder = SiteState(inventory).folder
        self.open, self.last = folder / "upgrade.json", folder / "upgrade-last.json"
        self.back, self._lock = folder / "upgrade-back.json", folder / "upgrade.lock"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One upgrade of a site at a time. UsageFault while another one runs."""
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = self._lock.open("a+")
        except OSError as fault:
            raise Unkept(f"{self._lock}: cannot be written: {fault.strerror or fault}") from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageFault("another upgrade or rollback of this site is running") from None
            self._settle()
            yield

    def read_open(self) -> State | None:
        """What was begun and is not finished."""
        found = _read(self.open)
        return None if found is None or _is_over(found) else found

    def read_last(self) -> State | None:
        """The upgrade that was finished last, and not taken back; with those to the same release before it."""
        found, last = _read(self.open), _read(self.last)
        if found is None or not _is_over(found):
            return last
        return found if last is None or last.to != found.to else found.after(last)

    def read_back(self) -> State | None:
        """The rollback by which nothing was left to take back; None where an upgrade was finished since."""
        found = _read(self.open)
        return None if found is not None and _is_over(found) else _read(self.back)

    def write(self, state: State) -> State:
        """Keep it; Unkept where the disk refuses, here as in all that follows."""
        return _replace(self.open, state)

    def drop(self) -> None:
        """Nothing is open any more."""
        with _written(self.open):
            self.open.unlink(missing_ok=True)
            _keep_names(self.open.parent)

    def told(self) -> None:
        """Of a rollback that was finished: the next one takes back the upgrade before it."""
        with _written(self.back):
            self.back.unlink(missing_ok=True)
            _keep_names(self.back.parent)

    def finish(self, state: State) -> None:
        """An upgrade becomes the last one, together with those to the same release before it; after a rollback there is
        none."""
        self.write(state.model_copy(update={"ended": now()}))
        if state.verb == "upgrade":
            self._settle()
            return
        last = self.read_last()
        back = {name for batch in state.batches for name in batch.nodes}
        if last is not None and state.unfinished:  # the one before it is still what other nodes have
            back = {name for name in back if _goes_back_alike(name, state, last)}
        rest = [batch for batch in last.batches if not back.issuperset(batch.nodes)] if last is not None else []
        if last is not None and rest and back:  # a rollback of some nodes leaves the others for another
            left = tuple(
                batch.model_copy(update={"nodes": tuple(name for name in batch.nodes if name not in back)})
                for batch in rest
            )
            _replace(self.last, last.model_copy(update={"batches": left}))
        if rest and not state.unfinished:
            self.drop()
            return
        with _written(self.back):
            if not rest:
                self.last.unlink(missing_ok=True)
            self.open.replace(self.back)
            _keep_names(self.open.parent)

    def _settle(self) -> None:
        """A finished upgrade that is still written as the open one becomes the last one."""
        found, whole = _read(self.open), self.read_last()
        if found is None or whole is None or not _is_over(found):
            return
        if whole != found:
            self.write(whole)
        with _written(self.last):
            self.back.unlink(missing_ok=True)
            self.open.replace(self.last)
            _keep_names(self.open.parent)


def _goes_back_alike(name: str, one: State, other: State) -> bool:
    """Whether a node goes back to the same by both records: the one took the place of a rollback by the other."""
    mine, others = ([node for node in state.nodes if node.node == name] for state in (one, other))
    return [(node.release, node.pins) for node in mine] == [(node.release, node.pins) for node in others]


def _is_over(state: State) -> bool:
    """An upgrade that was finished; a rollback that was finished has more to do than to get its name."""
    return state.verb == "upgrade" and bool(state.ended)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise Unkept(f"{path}: cannot be written: {fault.strerror or fault}") from None


def _replace(path: Path, state: State) -> State:
    """Whole or not at all, whenever the machine stops."""
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as handle:
            handle.write(state.model_dump_json() + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        new.replace(path)
        _keep_names(path.parent)
    return state


def _keep_names(folder: Path) -> None:
    """Its names onto the disk: without that a machine that loses power may have the file's old content again."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path) -> State | None:
    """UsageFault for a state that cannot be read: nobody knows then where the site is, and must not guess."""
    try:
        return State.model_validate_json(bounded.read_file(path))
    except FileNotFoundError:
        return None
    except (bounded.TooMuch, OSError, ValidationError, ValueError) as fault:
        words = " ".join(str(fault).split())[:200]
        raise UsageFault(
            f"{path}: cannot be read ({words}); run toolkit check and scontrol show node to see where the nodes are, "
            "then move that file away"
        ) from None
