"""What a comparison says, as documents: `toolkit compare --format json` prints `Comparison`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.analysis.part_changes import DIFFERENT, PartChange
from validation.base.errors import ToolkitError
from validation.model import Model, SignOff, VerdictName
from validation.report.named_findings import Finding

Change = Literal["same", "better", "worse", "changed"]
"""`changed`: different, and neither better nor worse can be said of it."""

NoiseName = Literal["beyond", "within", "small", "unknown"]
"""`beyond` noise, corrected for the number of figures that were looked at; `within` noise; `small`: beyond the samples'
noise, but under SMALL, which runs differ by anyway; `unknown`: too few samples for an interval."""


class NotComparable(ToolkitError):
    """Two runs that say nothing about each other. `str(e)` is one line that says why and what to do."""


class Side(Model):
    """One of the two runs."""

    run: str
    site: str
    created: str
    toolkit_version: str
    sign_off: SignOff
    outcome: Literal["passed", "failed", "incomplete"]
    planned: int
    measured: int


class Difference(Model):
    """Something of the stack, the rules or the fabric profile that is not the same; `nodes` is empty where it is not of
    nodes. None means that it was not there or not known.
    """

    what: str
    old: str | None
    new: str | None
    nodes: tuple[str, ...] = ()


class Figure(Model):
    """A measured quantity of one subject in both runs.

    `change` is new / old - 1, with its 95 % interval `change_low` to `change_high` (bootstrap of the difference, where
    both runs have samples; None where there is none). None as well where the old value is 0. The interval is that of
    the samples alone; `p` is the chance of such a change in a comparison of this many figures though nothing changed
    (Holm), and `between` what runs differ by beside their samples, one standard deviation (noise.py). None where
    nothing was tested, and `between` where there are too few equals to say.
    """

    criterion: str
    subject: str
    unit: str
    old: float
    old_low: float | None
    old_high: float | None
    old_samples: int
    new: float
    new_low: float | None
    new_high: float | None
    new_samples: int
    change: float | None
    change_low: float | None
    change_high: float | None
    noise: NoiseName
    verdict: Change
    p: float | None = None
    between: float | None = None


class CriterionChange(Model):
    """A criterion in both runs. `verdict` is `worse` where its verdict is, or a figure of it beyond noise; `why` says
    which. `old` or `new` None: the criterion is not in that run's catalogue.
    """

    id: str
    statement: str
    old: VerdictName | None
    new: VerdictName | None
    old_reason: str
    new_reason: str
    verdict: Change
    why: str
    new_failures: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()


class SaidChange(PartChange):
    """A difference by serial number, with its words."""

    words: str


class Comparison(Model):
    """Run `a` (before) against run `b` (after). `findings` are those of `b`: who is at fault now, and what to do.

    `level`: the chance of any false alarm among the figures with a `p`.
    """

    schema_: Literal["elastic-ai-compare/1"] = Field(default="elastic-ai-compare/1", alias="schema")
    a: Side
    b: Side
    fabric: str
    rehearsal: bool
    constructed: bool = False  # the data were made up
    headline: str
    stack: tuple[Difference, ...]
    rules: tuple[Difference, ...]
    nodes_gone: tuple[str, ...]
    nodes_new: tuple[str, ...]
    criteria: tuple[CriterionChange, ...]
    figures: tuple[Figure, ...]
    subjects_gone: tuple[str, ...]
    subjects_new: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    level: float
    parts: tuple[SaidChange, ...] = Field(
        default=(), description="parts that are other ones, moved, gone, new or not read"
    )
    parts_unread: tuple[str, ...] = Field(default=(), description="runs in which no part was read: nothing is compared")

    @property
    def tested(self) -> int:
        """Figures of which it was tested whether they changed."""
        return sum(f.p is not None for f in self.figures)

    @property
    def worse(self) -> tuple[CriterionChange, ...]:
        """The criteria that got worse."""
        return tuple(c for c in self.criteria if c.verdict == "worse")

    @property
    def other_parts(self) -> tuple[SaidChange, ...]:
        """Parts and servers that are not as they were."""
        return tuple(one for one in self.parts if one.what in DIFFERENT)

    @property
    def exit_code(self) -> int:
        """0 no criterion got worse and every part that was compared is the same one where it was, 1 otherwise."""
        return 1 if self.worse or self.other_parts else 0
