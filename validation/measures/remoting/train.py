"""Facts of a training natively and remotely, in turns (kind remoting-train)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.remoting.facts import SAME_BITS, TITLES, Trained
from validation.measures.remoting.remoting_train_probe import HEADING, VERBS, WAYS
from validation.model import Measurement, Sample, Scalar
from validation.model.base import Model, Param
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc
from validation.probes.remoting_program import framework_of, network_of, tool_of

Way = Literal["native", "remote"]
#: By how much a loss may differ where other kernels than the native ones normalise by batch. Ours.
LOSS_WITHIN = 0.01
TENSORFLOW = "tensorflow"  # its engine


class CallCosts(Model):
    """Microseconds of the calls of a step, each kind by itself, in the middle of `rounds`: of the synchronisation
    alone; of the others with the synchronisation behind them, which are as many launches and bytes as a step has.
    """

    rounds: Count = Field(ge=1)
    synchronisation_us: Positive
    launches_us: Positive
    to_device_us: Positive
    from_device_us: Positive


class TrainRun(Model):
    """One job of elastic-ai-train. images_per_s: of each step but the first, which pays for what is done once. losses:
    of each step. weights_sha256: of the weights at its end. The counts are of the whole job. wait_us: of a step, in its
    last synchronisation, in the middle; costs: of its calls; None where the program's release did not tell.
    """

    way: Way
    turn: Count
    batch: Count = Field(ge=1)
    host: Name
    images_per_s: tuple[Positive, ...] = Field(min_length=1)
    losses: tuple[Positive, ...] = Field(min_length=2)
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    launches: Count
    bytes_to_devices: Count
    bytes_from_devices: Count
    synchronisations: Count
    wait_us: Positive | None = None
    costs: CallCosts | None = None


class OtherResult(NamedTuple):
    """A job that computed something else: another loss from `step` on; None: the same losses, and other weights."""

    turn: int
    way: Way
    batch: int
    step: int | None

    def __str__(self) -> str:
        """`turn 2, remote, batch 32: another loss from step 3 on`."""
        what = "the same losses, other weights" if self.step is None else f"another loss from step {self.step} on"
        return f"turn {self.turn}, {self.way}, batch {self.batch}: {what}"


class MadeLink(Model):
    """A link that was made on one machine: 10^9 bit/s (0: no limit), microseconds each way, and what made them."""

    gbps: float = Field(ge=0, allow_inf_nan=False)
    delay_us: float = Field(ge=0, allow_inf_nan=False)
    rate_by: Literal["tbf", "relay", ""]
    delay_by: Literal["netem", "relay", ""]

    @classmethod
    def of(cls, params: Mapping[str, Param]) -> MadeLink | None:
        """The link of a measurement's parameters; None where it has none."""
        if "rate_by" not in params:
            return None
        given = {key: params[key] for key in ("gbps", "delay_us", "rate_by")}
        return cls.model_validate({**given, "delay_by": params.get("delay_by", "")})

    @property
    def bare(self) -> bool:
        """Whether it is the loopback as it is."""
        return not self.rate_by and not self.delay_by

    @property
    def words(self) -> str:
        """`10 Gbit/s, 50 us each way`."""
        if self.bare:
            return "loopback"
        return f"{f'{self.gbps:g} Gbit/s' if self.gbps else 'no limit'}, {self.delay_us:g} us each way"

    @property
    def name(self) -> str:
        """The same for an id: `10gbps-50us`."""
        return "loopback" if self.bare else f"{self.gbps:g}gbps-{self.delay_us:g}us".replace(".", "_")


class Packets(Model):
    """What the RDMA ports of the client sent and received while it trained."""

    sent: Count
    received: Count


