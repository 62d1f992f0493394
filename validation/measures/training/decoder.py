"""A decoder's training: tokens/s, TFLOP/s of the model for each GPU, its loss beside a recorded one; facts and judges.

The floor of a GPU is a share of the peak of its data sheet. What others published of its model stands beside the rate
(decoder-losses.yml has the sources).
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, json_object, number, real, short
from validation.kinds.record import Kind
from validation.measures.compute.gpu_rates import peak
from validation.measures.gpu.watch import GpuWatch, checked
from validation.measures.training.facts import RankDevices
from validation.measures.training.parse import PLANNED, as_planned, carried, in_that_type
from validation.measures.training.training_short_probe import NO_MEMORY, REPORT
from validation.model import Bound, Call, Job, Judgement, Measurement, Sample, Subject, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts
from validation.model.load import load_yaml
from validation.probes import ProbeDoc
from validation.probes.train_decoders import DECODERS
from validation.rules.criterion import Criterion

KIND = "training-decoder"
FILE = Path(__file__).with_name("decoder-losses.yml")
NO_FSDP = "fully_shard"  # in the words of a torch without it
_WHAT = "decoder"
SLACK = 0.01  # tokens/s against seconds, both rounded
AGAIN = 3 / 4
"""Of the executed operations what counts, where every layer's way forward is computed a second time: 6 of 8 N."""


class Curve(Model):
    """The losses of a short run. `tolerance`: what repeats on other processors, ranks and kernels differed by, times
    the factor that the file says."""

    model: str
    precision: str
    sequences: Count  # of a step, over all ranks
    tolerance: float = Field(gt=0)
    losses: tuple[float, ...] = Field(min_length=10)


class Published(Model):
    """TFLOP/s of the model for each GPU, as somebody published them of GPUs whose name matches."""

    gpu: str
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    source: str


class Recorded(Model):
    """decoder-losses.yml."""

    curves: tuple[Curve, ...]
    published: tuple[Published, ...]


@cache
def recorded() -> Recorded:
    """That of this release."""
    return load_yaml(FILE, Recorded)


