"""What was measured: a line of results.jsonl, and all that stands in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

from validation.model.base import Model, ResultStatus
from validation.model.facts import AnyFacts, Facts, PlainFacts
from validation.model.times import moment

F = TypeVar("F", bound=Model)


class Sample(Model):
    """One number with its unit. Several samples of one metric in a result are its distribution.

    A number is a number: text, true, infinity and NaN are none.
    """

    metric: str
    value: float = Field(strict=True, allow_inf_nan=False)
    unit: str


REPORT = "probe.json"
"""End of the name under which a probe's report is kept, without the output that stands beside it: a result can be read
from the two once more."""
CONTROLLER = "controller"
"""Name, in place of a node's, under which the traceback of an error of the toolkit's own is kept among raw logs."""


class RawLog(Model):
    """Untouched tool output, relative to the run directory, with its hash."""

    path: str
    sha256: str


class Provenance(Model):
    """Where a result comes from. `started` and `ended` are ISO 8601 in UTC by the clock of the machine that runs the
    validation, ways to the nodes included; `duration_s` is the tool's own.
    """

    nodes: tuple[str, ...]
    devices: tuple[str, ...] = ()
    tool: str
    tool_version: str
    command: tuple[str, ...]
    started: str
    ended: str
    duration_s: float
    raw: tuple[RawLog, ...] = ()

    @property
    def times(self) -> tuple[datetime | None, datetime | None]:
        """When it started and ended; None where that is no time in UTC."""
        return moment(self.started), moment(self.ended)


Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


DENIED = "denied"
"""Key under which a probe's report in raw/ keeps what was denied meanwhile."""


class Denied(Model):
    """What a machine was denied of its processors while a measurement ran. None = not known, which is not 0.

    `where` is a node, or "host": the machine that carries a lab's virtual nodes. `steal` is the share of all
    processors' time that the hypervisor gave to others (/proc/stat); `pressure` the share of the time in which
    something of the measurement waited for a processor (PSI, of its own cgroup where it has one); `throttled` the share
    in which its cgroup, or one above, had used up its quota; `others` the share of all processors' time that programs
    used which are not the measurement's.
    """

    where: str
    seconds: float = Field(ge=0)
    cpus: int | None = Field(default=None, ge=1)
    steal: Share | None = None
    pressure: Share | None = None
    throttled: Share | None = None
    others: Share | None = None


class Failure(Model):
    """Why RDMA did not work. `code` is the probe's or execute/fault_side.py's; `at` the node at whose end it lies,
    `towards` the node to which packets were lost, `words` what the code means, all "" where the ends do not tell.
    """

    code: str
    at: str = ""
    towards: str = ""
    words: str = ""


class Result(Model):
    """One line of results.jsonl. `run` names the run that it was measured for: ids of measurements are the same in
    every run of a site. The k-th line of a measurement is its `attempt` k: what could not decide is taken again, and
    all lines stay. `facts` hold what is no sample (model/facts.py), `denied` what its nodes, and in a lab their
    host, were denied meanwhile.
    """

    run: str
    measurement: str
    attempt: int = Field(default=1, ge=1)
    status: ResultStatus
    error: str | None = None
    samples: tuple[Sample, ...] = ()
    facts: AnyFacts = Field(default={})
    failure: Failure | None = None
    denied: tuple[Denied, ...] = ()
    provenance: Provenance

    def values(self, metric: str) -> list[float]:
        """All samples of `metric`, in order."""
        return [s.value for s in self.samples if s.metric == metric]

    def samples_in(self, metric: str) -> Mapping[str, Sequence[float]]:
        """The samples of `metric` by their unit, of which a sound result has one."""
        found: dict[str, list[float]] = {}
        for s in self.samples:
            if s.metric == metric:
                found.setdefault(s.unit, []).append(s.value)
        return found

    def facts_of(self, form: type[F]) -> F | None:
        """The facts where they are of that form, else None."""
        return self.facts if isinstance(self.facts, form) else None

    @property
    def plain(self) -> PlainFacts:
        """The facts where they are plain scalars, else {}."""
        return self.facts if isinstance(self.facts, dict) else {}

    @property
    def no_figure(self) -> bool:
        """Whether its facts are of a form that can say why there is no figure."""
        return isinstance(self.facts, Facts) and self.facts.no_figure