class RemoteTrainFacts(Trained):
    """The same training on the same GPU in both ways, with several batch sizes, in the order in which it ran. link:
    what stood between program and GPU where it was made for it; None: the fabric. packets: of RDMA, where the pool's
    leases go by verbs; None where they go by TCP.
    """

    type: Literal["remote-train"] = "remote-train"
    server: str
    device: Name
    uuid: Name
    inputs: Count
    hidden: Count
    classes: Count
    steps: Count = Field(ge=2)
    runs: tuple[TrainRun, ...] = Field(min_length=1)
    link: MadeLink | None = None
    packets: Packets | None = None

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[TrainRun, ...]) -> tuple[TrainRun, ...]:
        for batch in {run.batch for run in runs}:
            if {run.way for run in runs if run.batch == batch} != {"native", "remote"}:
                raise ValueError(f"batch {batch} was not trained both ways")
        return once(runs, "way", "turn", "batch")

    def batches(self) -> tuple[int, ...]:
        """Each batch size once, the smallest first."""
        return tuple(sorted({run.batch for run in self.runs}))

    def of(self, way: Way, batch: int) -> list[TrainRun]:
        """The jobs of a way with a batch size."""
        return [run for run in self.runs if (run.way, run.batch) == (way, batch)]

    def rates(self, way: Way, batch: int) -> list[float]:
        """Images/s of every step that counts, of all turns."""
        return [rate for run in self.of(way, batch) for rate in run.images_per_s]

    @property
    def same_bits(self) -> bool:
        """Whether both ways must have the same bits, and not just losses within `LOSS_WITHIN`."""
        return self.emulated or (self.network in SAME_BITS and self.engine != TENSORFLOW)

    def _alike(self, here: float | None, there: float | None) -> bool:
        if here is None or there is None or self.same_bits:
            return here == there
        return abs(here - there) <= LOSS_WITHIN * abs(here)

    def differing(self) -> list[OtherResult]:
        """The jobs that computed something else than the first native one of their batch size."""
        found = []
        for batch in self.batches():
            first = self.of("native", batch)[0]
            for run in (run for run in self.runs if run.batch == batch):
                pairs = zip_longest(first.losses, run.losses)
                steps = [at for at, (here, there) in enumerate(pairs, 1) if not self._alike(here, there)]
                if steps or (self.same_bits and run.weights_sha256 != first.weights_sha256):
                    found.append(OtherResult(run.turn, run.way, batch, steps[0] if steps else None))
        return found

    def differ(self, batch: int) -> int:
        """How many jobs with that batch size are among these."""
        return sum(other.batch == batch for other in self.differing())


# --- Trainings natively and remotely, in turns: each job's document under its heading --------------------------------


#: By how much a job's own rate may differ from that of its steps: both are of the same numbers.
RATE_WITHIN = 1e-6
COUNTS = ("launches", "bytes_to_devices", "bytes_from_devices", "synchronisations")
#: What every job of the measurement must have in common.
ALIKE = ("code_sha256", "inputs", "hidden", "classes", "seed", "steps", "weights", "emulated")
LARGEST_PACKET = 4096  # bytes of payload, RoCE
LOADED = ("network", "side", "thin")


def load_of(params: Mapping[str, Any]) -> tuple[str, ...]:
    """What a framework trained by the plan; nothing where elastic-ai-train did."""
    return tuple(map(str, params.get("load", ())))


def planned_load(job: Measurement) -> tuple[str, str]:
    """`ResNet-50`, `PyTorch`; "" twice where elastic-ai-train was trained."""
    load = load_of(job.params)
    network, framework = network_of(load), framework_of(load)
    return TITLES.get(network, network), framework.title if framework else ""


def loaded(job: Measurement) -> str:
    """`ResNet-50 by PyTorch`; "" where elastic-ai-train was trained."""
    network, framework = planned_load(job)
    return f"{network} by {framework}" if framework else ""


def same_keys(params: Mapping[str, Any]) -> tuple[str, ...]:
    """What all jobs of a measurement must have in common."""
    return (*ALIKE, *LOADED) if load_of(params) else ALIKE