class DecoderFacts(Facts):
    """What a job says of itself. `collective_by`: shares of the time of GPU kernels, or of waits on processors."""

    no_figure: ClassVar[bool] = True
    type: Literal["decoder"] = "decoder"
    world_size: Count
    hosts: tuple[str, ...]
    devices: RankDevices
    model: str
    precision: str
    sharding: Literal["ddp", "fsdp"]
    batch: Count
    context: Count
    warmup: Count
    parameters: Count
    flops_per_token: Count
    torch: str
    framework: str
    launcher: str = ""
    collective_share: float | None = Field(default=None, ge=0, le=1)
    collective_by: Literal["", "kernels", "waits"] = ""
    losses: tuple[float, ...] = ()
    watches: tuple[GpuWatch, ...] = ()
    cannot: str = ""

    @property
    def on_gpus(self) -> bool:
        """Whether every rank had a GPU."""
        return bool(self.devices) and all(device.gpu for device in self.devices)

    def tflops(self, tokens_per_s: float) -> float:
        """Of the model, for each rank."""
        return tokens_per_s * self.flops_per_token / self.world_size / 1e12

    def why_no_figure(self) -> str:
        """Why it trained nothing."""
        return self.cannot


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`tokens_per_s` of each measured step, and `loss` of every step, both of the whole job."""
    lines = [line for line in doc["stdout"].splitlines() if line.startswith(REPORT)]
    if len(lines) != 1:
        raise ParseError(f"{_WHAT}: {number_of(len(lines), 'report')} of rank 0, exactly one is expected")
    report: Any = json_object(lines[0], f"{_WHAT}: rank 0's report")
    as_planned(report, params, (*PLANNED, ("sharding", "sharding")))
    carried(doc, report)
    shape = DECODERS.get(report["model"])
    if shape is None or (report["flops_per_token"], report["parameters"]) != (shape.flops, shape.parameters):
        raise ParseError(f"{_WHAT}: {short(report['model'])} of {report['parameters']} parameters is none of ours")
    keys = set(DecoderFacts.model_fields) - {"type", "losses", "collective_share", "watches"}
    told = {key: report[key] for key in keys if key in report}
    if report["cannot"]:
        known = str(report["cannot"])
        if not known.startswith(NO_MEMORY) and NO_FSDP not in known:
            raise ParseError(f"{_WHAT}: {short(known)}")
        return [], as_facts(DecoderFacts, told, _WHAT)
    if report["loss_finite"] is not True:
        raise ParseError(f"{_WHAT}: the loss is not finite; the job computed nothing of use")
    in_that_type(report)
    if report["sharding"] == "ddp" and report["ranks_agree"] is not True:
        raise ParseError(f"{_WHAT}: the ranks ended with different models; gradients were not shared")
    rates = [number(v, f"{_WHAT}: tokens/s") for v in report["tokens_per_s"]]
    seconds = [number(v, f"{_WHAT}: seconds of a step") for v in report["step_s"]]
    losses = [real(v, f"{_WHAT}: a loss") for v in report["losses"]]
    steps, warmup = (int(count(report[key], f"{_WHAT}: {key}")) for key in ("steps", "warmup"))
    if len(rates) != steps or len(seconds) != steps or len(losses) != steps + warmup or min(losses) < 0:
        raise ParseError(f"{_WHAT}: {len(rates)} rates and {len(losses)} losses of {warmup} + {steps} steps")
    moved = report["batch"] * report["world_size"] * shape.context
    if any(abs(rate * s - moved) > SLACK * moved + rate * 1e-6 for rate, s in zip(rates, seconds, strict=True)):
        raise ParseError(f"{_WHAT}: tokens/s do not fit the seconds of the steps")
    if report["counted"] != shape.parameters:
        raise ParseError(f"{_WHAT}: {report['counted']} parameters were trained, {shape.parameters} are the model's")
    shares = [real(v, f"{_WHAT}: share of collectives") for v in report["collective_share"]]
    share = min(1.0, statistics.median(shares)) if shares else None
    watches = [checked(one) for one in report.get("watch", ())]
    if len(watches) not in (0, report["world_size"]):
        raise ParseError(f"{_WHAT}: {number_of(len(watches), 'GPU')} of {report['world_size']} ranks were looked at")
    measured = {"losses": losses, "collective_share": share, "watches": watches}
    found = as_facts(DecoderFacts, {**told, **measured}, _WHAT)
    samples = [Sample(metric="tokens_per_s", value=rate, unit="tokens/s") for rate in rates]
    return [*samples, *(Sample(metric="loss", value=loss, unit="nats") for loss in losses)], found


def _job(m: Measurement, topology: Topology) -> Job:
    """Launched as a short training is; one with its own program."""
    from validation.measures.training.kinds import job

    base = job(m, topology)
    given = {key: value for key, value in base.probe.params.items() if key not in ("framework", "data")}
    framework = {} if topology.here is not None else {"framework": "ddp"}
    return Job(node=base.node, probe=Call(probe=KIND, params={**given, **framework, "sharding": m.params["sharding"]}))


KINDS = (
    Kind(
        name=KIND,
        title="Training of a decoder",
        measures="Trains a transformer decoder data-parallel and measures tokens per second and its losses.",
        tool="the toolkit's decoder with torch's DDP or FSDP, in the training container",
        more="explanation/measuring/training.md",
        job=_job,
        parse=parse,
        headline="tokens_per_s",
        by_daemon=True,
    ),
)


def _about(m: Measurement) -> Subject:
    return Subject(kind="cluster", op=f"{m.params['model']}, {m.params['sharding']}, {m.params['ranks']} ranks")


def _rate(case: Case, m: Measurement) -> float:
    """Tokens/s over all measured steps."""
    values = case.latest[m.id].values("tokens_per_s")
    return len(values) / sum(1 / value for value in values)


@method("decoder-tflops", "TFLOP/s of the model for each GPU against its peak", counts="jobs")
def judge_tflops(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job."""
    return [_without_fsdp(case, criterion, m) or _tflops(case, criterion, m) for m in case.serving(criterion)]


def _without_fsdp(case: Case, criterion: Criterion, m: Measurement) -> Judgement | None:
    """Of a job that this image's torch has no means for, where the same decoder trained without them; else None."""
    result = case.latest.get(m.id)
    facts = result.facts_of(DecoderFacts) if result is not None else None
    if facts is None or NO_FSDP not in facts.cannot:
        return None
    others = [one for one in case.serving(criterion) if one.params["model"] == m.params["model"]]
    if not any(one.params["sharding"] == "ddp" and case.usable(one.id) is not None for one in others):
        return None
    why = f"{facts.cannot}; the same decoder trained without it"
    return judgement(criterion, _about(m), "not-applicable", "not-applicable", why, [m.id])


