"""What a campaign says, as documents: campaign.json is `Campaign`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.base.errors import ToolkitError
from validation.model import Model, ReasonCode, SignOff, VerdictName
from validation.rules.conformance import State

Outcome = Literal["passed", "failed", "incomplete"]


class NotTogether(ToolkitError):
    """Two runs that do not belong on one page. `str(e)` is one line: which two, what differs, what to do."""


class CampaignRun(Model):
    """One of the runs. `label` is the head of its column, unlike any other's of the campaign.

    `virtual`: by what its nodes are virtual, in words; `lab_rate_gbps` the rate to which a lab shaped their links;
    `emulated`: processors are emulated, and say nothing of a rate. `judged` False: the run has no verdict.
    """

    run: str
    label: str
    fabric: str
    fabric_title: str
    transport: str
    line_rate_gbps: float
    created: str
    toolkit_version: str
    suites: tuple[str, ...]
    profile: str | None
    rehearsal: bool
    virtual: tuple[str, ...]
    lab_rate_gbps: float | None
    emulated: bool
    judged: bool
    sign_off: SignOff
    outcome: Outcome
    headline: str
    planned: int
    measured: int


class Cell(Model):
    """What one run has for a row. `value` None: nothing was measured, and `reason` says why.

    `value` is that of the subject in the middle (of an even number the lower of the two) with its own 95 % interval
    `low` to `high`; `lowest` and `highest` are over all `measured` of the `subjects`. Verdict, reason and bound are
    those of the judgement that decides among them, which is on `deciding`.
    """

    run: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    subject: str | None = None
    lowest: float | None = None
    highest: float | None = None
    subjects: int = 0
    measured: int = 0
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    deciding: str | None = None
    bound: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class Row(Model):
    """A quantity, over all runs: `cells` are in the order of the campaign's runs.

    `case` is what the subjects do ("write", "4 ranks on 2 nodes"), `model` the network that is trained or used, `batch`
    its images per rank and step; "" and None where the quantity has none.
    """

    criterion: str
    name: str
    statement: str
    case: str
    model: str | None
    batch: int | None
    unit: str
    cells: tuple[Cell, ...]


class Held(Model):
    """A claim as one run leaves it; `value` with its 95 % interval, in `unit`, is what decides there."""

    run: str
    state: State
    reason: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    subject: str | None


class Published(Model):
    """A claim of a document. `printed` and `value` (in `unit`) are its figure, None where it has none; `founding`
    False: a figure of others, beside which nothing is held. `criterion` is the one beside whose values it stands.

    `machines` and `fabrics` are those that it was made on (none: any), `inferred` what of that the document does not
    say. `held` are in the order of the campaign's runs, None where the claim is none of the run's.
    """

    claim: str
    criterion: str | None
    statement: str
    source: str
    founding: bool
    machines: tuple[str, ...]
    fabrics: tuple[str, ...]
    inferred: tuple[str, ...]
    printed: str | None
    value: float | None
    unit: str
    held: tuple[Held | None, ...]


class Section(Model):
    """A part of the page."""

    key: str
    title: str
    rows: tuple[Row, ...]
    published: tuple[Published, ...]


class Campaign(Model):
    """Runs of one site side by side. `rehearsal` and `constructed` hold of all of them or of none."""

    schema_: Literal["elastic-ai-campaign/1"] = Field(default="elastic-ai-campaign/1", alias="schema")
    site: str
    rehearsal: bool
    constructed: bool = False  # the data were made up
    nodes: tuple[str, ...]
    headline: str
    runs: tuple[CampaignRun, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
