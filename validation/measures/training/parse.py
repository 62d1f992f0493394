"""The short training job: one line of JSON from rank 0 in mpirun's output, with the time of every measured step."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, json_object, number, real, short
from validation.measures.gpu.watch import checked
from validation.measures.training import trace as training_trace
from validation.measures.training.carriers import carriers
from validation.measures.training.facts import RankDevice, TrainingFacts
from validation.measures.training.training_short_probe import NO_MEMORY, REPORT
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc
from validation.probes.train_networks import PRODUCTS

AGREEMENT = 0.01
"""Images/s is batch x ranks / seconds; both are rounded in the report. Project default."""
ON_EVERY_NODE = re.compile(r"NET/Socket\s*: Using .*?\](docker\d+|virbr\d+|cni\d+|br-[0-9a-f]{12}|lo):")
"""NCCL's sockets on an interface that has the same address on every node, and leads to none of them."""
Pairs = tuple[tuple[str, str], ...]
PLANNED: Pairs = (("ranks", "world_size"), ("warmup", "warmup"), ("steps", "steps"), ("batch", "batch"))
TIMES = ("input_s", "compute_s", "allreduce_s")


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s` of the whole job, one sample per measured step; `loss` of every step, warm-up included;
    `allreduce_ratio`, the share of a step or of kernels that the all-reduce takes, of jobs of several ranks.

    No samples where the batch did not fit into memory, which is what the job found out.
    """
    report = report_of(doc)
    as_planned(report, params)
    carried(doc, report)
    cannot = str(report.get("cannot", ""))
    if cannot:
        if not cannot.startswith(NO_MEMORY):
            raise ParseError(f"training: {short(cannot)}")
        return [], _facts(doc, report).model_copy(update={"out_of_memory": short(cannot)})
    in_that_type(report)
    if report["loss_finite"] is not True:
        step = report.get("loss_lost_step")
        since = f" from step {step} on" if step else ""
        raise ParseError(f"training: the loss is not finite{since}; the job computed nothing of use")
    if report.get("ranks_agree", True) is not True:
        raise ParseError("training: the ranks ended with different models; gradients were not shared")
    samples = [Sample(metric="images_per_s", value=rate, unit="images/s") for rate in _rates(report)]
    losses = report.get("losses")
    if losses is not None:  # older programs report the first and the last only
        if len(losses) != report["warmup"] + report["steps"]:
            raise ParseError(
                f"training: {len(losses)} losses of {number_of(report['warmup'] + report['steps'], 'step')}"
            )
        samples += [Sample(metric="loss", value=_loss(v), unit="nats") for v in losses]
    shares, by = _allreduce(report)
    samples += [Sample(metric="allreduce_ratio", value=share, unit="ratio") for share in shares]
    return samples, _facts(doc, report).model_copy(update={"allreduce_by": by})


def report_of(doc: ProbeDoc) -> dict[str, Any]:
    """Rank 0's report, as it stands; ParseError unless there is exactly one."""
    lines = [line for line in doc["stdout"].splitlines() if line.startswith(REPORT)]
    if len(lines) != 1:
        # a job whose ranks do not know of each other prints one report per rank: N jobs of one rank, not one of N
        raise ParseError(f"training: {len(lines)} reports from rank 0, exactly one is expected")
    return json_object(lines[0], "training: rank 0's report")


def without_rates(doc: ProbeDoc, report: Mapping[str, Any], params: Mapping[str, Scalar]) -> TrainingFacts:
    """What a job says that could not be trained, held against its plan."""
    as_planned(report, params)
    return _facts(doc, report)


def as_planned(report: Mapping[str, Any], params: Mapping[str, Scalar], fields: Pairs = PLANNED) -> None:
    """ParseError where a job did other than planned. `fields`: of the plan, and what the report calls them."""
    for key, field in fields:
        expect(params, key, report[field], f"training: {field}")
    for key in ("model", "precision", "framework"):
        if key in report:  # older programs know one of each
            expect(params, key, report[key], f"training: {key}")
    if len(report["hosts"]) != report["world_size"]:
        raise ParseError(f"training: {len(report['hosts'])} of {number_of(report['world_size'], 'rank')} answered")
    placed, each = len(set(report["hosts"])), params.get("ranks_per_node")
    if isinstance(each, int) and placed * each != report["world_size"]:
        raise ParseError(
            f"training: {number_of(report['world_size'], 'rank')} on {number_of(placed, 'node')}, {each} "
            "per node planned"
        )
    devices = [RankDevice.read(said) for said in report.get("devices", [])]
    if params.get("device") == "gpu" and not report.get("cannot"):
        bare = sum(not device.gpu for device in devices)
        if bare or len(devices) != report["world_size"]:
            raise ParseError(
                f"training: {bare or 'some'} of {number_of(report['world_size'], 'rank')} did not train on a GPU"
            )
    gpus = Counter((host, device) for host, device in zip(report["hosts"], devices, strict=False) if device.gpu)
    for (host, device), ranks in gpus.items():
        if ranks > 1:
            raise ParseError(f"training: {number_of(ranks, 'rank')} share {short(str(device))} of {short(host)}")
    _by_itself(report)


def _by_itself(report: Mapping[str, Any]) -> None:
    """ParseError where somebody else worked on a rank's GPU when the rank came to it."""
    for rank, one in enumerate(report.get("others", ())):
        others, held = (real(value, "training: processes of others on a GPU") for value in one)
        if others > 0:
            place = f"{short(report['devices'][rank])} of {short(report['hosts'][rank])}"
            who = f"{others:.0f} process{'es' if others > 1 else ''} of others held {held / 2**20:.0f} MiB"
            raise ParseError(f"training: rank {rank} was on {place}, where {who}: the GPU is not its own")


def carried(doc: ProbeDoc, report: Mapping[str, Any]) -> None:
    """ParseError where NCCL went over an interface that leads to no other node."""
    found = ON_EVERY_NODE.search(doc["stdout"] + "\n" + doc["stderr"])
    if found and len(set(report["hosts"])) > 1:
        raise ParseError(f"training: NCCL went over {found[1]}, which leads to no other node")


def in_that_type(report: Mapping[str, Any]) -> None:
    """ParseError where products came out in another type than the precision asks for."""
    products = report.get("products")
    if products is None:
        return
    precision = report["precision"]
    wanted, total = PRODUCTS[precision], sum(products.values())
    other = {name: count for name, count in products.items() if name != wanted}
    if not total or other:
        said = ", ".join(f"{count} of {total} products in {short(name)}" for name, count in other.items())
        raise ParseError(f"training: {precision} was asked for, and there were {said or 'no products'}")
    on_gpus = any(RankDevice.read(said).gpu for said in report["devices"])
    if on_gpus and precision in ("fp32", "tf32") and report["tf32"] is not (precision == "tf32"):
        taken = "tf32" if report["tf32"] else "fp32"
        raise ParseError(f"training: {precision} was asked for, and the GPUs computed in {taken}")


def _rates(report: Mapping[str, Any]) -> list[float]:
    rates = [number(v, "training: images/s") for v in report["images_per_s"]]
    steps = [number(v, "training: step seconds") for v in report["step_s"]]
    if len(rates) == report["steps"] + report["warmup"] != report["steps"]:
        raise ParseError(
            f"training: {len(rates)} rates of {number_of(report['steps'], 'measured step')}: the warm-up is counted"
        )
    if not len(rates) == len(steps) == report["steps"]:
        raise ParseError(f"training: {len(rates)} of {number_of(report['steps'], 'measured step')} are there")
    world = report["world_size"]
    images = number(report["batch"] * world, "training: images per step")
    for position, (rate, seconds) in enumerate(zip(rates, steps, strict=True)):
        # a step is reported to the microsecond, which matters where it is a short one
        if abs(rate * seconds - images) > AGREEMENT * images + rate * 1e-6:
            raise ParseError(f"training: step {position}: {rate:g} images/s do not fit {seconds:g} s")
    own = [number(v, "training: a rank's images/s") for v in report.get("rank_images_per_s", ())]
    if own:
        total = len(rates) * images / sum(steps)
        if len(own) != world:
            raise ParseError(f"training: rates of {len(own)} of {number_of(world, 'rank')}")
        # ranks wait for each other, so each has its share of the total; half way to the total of each is no jitter
        if world > 1 and sum(own) > total * (1 + world) / 2:
            raise ParseError(
                f"training: the ranks' rates add up to {sum(own) / total:.1f} times the job's: each reports the total"
            )
    return rates


def _allreduce(report: Mapping[str, Any]) -> tuple[list[float], str]:
    """Shares of the all-reduce, and by what; none of one rank, and of older programs."""
    if report["world_size"] < 2 or "allreduce_s" not in report:
        return [], ""
    kernels = report["allreduce_kernels"]
    by = "kernels" if kernels else "waits"
    waits, steps = report["allreduce_s"], report["step_s"]
    if len(waits) != len(steps):
        raise ParseError(f"training: {len(waits)} of {len(steps)} times of the all-reduce are there")
    shares = [real(v, "training: share of the all-reduce") for v in kernels]
    # the mean of the ranks' waits, over the slowest rank's step, each rounded
    shares = shares or [
        real(wait, "training: all-reduce seconds") / step for wait, step in zip(waits, steps, strict=True)
    ]
    if min(shares) < 0 or max(shares) > 1 + AGREEMENT:
        raise ParseError(f"training: the all-reduce takes {max(shares):.2f} of a step")
    return [min(share, 1.0) for share in shares], by


def _facts(doc: ProbeDoc, report: Mapping[str, Any]) -> TrainingFacts:
    known: dict[str, Any] = dict(doc["facts"] or report)
    told = {key: known[key] for key in TrainingFacts.model_fields if key in known and key != "type"}
    for key in TIMES:
        if key in told:
            told[key] = statistics.fmean(real(v, f"training: {key}") for v in told[key]) if told[key] else None
    watches = [checked(one) for one in known.get("watch", ())]
    if watches and len(watches) != known["world_size"]:
        raise ParseError(
            f"training: {number_of(len(watches), 'GPU')} of {number_of(known['world_size'], 'rank')} were looked at"
        )
    told["watches"] = watches
    told["courses"] = [[_point(one) for one in seen.get("course", ())] for seen in known.get("watch", ())]
    facts = as_facts(TrainingFacts, told, "training: rank 0's report")
    log = doc["stdout"] + "\n" + doc["stderr"]
    return facts.model_copy(update={"carriers": carriers(log), "trace": training_trace.summary(doc["stdout"])})


def _point(row: Sequence[Any]) -> list[float | None]:
    """Second, utilisation, heat, power and clock; what a GPU does not say is None."""
    second, *rest = row
    what = "training: the course of a GPU"
    found = [real(second, what), *(None if value is None else real(value, what) for value in rest)]
    if any(value is not None and value < 0 for value in found):
        raise ParseError(f"{what} goes below zero")
    return found


def _loss(value: Any) -> float:
    if isinstance(value, str):
        raise ParseError(f"training: a loss is {short(repr(value))}")
    loss = real(value, "training: a loss")
    if loss < 0:  # a cross entropy is never negative
        raise ParseError(f"training: a loss is {loss:g}")
    return loss
