"""The form of report.json: what each entry of an `elastic-ai-report/2` holds, and its JSON Schema.

The schema is published as docs/schema/report-2.json. A key may be added within version 2; one that goes away or changes
its meaning makes a version 3. Bounds stand once in `bounds`, and judgements name them by position.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from validation.measures.pool.use_rows_figures import PoolUse
from validation.model import (
    AgreedProfile,
    Bom,
    Bound,
    Coverage,
    LabLink,
    Model,
    Port,
    ReasonCode,
    ResultStatus,
    RunInfo,
    SignOff,
    VerdictName,
)
from validation.model.built import HowBuilt
from validation.model.listed_parts import ServerParts
from validation.model.node_facts import NodeFacts
from validation.model.points import PointState
from validation.report.customer import Customer
from validation.report.documents import RawState
from validation.report.named_findings import Finding
from validation.rules.conformance import ClaimLine
from validation.rules.fabric import Fabric

SCHEMA: Final = "elastic-ai-report/2"


class Judged(Model):
    """A criterion applied to one subject. `bound` is a position in the document's `bounds`."""

    subject: str
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    value: float | None
    low: float | None = Field(description="lower end of the 95 % interval, in the bound's unit")
    high: float | None
    samples: int
    text: str | None
    bound: int | None
    evidence: tuple[str, ...] = Field(description="ids of results")


class CriterionEntry(Model):
    """A criterion with its verdict. `decisive` is the position of the judgement that decides, None where there is none.

    `bound_words` are the bounds as the report prints them; `provisional` marks one that is no published figure.
    """

    id: str
    family: str
    statement: str
    source: str
    required: bool
    owed: bool = Field(description="whether it decides an acceptance by the run's profile")
    not_owed: str = Field(description="why it does not; empty where it is owed")
    provisional: bool
    bound_words: tuple[str, ...]
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    coverage: str
    decisive: int | None
    judgements: tuple[Judged, ...]


class WaiverEntry(Model):
    """Something that was waived, by whom, when, until when and why; `words` say it in a sentence."""

    criterion: str
    subject: str | None
    who: str
    when: str
    expires: str
    why: str
    words: str


class MissingEntry(Model):
    """A planned measurement without a usable result."""

    measurement: str
    criteria: tuple[str, ...]
    reason: str


class NodeEntry(Model):
    """A node as declared, and `found`: what its own facts said, None where none were collected."""

    name: str
    groups: tuple[str, ...]
    virtual: str | None
    emulated: bool
    os_stand_in: str | None
    slots: int
    ports: tuple[Port, ...]
    declared: Bom
    declared_stack: dict[str, str]
    found: NodeFacts | None


class Distribution(Model):
    """All samples of one metric of a result."""

    metric: str
    unit: str
    count: int
    minimum: float
    median: float
    maximum: float


class RawEntry(Model):
    """A raw log with its recorded hash, and whether the file still has it."""

    path: str
    sha256: str
    state: RawState


class ResultEntry(Model):
    """A result with its provenance. `counts` False: a later attempt took its place."""

    measurement: str
    kind: str
    suite: str
    status: ResultStatus
    error: str | None
    counts: bool
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    tool: str
    tool_version: str
    command: str = Field(description="as a shell takes it")
    started: str
    ended: str
    duration_s: float
    samples: tuple[Distribution, ...]
    raw: tuple[RawEntry, ...]


class ConformanceEntry(Model):
    """What of the founding documents' claims the run confirms. `here`: how many claims are of this site at all."""

    sentence: str
    rehearsal: bool = Field(description="true: nothing of this run confirms a claim")
    here: int
    counts: dict[str, int] = Field(description="state -> how many claims have it; every state is named")
    claims: tuple[ClaimLine, ...]


class ReportDoc(Model):
    """report.json. `rehearsal` True: virtual or emulated parts took part, and nothing is accepted.

    `judged` False: the run was stopped before its end, and no criterion has passed anything.
    """

    schema_: Literal["elastic-ai-report/2"] = Field(default="elastic-ai-report/2", alias="schema")
    run: RunInfo
    rehearsal: bool
    constructed: bool = Field(default=False, description="true: the data were made up, and the run is an example")
    judged: bool
    sign_off: SignOff
    outcome: Literal["passed", "failed", "incomplete"]
    headline: str
    customer: Customer = Field(description="the customer's words from report.yml")
    sentences: tuple[str, str, str] = Field(description="page one in English: what was tested, what came out, meaning")
    profile: AgreedProfile | None = Field(description="acceptance profile; null: everything required is owed")
    planned: int
    measured: int
    missing: tuple[MissingEntry, ...]
    counts: dict[str, int] = Field(description="verdict -> how many criteria have it; every verdict is named")
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverEntry, ...]
    points: tuple[PointState, ...] = Field(default=(), description="the punch list, as this run closes or keeps it")
    notes: tuple[str, ...]
    limits: tuple[str, ...] = Field(description="what this run cannot show, in sentences")
    left_out: tuple[str, ...] = Field(description="what the plan did not cover, in words")
    coverage: tuple[Coverage, ...] = Field(description="how many ports, pairs and leaf switches the plan meets")
    fabric: Fabric
    lab_link: LabLink | None
    nodes: tuple[NodeEntry, ...]
    parts: tuple[ServerParts, ...] = Field(description="each server's service tag, and its parts with serial numbers")
    conformance: ConformanceEntry
    built: HowBuilt | None = Field(description="how the site was built; null: the run has no record of it")
    bounds: tuple[Bound, ...]
    criteria: tuple[CriterionEntry, ...]
    pool_use: PoolUse = Field(description="held, used and idle GPU-hours, and what pooling won")
    results: tuple[ResultEntry, ...]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of report.json, as published in docs/schema."""
    schema = ReportDoc.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": SCHEMA}