def _tflops(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    about = _about(m)
    facts = facts_for(case, criterion, about, m.id, DecoderFacts, None)
    if isinstance(facts, Judgement):
        return facts
    rate = _rate(case, m)
    value = facts.tflops(rate)
    shown = Summary(value, 0.0, value, value, len(case.latest[m.id].values("tokens_per_s")))
    text = f"{rate:.5g} tokens/s, {value:.4g} TFLOP/s of the model for each of {facts.world_size} ranks"
    if facts.collective_share is not None:
        what = "the time of kernels" if facts.collective_by == "kernels" else "a step is waited"
        text += f"; collectives: {facts.collective_share:.1%} of {what}"
    text += _scaled(case, criterion, m, rate) + _published(facts.devices[0].name if facts.devices else "", value)
    if not facts.on_gpus:
        why = f"processors, which stand for no GPU: {text}"
        return judgement(criterion, about, "not-measured", "virtual" if case.virtual else "missing-metric", why, [m.id],
                         summary=shown, text=text)  # fmt: skip
    bound = _floor(criterion, facts)
    if bound is None:
        why = f"no peak is known of {facts.devices[0].name}; {text}"
        return judgement(criterion, about, "not-measured", "no-bound", why, [m.id], summary=shown, text=text)
    found = against(criterion, about, [m.id], shown, bound)
    return found.model_copy(update={"text": text, "reason": f"{found.reason}; {text}"})


def _scaled(case: Case, criterion: Criterion, m: Measurement, rate: float) -> str:
    """The same job on the fewest ranks, beside it; "" where this is it."""
    same = [other for other in case.serving(criterion) if case.usable(other.id) is not None
            and all(other.params[key] == m.params[key] for key in ("model", "sharding", "precision"))]  # fmt: skip
    least = min(same, key=lambda other: int(str(other.params["ranks"])), default=m)
    few, many = (int(str(one.params["ranks"])) for one in (least, m))
    if few == many or not case.latest[least.id].values("tokens_per_s"):
        return ""
    return f"; {rate / many / (_rate(case, least) / few):.3f} of the rate for each rank on {number_of(few, 'rank')}"


def _floor(criterion: Criterion, facts: DecoderFacts) -> Bound | None:
    highest, share = peak(facts.devices[0].name, "bf16"), criterion.bound.value or 0.0
    if highest is None:
        return None
    line = f"{highest[1]}: peak {highest[0]:g} TFLOP/s in bf16; floor = {share:g} x the peak"
    if DECODERS[facts.model].sharded:
        share *= AGAIN
        line += f" x {AGAIN:g}, for every layer is computed twice and counted once"
    return Bound(metric=criterion.metric or "", unit="TFLOP/s", floor=share * highest[0], ceiling=highest[0],
                 derivation=(line,), source=criterion.source)  # fmt: skip


def _published(name: str, value: float) -> str:
    """What somebody published of such a GPU, beside it: of another model, by programs made fast; "" of none."""
    said = next((one for one in recorded().published if re.search(one.gpu, name)), None)
    if said is None:
        return ""
    return f"; {value / said.low:.2f} of the {said.low:g} to {said.high:g} TFLOP/s of {said.source}"


@method("decoder-losses", "each loss of a short run against the recorded one of the same steps", counts="jobs")
def judge_losses(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job."""
    return [_without_fsdp(case, criterion, m) or _losses(case, criterion, m) for m in case.serving(criterion)]


def _losses(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    about = _about(m)
    facts = facts_for(case, criterion, about, m.id, DecoderFacts, None)
    if isinstance(facts, Judgement):
        return facts
    curve = curve_of(facts)
    if curve is None:
        why = (
            f"no curve is recorded of {facts.model} in {facts.precision} with "
            f"{number_of(facts.batch * facts.world_size, 'sequence')} of a step; its loss went from "
            f"{facts.losses[0]:.4f} to {facts.losses[-1]:.4f}"
        )
        return judgement(criterion, about, "not-measured", "no-bound", why, [m.id])
    pairs = list(zip(facts.losses, curve.losses, strict=False))
    off = [abs(mine - theirs) for mine, theirs in pairs]
    most = max(off)
    shown = Summary(most, 0.0, most, most, len(off))
    line = f"{len(off)} losses, each within {curve.tolerance:g} nats of the recorded one"
    bound = Bound(metric=criterion.metric or "", unit="nats", maximum=curve.tolerance, derivation=(line,),
                  source=criterion.source)  # fmt: skip
    if len(facts.losses) < len(curve.losses):
        why = f"{len(facts.losses)} steps, the recorded curve has {len(curve.losses)}"
        return judgement(criterion, about, "not-measured", "missing-metric", why, [m.id], summary=shown, bound=bound)
    at = off.index(most)
    text = (
        f"loss from {pairs[0][0]:.4f} to {pairs[-1][0]:.4f}; at most {most:.2g} from the recorded curve (step {at + 1})"
    )
    if not most <= curve.tolerance or not math.isfinite(most):
        why = f"{text}, {curve.tolerance:g} is allowed"
        return judgement(criterion, about, "fail", "not-equal", why, [m.id], summary=shown, text=text, bound=bound)
    return judgement(criterion, about, "pass", "within-bounds", text, [m.id], summary=shown, text=text, bound=bound)


def curve_of(facts: DecoderFacts) -> Curve | None:
    """The recorded curve of the same job; None where there is none."""
    asked = (facts.model, facts.precision, facts.batch * facts.world_size)
    return next((one for one in recorded().curves if (one.model, one.precision, one.sequences) == asked), None)
