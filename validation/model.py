"""The documents that flow through a run, each validated when it is read.

Every model is frozen and refuses unknown keys, so that a run directory written by another release or edited by
hand is refused with a clear error instead of being half understood.

Units stand in the field names: `_gbps` is 10^9 bit/s, `_us` microseconds, `_s` seconds, `_bytes` bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Scalar = str | int | float | bool | None

VerdictName = Literal["pass", "fail", "waived", "not-measured", "not-applicable"]
SignOff = Literal["ACCEPTED", "REJECTED", "INCOMPLETE", "REHEARSAL"]
ResultStatus = Literal["ok", "failed", "timeout", "unparseable", "unreachable"]
ReasonCode = Literal[
    "within-bounds",  # pass
    "below-floor",  # fail: worse than the bound
    "above-maximum",  # fail: a lower-is-better metric over its bound
    "not-equal",  # fail: an exact criterion that does not match
    "not-working",  # fail: it does not do what it is for
    "above-ceiling",  # not-measured: better than physics allows, so the measurement is at fault
    "too-noisy",  # not-measured: the interval straddles the bound
    "missing-result",  # not-measured: planned, but no result exists
    "tool-failed",  # not-measured: the tool crashed, timed out, could not be parsed or the node was unreachable
    "missing-metric",  # not-measured: a result exists but lacks the metric
    "no-bound",  # not-measured: no bound is known for this fabric or platform
    "no-probe",  # not-measured: this release has no measurement for the criterion yet
    "not-selected",  # not-measured: its suite was not selected for this run
    "virtual",  # not-measured: measured, but virtual hardware cannot prove it
    "not-applicable",  # not-applicable
    "reported",  # not-applicable: measured and shown; the criterion has no bound by intention
    "waived",
]


class Model(BaseModel):
    """Base of all documents: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- what is validated -----------------------------------------------------------------------------------------


class SshTarget(Model):
    """How the controller reaches a node; the same arguments that Ansible uses. Holds paths, never secrets."""

    host: str
    port: int = 22
    user: str = "root"
    key_file: str | None = None
    extra_args: tuple[str, ...] = ()


class Port(Model):
    """A fabric port of a node. `rate_gbps` is what the inventory declares, None where it declares nothing.

    `rdma` False: the port carries TCP only, whatever the fabric, and RDMA is neither measured nor asked of it.
    """

    interface: str
    address: str  # without prefix length
    prefix: int
    rate_gbps: float | None = None
    rdma: bool = True


class Bom(Model):
    """The bill of materials that the inventory declares for a node; None means not declared."""

    model: str | None = None
    gpu_model: str | None = None
    gpu_count: int | None = None
    nic_model: str | None = None
    fabric_port_count: int | None = None


class Node(Model):
    """A managed machine. `slots` = training ranks it takes (its GPUs; on the lab declared)."""

    name: str
    groups: tuple[str, ...]
    ssh: SshTarget
    ports: tuple[Port, ...]
    slots: int = Field(default=1, ge=1)
    bom: Bom = Bom()
    stack: dict[str, str] = {}  # component -> version that must be there, e.g. {"os": "debian 12"}
    virtual: str | None = None  # e.g. "systemd-nspawn", "qemu (KVM)"; None = real hardware


class LabLink(Model):
    """The known truth of the virtual lab's links: what `toolkit lab up` shaped them to.

    `emulated` True: nodes are emulated machines, whose processor and not whose link bounds what a port carries.
    """

    rate_gbps: float = Field(gt=0)
    rtt_max_us: float = Field(gt=0)
    emulated: bool = False


class Topology(Model):
    """All nodes under test. `site` is the inventory's folder name."""

    site: str
    nodes: tuple[Node, ...]
    lab_link: LabLink | None = None

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def virtual(self) -> bool:
        """True when any node or link is virtual: the run is then a rehearsal."""
        return self.lab_link is not None or any(n.virtual for n in self.nodes)


# --- what is planned -------------------------------------------------------------------------------------------


class Endpoint(Model):
    """One end of a transport measurement: a fabric port of a node."""

    node: str
    port: str

    def __str__(self) -> str:
        """`node/port`, as verdicts name it."""
        return f"{self.node}/{self.port}"


class Measurement(Model):
    """One thing to run. `id` is unique, stable between plans of the same topology, and safe as a file name.

    `kind` selects the probe and the parser: facts, path-mtu, tcp-bandwidth, tcp-latency, training-short.
    `nodes` take part, and are in no other measurement of the same round; `endpoints` is (source, destination) for a
    transport measurement and empty otherwise.
    """

    id: str
    suite: str
    kind: str
    nodes: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] = ()
    params: dict[str, Scalar] = {}
    criteria: tuple[str, ...]
    estimated_s: float
    timeout_s: float


class Plan(Model):
    """Everything that is going to be measured, written before anything runs.

    `rounds` holds measurement ids; the measurements of one round run at the same time. `left_out` says in words
    what was not planned and why.
    """

    run: str
    fabric: str
    suites: tuple[str, ...]
    measurements: tuple[Measurement, ...]
    rounds: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = ()
    estimated_s: float

    def measurement(self, id_: str) -> Measurement:
        """The measurement with that id; KeyError if there is none."""
        for m in self.measurements:
            if m.id == id_:
                return m
        raise KeyError(id_)


