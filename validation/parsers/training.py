"""The short training job: one line of JSON from rank 0 in mpirun's output, with the time of every measured step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.facts import TrainingFacts
from validation.model import Sample, Scalar
from validation.parsers.carriers import carriers
from validation.parsers.common import Parsed, ParseError, as_facts, expect, json_object, number, real, short
from validation.probes import ProbeDoc

AGREEMENT = 0.01
"""Images/s is batch x ranks / seconds; both are rounded in the report. Project default."""


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s` of the whole job, one sample per measured step; `loss` of every step, warm-up included."""
    lines = [line for line in doc["stdout"].splitlines() if line.startswith("{")]
    if len(lines) != 1:
        # a job whose ranks do not know of each other prints one report per rank: N jobs of one rank, not one of N
        raise ParseError(f"training: {len(lines)} reports from rank 0, exactly one is expected")
    report: dict[str, Any] = json_object(lines[0], "training: rank 0's report")
    for key, field in (("ranks", "world_size"), ("warmup", "warmup"), ("steps", "steps"), ("batch", "batch")):
        expect(params, key, report[field], f"training: {field}")
    if len(report["hosts"]) != report["world_size"]:
        raise ParseError(f"training: {len(report['hosts'])} of {report['world_size']} ranks answered")
    placed, each = len(set(report["hosts"])), params.get("ranks_per_node")
    if isinstance(each, int) and placed * each != report["world_size"]:
        raise ParseError(f"training: {report['world_size']} ranks on {placed} nodes, {each} per node planned")
    if report["loss_finite"] is not True:
        raise ParseError("training: the loss is not finite; the job computed nothing of use")
    if report.get("ranks_agree", True) is not True:
        raise ParseError("training: the ranks ended with different models; gradients were not shared")
    rates = [number(v, "training: images/s") for v in report["images_per_s"]]
    steps = [number(v, "training: step seconds") for v in report["step_s"]]
    if not len(rates) == len(steps) == report["steps"]:
        raise ParseError(f"training: {len(rates)} of {report['steps']} measured steps are there")
    images = number(report["batch"] * report["world_size"], "training: images per step")
    for position, (rate, seconds) in enumerate(zip(rates, steps, strict=True)):
        # a step is reported to the microsecond, which matters where it is a short one
        if abs(rate * seconds - images) > AGREEMENT * images + rate * 1e-6:
            raise ParseError(f"training: step {position}: {rate:g} images/s do not fit {seconds:g} s")
    known = doc["facts"] or report
    told = {key: known[key] for key in TrainingFacts.model_fields if key in known}
    facts = as_facts(TrainingFacts, told, "training: rank 0's report")
    facts = facts.model_copy(update={"carriers": carriers(doc["stdout"] + "\n" + doc["stderr"])})
    samples = [Sample(metric="images_per_s", value=rate, unit="images/s") for rate in rates]
    losses = report.get("losses")
    if losses is not None:  # older programs report the first and the last only
        if len(losses) != report["warmup"] + report["steps"]:
            raise ParseError(f"training: {len(losses)} losses of {report['warmup'] + report['steps']} steps")
        samples += [Sample(metric="loss", value=_loss(v), unit="nats") for v in losses]
    return samples, facts


def _loss(value: Any) -> float:
    if isinstance(value, str):
        raise ParseError(f"training: a loss is {short(repr(value))}")
    loss = real(value, "training: a loss")
    if loss < 0:  # a cross entropy is never negative
        raise ParseError(f"training: a loss is {loss:g}")
    return loss
