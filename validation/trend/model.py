"""What a trend says, as documents: trend.json is `Trend`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.base.errors import ToolkitError
from validation.model import Model, SignOff


class NotOneSeries(ToolkitError):
    """Runs that are no series of one site. `str(e)` is one line: which, what differs, what to do."""


class TrendRun(Model):
    """One of the runs, oldest first; `day` counts from the first run, in days."""

    run: str
    created: str
    day: float
    sign_off: SignOff
    outcome: Literal["passed", "failed", "incomplete"]
    headline: str
    toolkit_version: str


class Line(Model):
    """A subject over the runs, in their order, in the quantity's unit; None where a run did not judge it."""

    subject: str
    values: tuple[float | None, ...]


class Drift(Model):
    """A figure that is not what it was.

    `kind` step: the newest run against those before it; slope: over all of them (Mann-Kendall), `change` being what the
    slope of Theil and Sen gives from the first to the last. `expected` and `value` are in the unit, `change` a share.
    `p` is the chance of as much though nothing changed, corrected for all figures of the trend (Holm). `worse` False:
    it got better.
    """

    criterion: str
    subject: str
    unit: str
    kind: Literal["step", "slope"]
    expected: float
    value: float
    change: float
    p: float
    worse: bool


class Quantity(Model):
    """A criterion's figures of one sort of subjects (`case`: what is done there). `spread`: what runs of the same
    subject differ by, one standard deviation as a share; None where the runs do not show it.
    """

    criterion: str
    statement: str
    case: str
    unit: str
    direction: Literal["higher", "lower"]
    spread: float | None
    lines: tuple[Line, ...]


class Trend(Model):
    """Runs of one site over one fabric, oldest first. `rehearsal` holds of all of them or of none.

    `tested`: questions asked of figures; `level`: chance of any false alarm among them.
    """

    schema_: Literal["elastic-ai-trend/1"] = Field(default="elastic-ai-trend/1", alias="schema")
    site: str
    fabric: str
    rehearsal: bool
    constructed: bool = False  # the data were made up
    headline: str
    runs: tuple[TrendRun, ...]
    quantities: tuple[Quantity, ...]
    drifts: tuple[Drift, ...]
    tested: int
    level: float
    notes: tuple[str, ...]

    @property
    def worse(self) -> tuple[Drift, ...]:
        """What drifted for the worse."""
        return tuple(d for d in self.drifts if d.worse)

    @property
    def exit_code(self) -> int:
        """0 nothing drifted for the worse, 1 something did."""
        return 1 if self.worse else 0
