"""What an upgrade or a rollback would do, as a document: which versions change on which node, in which batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Literal

from pydantic import BaseModel, ConfigDict

from toolkit.errors import UsageFault, or_nearest
from validation.base import project

Verb = Literal["upgrade", "rollback"]
NO_RELEASES = ("compatibility", "select")
"""Files of stacks/ that are no releases."""
STAY = {
    "kernel": "no role removes a kernel, and a node boots the newest that is installed",
    "Slurm": "the accounting database was converted, and an older Slurm cannot read it",
}
"""Parts that a rollback cannot take back -> why."""
NEVER = (
    "firmware of adapters, GPUs and boards is not changed, and is not taken back where a package changed it",
    "the accounting database: a conversion by a newer Slurm is not taken back",
    "a kernel that was installed stays installed",
)
"""What does not go back, whatever the release."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(_Document):
    """A part whose version on record is not the wanted one. `key`, `pin`: where a release's set would state the version
    on record, empty for what no set brings back; `reboot`: the node has to be rebooted for it."""

    part: str
    before: str
    after: str
    key: tuple[str, ...]
    pin: str
    reboot: bool


class Observed(_Document):
    """What role preflight concludes of a node (filter stack_changes). `waits`: for what it waits to be rebooted
    already."""

    release: str
    to: str
    recorded: bool
    jobs: tuple[str, ...]
    changes: tuple[Change, ...]
    waits: tuple[str, ...] = ()


class NodePlan(_Document):
    """One node. `release`: that of its record; `jobs`: what runs there, in words; `pool`: Slurm knows it; `kept`: why
    somebody else has it drained, "" where nobody has; it stays so. `waits`: for what it waits to be rebooted already,
    which its batch does."""

    node: str
    release: str
    to: str
    changes: tuple[Change, ...]
    jobs: tuple[str, ...] = ()
    pool: bool = False
    kept: str = ""
    waits: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether anything is to be done on it."""
        return bool(self.changes) or self.release != self.to

    @property
    def reboots(self) -> tuple[str, ...]:
        """For what it is rebooted, once: parts that change, and what it waits for already."""
        return (*(change.part for change in self.changes if change.reboot), *self.waits)

    @property
    def pins(self) -> dict[str, dict[str, str]]:
        """What the set of its recorded release has to say so that the node gets back what it had."""
        found: dict[str, dict[str, str]] = {}
        for change in self.changes:
            if change.key:
                part, name = change.key
                found.setdefault(part, {})[name] = change.pin
        return found


class Plan(_Document):
    """All of it. `batch_s`: how long a batch takes, from the last run of this site; None where there was none.
    `estimated_from`: that run, in words."""

    verb: Verb
    to: str
    nodes: tuple[NodePlan, ...]
    batches: tuple[tuple[str, ...], ...]
    batch_s: float | None
    estimated_from: str

    def of(self, name: str) -> NodePlan:
        """The plan of a node."""
        return next(one for one in self.nodes if one.node == name)


def releases() -> list[str]:
    """Names of the stack releases of this checkout."""
    found = project.file("stacks").glob("*.yml")
    return sorted(path.stem for path in found if path.stem not in NO_RELEASES)


def known_release(name: str) -> str:
    """The name; UsageFault for a release that this checkout does not have."""
    there = releases()
    if name in there:
        return name
    raise UsageFault(f"there is no stack release {name}: {or_nearest(name, there)}; releases are files of stacks/")


def batch_sizes(spec: object, count: int) -> list[int]:
    """How many nodes each batch has, as Ansible's `serial` reads it: a number, a share (25%), or a list of them whose
    last is repeated. UsageFault for anything else."""
    steps = list(spec) if isinstance(spec, (list, tuple)) else [spec]
    if not steps:
        raise UsageFault("reboot_batch: an empty list; give a number of nodes, a share such as 25%, or a list of them")
    sizes: list[int] = []
    while sum(sizes) < count:
        step = steps[min(len(sizes), len(steps) - 1)]
        sizes.append(min(_size(step, count), count - sum(sizes)))
    return sizes


def _size(step: object, count: int) -> int:
    text = str(step).strip()
    number = text[:-1] if text.endswith("%") else text
    if isinstance(step, bool) or not number.isdecimal() or int(number) == 0:
        raise UsageFault(f"reboot_batch: {step!r} is neither a number of nodes nor a share such as 25%")
    return max(1, int(number) * count // 100) if text.endswith("%") else int(number)


def batched(
    names: Iterable[str], head: str, spec: object, verb: Verb, goes_to: Callable[[str], str] = lambda _: ""
) -> tuple[tuple[str, ...], ...]:
    """The batches: an upgrade begins with the head alone, since Slurm's controller must not be older than its nodes,
    and a rollback ends with it. `goes_to`: the release of a node; a batch has one, by which it is validated."""
    rest = sorted((name for name in names if name != head), key=lambda name: (goes_to(name), name))
    alone = [(head,)] if head in names else []
    found, at = [], 0
    for size in batch_sizes(spec, len(rest)):
        found += [tuple(same) for _, same in groupby(rest[at : at + size], goes_to)]
        at += size
    return tuple([*alone, *found] if verb == "upgrade" else [*found, *alone])


def refuse_what_stays(nodes: Sequence[NodePlan], changed: Mapping[str, Sequence[Change]]) -> None:
    """UsageFault where a rollback would leave parts behind. `changed`: node -> what the upgrade changed there."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for change in changed.get(node.node, ()):
            if change.part in STAY:
                found.setdefault(change.part, []).append(node.node)
    if found:
        parts = "; ".join(f"{part} of {', '.join(names)}: {STAY[part]}" for part, names in found.items())
        raise UsageFault(
            f"this cannot go back: {parts}. Nothing was changed. Put that right by hand first, or go on by "
            "toolkit upgrade"
        )
