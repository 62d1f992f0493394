"""Answers of the commands that measure, judge and hand over."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolkit.answer_forms.base import FORMAT, Form, Time
from validation.campaign.model import Campaign
from validation.compare.model import Comparison
from validation.model import Plan, VerdictDoc
from validation.plan.outline import Outline
from validation.run.other_rules import Rejudged
from validation.signing.sums import SumDoc
from validation.trend.model import Trend


class Verdict(VerdictDoc):
    """`toolkit validate`: the verdict of a run, as verdict.json has it, and where it is."""

    run_dir: str
    report: str | None = Field(description="report.html; null where none was written")


class Validations(Form):
    """`toolkit validate --fabric A,B`: a verdict for each fabric, and the page of them all."""

    campaign: dict[str, str] = Field(description="format -> file")
    exit_code: int
    runs: list[Verdict]


class Plans(Form):
    """`toolkit validate --dry-run`: the plan of each fabric."""

    plans: list[Plan]


class OneOutline(Outline):
    """A plan without its measurements."""

    predicted_s_: float = Field(alias="predicted_s")


class Outlines(Form):
    """`toolkit validate --dry-run --summary`: rounds and times of each fabric's plan."""

    outlines: list[OneOutline]


class Judged(Rejudged):
    """`toolkit judge`: the verdict by other rules, and what is different."""

    folder: str


class Compared(Comparison):
    """`toolkit compare`: what changed from one run to another."""

    file: str | None = Field(description="what was written with --out")


class Files(Form):
    """Files that were written."""

    report: str | None = Field(description="the HTML file; null where it was not asked for")
    files: dict[str, str] = Field(description="format -> file")
    left_out: dict[str, str] = Field(description="format or run -> why it is missing")


class Trended(Files, Trend):
    """`toolkit trend`: runs of a site over time."""


class Baseline(Form):
    """`toolkit baseline`: what was made of accepted runs."""

    site: str
    fabric: str
    rehearsal: bool
    runs: int
    figures: int
    left_out: dict[str, str] = Field(description="criterion -> why it has no bound")
    file: str | None
    text: str | None = Field(description="the baseline itself, where --out names no file")


class Narrowed(Form):
    """`toolkit narrow`: which nodes a job fails for."""

    bad: dict[str, list[str]] = Field(description="node -> the good nodes it failed with")
    good: list[str]
    unsettled: list[list[str]]
    nobody_good: bool
    jobs: int
    rounds: int
    words: str


class ListedRun(Form):
    """A run of the folder."""

    run: str
    path: str
    created: Time | None = FORMAT
    site: str | None
    fabric: str | None
    sign_off: str | None
    outcome: str | None
    failed: list[str]
    signed_by: list[str] = Field(description="by the words of its signatures, which toolkit verify checks")
    fault: str | None = Field(description="why it cannot be read")


class Runs(Form):
    """`toolkit runs`: the newest first."""

    runs: list[ListedRun]


class Reported(Files):
    """`toolkit report`: what was written of a run."""

    run_dir: str
    run: str
    fabric: str
    site: str
    sign_off: str
    outcome: str
    headline: str


class CampaignFiles(Files, Campaign):
    """`toolkit report --campaign`: several runs side by side."""


class Traces(Form):
    """`toolkit report --trace`: training jobs that left a trace."""

    run_dir: str
    jobs: list[str]


class Trace(Form):
    """`toolkit report --trace JOB --out FILE`."""

    run_dir: str
    job: str
    trace: str


class Signature(Form):
    """`toolkit sign`: the statement that was signed."""

    run_dir: str
    signed: str
    run: str
    site: str
    fabric: str
    sign_off: str
    outcome: str
    profile: str
    headline: str
    toolkit: str
    name: str
    company: str
    time: Time = FORMAT
    key: str
    manifest_sha256: str
    allowed: list[str]
    rules: str
    certificate: str | None
    last_day: str = Field(description="until when the paper holds")


class Bundle(Form):
    """`toolkit bundle`: the file for the customer."""

    bundle: str
    run_dir: str
    size_bytes: int
    files: int
    signatures: list[str]


class CheckedSignature(Form):
    """A signature, as it was found."""

    file: str
    state: Literal["trusted", "intact", "bad"]
    why: str
    name: str | None
    company: str | None
    time: Time | None
    fingerprint: str | None
    principal: str | None
    sign_off: str | None
    toolkit: str | None
    rules: str | None
    allowed: list[str]
    certificate: str | None
    last_day: str | None = Field(description="until when it holds; null: signed by a release that named no day")


class Verification(Form):
    """`toolkit verify`: what was checked of a bundle or run, and what was found."""

    answer: Literal[
        "not-intact", "not-signed", "not-verified", "not-checked", "other-rules", "expired", "verified", "intact"
    ]
    good: bool
    intact: bool
    path: str
    run: str | None
    site: str | None
    fabric: str | None
    sign_off: str | None
    profile: str | None
    outcome: str | None
    headline: str | None
    files: int
    changed: list[str]
    missing: list[str]
    added: list[str]
    faults: list[str]
    notes: list[str]
    judged_again: bool
    made_again: list[str]
    unchecked: list[str]
    rules: str | None
    rules_sha256: str | None
    other_rules: list[str]
    rules_agreed: bool
    trusted: bool
    last_day: str | None = Field(description="the first last day of the good signatures")
    expired: bool = Field(description="that day has passed; what was signed is as authentic as before")
    signatures: list[CheckedSignature]


class ListedPoint(Form):
    """A point of a punch list, as its file has it."""

    id: str
    grade: Literal["A", "B", "C"] = Field(alias="class")
    text: str
    criterion: str | None
    node: str | None
    unit: str | None = Field(default=None, description="the unit whose run found it; null: of a node, or of the site")
    owner: str
    due: str
    blocking: bool
    opened: str
    opened_by: str | None = Field(description="the run that found it; null: a person did")
    closed: str | None
    closed_by: str | None = Field(description="the run that closed it; null: a person did, or it is open")
    closed_why: str | None


class Points(Form):
    """`toolkit handover points`: the punch list of a site."""

    file: str
    points: list[ListedPoint]


class OnePoint(Form):
    """`toolkit handover open` and `toolkit handover close`: the point as it is in the list now."""

    file: str
    point: ListedPoint


class PointsUpdated(Points):
    """`toolkit handover update`: what a run changed of the punch list."""

    run: str
    taken: bool = Field(description="the list is in the run now; false: the run is signed")
    closed: list[str]
    reopened: list[str]
    new: list[str]


class Summed(Form):
    """`toolkit handover sum`: the sum of units, as sum.json has it."""

    folder: str
    sum: SumDoc


class SumChecked(Form):
    """`toolkit handover check-sum`: whether a sum is as it was signed."""

    answer: Literal["not-intact", "expired", "not-checked", "intact"]
    faults: list[str]
    unchecked: list[str] = Field(description="what follows from another inventory or machine than the page's")
    signer: str
    last_day: str | None


class Evidence(Form):
    """`toolkit handover evidence`: the files for other tools."""

    files: list[str]