def of_load(report: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Network and sizes of a report; ParseError where they are not those of the plan."""
    load = load_of(params)
    if not load:
        return {}
    if report["network"] != network_of(load):
        raise ParseError(f"training: {short(report['network'])} instead of {network_of(load)}")
    return {key: report[key] for key in LOADED}


def metric_of(way: str, batch: object) -> str:
    """`images_per_s_native_64`."""
    return f"images_per_s_{way}_{batch}"


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_WAY_BATCH`: one sample for each step but the first of each turn; `differing_runs`: how many jobs
    computed something else than the first native one of their batch size.
    """
    raw, reports = doc["facts"], alike(doc, params)
    first = next(iter(reports.values()))
    runs = [_run(report, *key, load_of(params)) for key, report in reports.items()]
    (device,) = first["devices"]
    facts = as_facts(
        RemoteTrainFacts,
        {
            "emulated": raw["emulated"],
            "engine": raw["engine"],
            "engine_release": raw["engine_release"],
            "server": raw["server"],
            "device": device["name"],
            "uuid": device["uuid"],
            **{key: first[key] for key in ("inputs", "hidden", "classes", "steps")},
            **of_load(first, params),
            "runs": runs,
            **({"link": _link(raw["link"], params)} if "rate_by" in params else {}),
            **({"packets": _packets(raw, runs)} if params.get("transport") == VERBS else {}),
        },
        "training",
    )
    samples = [Sample(metric="differing_runs", value=len(facts.differing()), unit="count")]
    samples += [
        Sample(metric=metric_of(run.way, run.batch), value=rate, unit="images/s")
        for run in facts.runs
        for rate in run.images_per_s
    ]
    return samples, facts


def _packets(raw: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What the client's RDMA ports carried; ParseError where it is less than the remote programs asked for: their bytes
    took another way."""
    found = {what: int(count(raw["packets"][what], f"training: packets {what}")) for what in ("sent", "received")}
    remote = [run for run in runs if run["way"] == "remote"]
    for what, key in (("sent", COUNTS[1]), ("received", COUNTS[2])):
        carried = sum(run[key] for run in remote)
        if found[what] * LARGEST_PACKET < carried or not found[what]:
            raise ParseError(
                f"training: the client's RDMA ports {what} {number_of(found[what], 'packet')} for "
                f"{number_of(carried, 'byte')}: the pool's leases are to go by verbs, and these went another way"
            )
    return found


def _link(raw: Mapping[str, Any], params: Mapping[str, Scalar]) -> dict[str, Any]:
    """The link that was made; ParseError where it is not that of the plan."""
    for key in ("gbps", "delay_us", "rate_by", "delay_by"):
        expect(params, key, raw[key], f"training: {key} of the link")
    return dict(raw)


def alike(doc: ProbeDoc, params: Mapping[str, Scalar]) -> dict[tuple[int, str, int], Mapping[str, Any]]:
    """(turn, way, batch) -> its document; ParseError unless they are of the same program on the same GPU as planned."""
    raw, reports = doc["facts"], _reports(doc["stdout"], params)
    first = next(iter(reports.values()))
    for (turn, way, batch), report in reports.items():
        what = f"training: turn {turn}, {way}, batch {batch}"
        if other := [key for key in same_keys(params) if report[key] != first[key]]:
            raise ParseError(f"{what}: {other[0]} is not that of the first job")
        # what stands in for a GPU has a name of its own
        if [one["uuid"] for one in report["devices"]] != [one["uuid"] for one in first["devices"]]:
            raise ParseError(f"{what}: another GPU than that of the first job")
        if not load_of(params) and report["devices"] != first["devices"]:
            raise ParseError(f"{what}: another GPU than that of the first job")
        if way == "native" and report["servers"]:
            raise ParseError(f"{what}: its GPU was reached through an engine")
        if way == "remote" and load_of(params) and not report["servers"]:
            raise ParseError(f"{what}: its GPU was not reached through an engine")
        if report["batch"] != batch:
            raise ParseError(f"{what}: {short(report['batch'])} images of a step")
    for key in ("steps", "inputs", "hidden"):
        expect(params, key, first[key], f"training: {key}")
    expect(params, "server", raw["server"], "training: server")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], "training: emulated"):
        raise ParseError("training: pool and program do not agree whether the GPU is emulated")
    return reports


def _reports(text: str, params: Mapping[str, Scalar]) -> dict[tuple[int, str, int], Mapping[str, Any]]:
    """(turn, way, batch) -> its document; ParseError unless all that were planned are there, each once."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError("training: no job's output is there")
    if words[0].strip():
        raise ParseError(f"training: {short(words[0].strip())} stands before the first job")
    found: dict[tuple[int, str, int], Mapping[str, Any]] = {}
    turns = 0
    columns = [words[at::5] for at in range(1, 6)]
    for turn, of, way, batch, output in zip(*columns, strict=True):
        key = (int(turn), way, int(batch))
        if key in found:
            raise ParseError(f"training: two jobs are turn {turn}, {way}, batch {batch}")
        expect(params, "turns", int(of), "training: turns")
        found[key] = json_object(output, f"training: turn {turn}, {way}, batch {batch}")
        turns = max(turns, int(of))
    planned = params.get("batches")
    batches = [int(b) for b in planned] if isinstance(planned, tuple | list) else sorted({key[2] for key in found})
    wanted = {(turn, way, batch) for turn in range(1, turns + 1) for way in WAYS for batch in batches}
    if set(found) != wanted:
        raise ParseError(f"training: {len(wanted & set(found))} of {number_of(len(wanted), 'planned job')} are there")
    return found


def trained(
    report: Mapping[str, Any], what: str, gpus: int = 1, load: tuple[str, ...] = ()
) -> tuple[list[float], list[float]]:
    """Seconds and loss of each step of one program; ParseError where they are no whole training on so many GPUs."""
    there = {device["uuid"] for device in report["devices"]}
    if report["tool"] != tool_of(load) or report["infer"] is not False or report["gpus"] != gpus or len(there) != gpus:
        raise ParseError(f"{what}: no training by {tool_of(load)} on {number_of(gpus, 'GPU')}")
    if len(report["devices"]) != gpus:
        raise ParseError(f"{what}: {number_of(len(report['devices']), 'device')} for {number_of(gpus, 'GPU')}")
    steps, batch = int(count(report["steps"], f"{what}: steps")), number(report["batch"], f"{what}: batch")
    times = [number(value, f"{what}: seconds of a step") for value in report["step_s"]]
    losses = [number(value, f"{what}: loss") for value in report["losses"]]
    if steps < 2 or len(times) != steps or len(losses) != steps:
        raise ParseError(f"{what}: {len(times)} times and {len(losses)} losses of {number_of(steps, 'step')}")
    if len(set(losses)) == 1:
        raise ParseError(f"{what}: its loss never changes: nothing was computed")
    rate = number(report["images_per_s"], f"{what}: images/s")
    if abs(rate * sum(times[1:]) / (batch * (steps - 1)) - 1) > RATE_WITHIN:
        raise ParseError(f"{what}: {rate:g} images/s do not follow from its steps")
    return times, losses


def _run(report: Mapping[str, Any], turn: int, way: str, batch: int, load: tuple[str, ...]) -> dict[str, Any]:
    what = f"training: turn {turn}, {way}, batch {batch}"
    times, losses = trained(report, what, load=load)
    return {
        "way": way,
        "turn": turn,
        "batch": batch,
        "host": report["host"],
        "images_per_s": [batch / seconds for seconds in times[1:]],
        "losses": losses,
        "weights_sha256": report["weights_sha256"],
        **{key: report[key] for key in COUNTS},
        **_costs(report, times, what),
    }


def _costs(report: Mapping[str, Any], times: list[float], what: str) -> dict[str, Any]:
    """What the calls of a step cost and how long it waited, where the program's release tells; ParseError where the
    calls are not as many as a step's, or the waiting is no part of the steps.
    """
    if "costs" not in report:
        return {}
    said, steps = report["costs"], len(times)
    of_a_step = {"launches_each": "launches", "bytes_to_device": COUNTS[1], "bytes_from_device": COUNTS[2]}
    for key, counted in of_a_step.items():
        if count(said[key], f"{what}: {key} of the costs") * steps != report[counted]:
            raise ParseError(f"{what}: costs of {short(said[key])} {key}: not those of a step")
    kinds = ("synchronisation", "launches", "to_device", "from_device")
    found = {kind: [number(value, f"{what}: cost of {kind}") for value in said[f"{kind}_s"]] for kind in kinds}
    if not found[kinds[0]] or len({len(values) for values in found.values()}) != 1:
        raise ParseError(f"{what}: costs of {', '.join(str(len(v)) for v in found.values())} rounds")
    waits = [number(value, f"{what}: seconds of waiting") for value in report["wait_s"]]
    if len(waits) != steps or any(wait > step for wait, step in zip(waits, times, strict=True)):
        raise ParseError(f"{what}: its waiting is no part of its steps")
    middle = {f"{kind}_us": median(values) * 1e6 for kind, values in found.items()}
    return {"wait_us": median(waits[1:]) * 1e6, "costs": {"rounds": len(found[kinds[0]]), **middle}}