# --- what was measured -----------------------------------------------------------------------------------------


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


class Result(Model):
    """One line of results.jsonl. `run` names the run that it was measured for: ids of measurements are the same in
    every run of a site. The k-th line of a measurement is its `attempt` k: what could not decide is taken again, and
    all lines stay. `facts` hold what is not a number (versions, models, addresses), `denied` what its nodes, and in a
    lab their host, were denied meanwhile.
    """

    run: str
    measurement: str
    attempt: int = Field(default=1, ge=1)
    status: ResultStatus
    error: str | None = None
    samples: tuple[Sample, ...] = ()
    facts: dict[str, Scalar | list[str]] = {}
    denied: tuple[Denied, ...] = ()
    provenance: Provenance

    def values(self, metric: str) -> list[float]:
        """All samples of `metric`, in order."""
        return [s.value for s in self.samples if s.metric == metric]


# --- what was judged -------------------------------------------------------------------------------------------


class Bound(Model):
    """Both sides of what must hold, with its derivation line by line, ready for the report.

    `floor` None = no lower side, `maximum` = upper limit that a lower-is-better metric must keep, `ceiling` = what
    physics allows (above it the measurement is at fault), `equal` = exact criteria.
    """

    metric: str
    unit: str
    floor: float | None = None
    maximum: float | None = None
    ceiling: float | None = None
    equal: str | None = None
    derivation: tuple[str, ...] = ()
    source: str
    nominal: str | None = None  # in a rehearsal: the fabric's own bound, in words


class Judgement(Model):
    """One criterion applied to one subject: a pair "a/p>b/p", a node, or the whole "cluster"."""

    criterion: str
    subject: str
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    value: float | None = None
    low: float | None = None  # 95 % interval
    high: float | None = None
    samples: int = 0
    text: str | None = None  # what was found, for criteria that compare text
    bound: Bound | None = None
    evidence: tuple[str, ...] = ()  # measurement ids


class CriterionVerdict(Model):
    """A criterion over all its subjects. `coverage` e.g. "12/12 pairs".

    `required` is what the catalogue says, `owed` whether it decides an acceptance by the run's profile; `not_owed`
    says why it does not ("" where it is owed).
    """

    id: str
    statement: str
    source: str
    required: bool
    owed: bool
    not_owed: str
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    coverage: str
    judgements: tuple[Judgement, ...] = ()


class Finding(Model):
    """The guilty node, port or link, named from the full pair matrix, with what to do about it."""

    kind: Literal["node", "port", "link", "pair", "cluster"]
    subject: str
    text: str
    remedy: str
    criteria: tuple[str, ...]
    evidence: tuple[str, ...] = ()


class AgreedProfile(Model):
    """The acceptance profile that a run is judged by: which delivery, and which test of it."""

    name: str
    title: str
    delivery: str
    test: str


class WaiverUse(Model):
    """A waiver of the run's waivers.yml. `covered`: the subjects that it lifted; `without_effect`: why it, or a part of
    it, has none ("" where all of it counts). Dates are ISO 8601.
    """

    criterion: str
    subject: str | None
    who: str
    when: str
    expires: str
    why: str
    covered: tuple[str, ...]
    without_effect: str


class VerdictDoc(Model):
    """verdict.json. `outcome` says what a rehearsal would have been signed as on hardware that it describes:
    passed (everything judged passed), failed, incomplete (a planned measurement is missing or unusable).
    """

    run: str
    fabric: str
    site: str
    sign_off: SignOff
    outcome: Literal["passed", "failed", "incomplete"]
    headline: str
    planned: int
    measured: int
    missing: tuple[str, ...]  # measurement ids without a usable result
    criteria: tuple[CriterionVerdict, ...]
    findings: tuple[Finding, ...]
    profile: AgreedProfile | None  # None: no profile was agreed on, so everything required is owed
    waivers: tuple[WaiverUse, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def owed(self) -> tuple[str, ...]:
        """Ids of the criteria that decide an acceptance, without those that have no meaning on this fabric."""
        return tuple(c.id for c in self.criteria if c.owed and c.reason_code != "not-applicable")

    @property
    def exit_code(self) -> int:
        """0 accepted or rehearsed with all judged criteria passing, 1 failed, 3 incomplete."""
        return {"passed": 0, "failed": 1, "incomplete": 3}[self.outcome]


class RunInfo(Model):
    """run.json: what was asked, by which release, when.

    `documents`: name -> SHA-256 of what the run began with (plan, topology, fabric profile, criteria, ...). `replaced`
    says that rules were replaced by later ones, which `toolkit validate --rejudge` does.
    """

    run: str
    created: str
    toolkit_version: str
    site: str
    inventory: str
    fabric: str
    suites: tuple[str, ...]
    command: tuple[str, ...]
    profile: str | None = None  # name of the acceptance profile, which stands in profile.yml
    options: dict[str, Scalar] = {}
    documents: dict[str, str]
    replaced: str | None = None
