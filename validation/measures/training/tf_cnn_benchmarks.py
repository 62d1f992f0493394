"""tf_cnn_benchmarks: rates of blocks of steps and of the whole job, from what its processes print between each other.

A line `N images/sec: R +/- U (jitter = J) L` has the rate of one process over all of its steps up to step N, without
the warm-up; the rate of the steps between two lines follows from both. Every process of Horovod prints its own lines,
and all of them print the same total of the job: their sum says nothing.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, number, real, short
from validation.measures.training.carriers import carriers
from validation.measures.training.facts import TrainingFacts
from validation.measures.training.tf_cnn_benchmarks_probe import EVERY, NAMES
from validation.measures.training.training_short_probe import NO_MEMORY
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc
from validation.probes.tf_rank import MARK

STEP = re.compile(
    r"^(?P<step>\d+)\timages/sec: (?P<rate>\S+) \+/- \S+ \(jitter = \S+\)(?:\t(?P<loss>\S+))?.*$", re.MULTILINE
)
TOTAL = re.compile(r"^total images/sec: (\S+)\s*$", re.MULTILINE)
AGREEMENT = 0.05
"""Processes of one job tell of the same steps, each by its own clock, and the total counts what is between the steps.
Project default."""
FASTEST = 10
"""How many times faster than all steps together the first ones may be. Project default."""
PRINTED = 0.05  # images/s: half a digit of what is printed
COARSE = 0.02  # of a block's rate, more than which the printed digits leave open: then the total is the only sample
WHAT = "tf_cnn_benchmarks"
OPTIONAL = ("tensorflow", "dataset", "update", "devices")
"""What is told of a job and decides nothing; devices do where they are to be GPUs."""
TRAINING = ("training", "BenchmarkMode.TRAIN")
"""The mode as its releases call it."""


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s` of the whole job, a sample for each block of EVERY steps; `loss` by the first process's lines.

    No samples where the batch did not fit into memory.
    """
    text = doc["stdout"]
    placed = _placed(text, params)
    if re.search(r"OOM when allocating|ResourceExhaustedError", text + doc["stderr"]) and not TOTAL.search(text):
        why = f"{NO_MEMORY}: a batch of {params.get('batch')} images does not fit"
        return [], _facts(doc, params, placed, {}, why)
    head = _head(text, len(placed))
    _as_planned(head, params)
    blocks, losses = _blocks(text, len(placed), head, params)
    total = _total(text, len(placed), blocks)
    samples = [Sample(metric="images_per_s", value=rate, unit="images/s") for rate in blocks or [total]]
    samples += [Sample(metric="loss", value=loss, unit="nats") for loss in losses]
    return samples, _facts(doc, params, placed, head, "", losses)


def _placed(text: str, params: Mapping[str, Scalar]) -> list[str]:
    """Host of each process, by rank; ParseError where the launcher made several jobs, or put them elsewhere."""
    told = [json.loads(line[len(MARK) :]) for line in text.splitlines() if line.startswith(MARK)]
    if not told:
        raise ParseError(f"{WHAT}: no process said where it runs")
    ranks = sorted(int(one["rank"]) for one in told)
    if ranks != list(range(len(told))) or {one["world"] for one in told} != {len(told)}:
        raise ParseError(
            f"{WHAT}: {number_of(len(told), 'process')} of jobs of {short({one['world'] for one in told})}, "
            f"ranks {ranks}"
        )
    hosts = [str(one["host"]) for one in sorted(told, key=lambda one: int(one["rank"]))]
    planned = params.get("hosts")
    if isinstance(planned, (list, tuple)) and len(set(hosts)) != len(planned):
        raise ParseError(f"{WHAT}: ran on {number_of(len(set(hosts)), 'node')}, {len(planned)} planned")
    return hosts


def _head(text: str, processes: int) -> dict[str, Any]:
    """What the program says of the job; all processes have to say the same."""
    found: dict[str, Any] = {}
    for key, pattern in (
        ("tensorflow", r"^TensorFlow:\s+(\S+)$"),
        ("model", r"^Model:\s+(\S+)$"),
        ("dataset", r"^Dataset:\s+(.+)$"),
        ("mode", r"^Mode:\s+(\S+)$"),
        ("global_batch", r"^Batch size:\s+(\S+) global$"),
        ("batch", r"^\s+(\S+) per device$"),
        ("steps", r"^Num batches:\s+(\d+)$"),
        ("devices", r"^Devices:\s+(\[.*\])$"),
        ("update", r"^Variables:\s+(\S+)$"),
    ):
        said = re.findall(pattern, text, re.MULTILINE)
        if not said and key in OPTIONAL:
            continue
        if len(said) not in (1, processes) or len(set(said)) != 1:
            raise ParseError(
                f"{WHAT}: {number_of(len(said), 'line')} of {number_of(processes, 'process')} tell {key}: "
                f"{short(sorted(set(said)))}"
            )
        found[key] = said[0]
    for key in ("global_batch", "batch", "steps"):
        found[key] = int(number(float(found[key]), f"{WHAT}: {key}"))
    return found


def _as_planned(head: Mapping[str, Any], params: Mapping[str, Scalar]) -> None:
    names = {theirs: ours for ours, theirs in NAMES.items()}
    expect(params, "model", names.get(head["model"], head["model"]), f"{WHAT}: model")
    expect(params, "batch", head["batch"], f"{WHAT}: images per device")
    expect(params, "steps", head["steps"], f"{WHAT}: steps")
    if head["mode"] not in TRAINING:
        raise ParseError(f"{WHAT}: the mode is {short(head['mode'])}, and not training")
    devices = head["global_batch"] / head["batch"]
    ranks = params.get("ranks")
    if isinstance(ranks, int) and devices != ranks:
        raise ParseError(
            f"{WHAT}: {head['global_batch']} images of a step at {head['batch']} per device are "
            f"{number_of(devices, 'device')}, "
            f"{ranks} are planned: jobs that do not know of each other, or Horovod without MPI"
        )
    if params.get("device") == "gpu" and "gpu" not in head.get("devices", "").lower():
        raise ParseError(
            f"{WHAT}: trained on {short(head.get('devices', 'devices that it does not name'))}, and not on GPUs"
        )


def _blocks(
    text: str, processes: int, head: Mapping[str, Any], params: Mapping[str, Scalar]
) -> tuple[list[float], list[float]]:
    """Rates of the job in blocks of EVERY steps, none where the print is too coarse; losses of the first process."""
    rates: dict[int, list[float]] = defaultdict(list)
    losses: dict[int, float] = {}
    for line in STEP.finditer(text):
        step = int(line["step"])
        rates[step].append(number(_float(line["rate"]), f"{WHAT}: images/sec at step {step}"))
        if line["loss"] is not None:
            loss = _float(line["loss"])
            if not math.isfinite(loss):
                raise ParseError(f"{WHAT}: the loss is not finite at step {step}; the job computed nothing of use")
            if loss < 0:
                raise ParseError(f"{WHAT}: a loss of {loss:g} at step {step}, and cross-entropy is never below zero")
            losses.setdefault(step, loss)
    steps = head["steps"]
    wanted = [1, *range(EVERY, steps + 1, EVERY)]
    if sorted(rates) != wanted:
        raise ParseError(f"{WHAT}: lines of steps {short(sorted(rates))}, those of {short(wanted)} are expected")
    for step, each in rates.items():
        if len(each) != processes:
            raise ParseError(f"{WHAT}: {len(each)} of {number_of(processes, 'process')} tell of step {step}")
        if max(each) > FASTEST * min(rates[steps]):
            raise ParseError(f"{WHAT}: {max(each):g} images/s at step {step}, {min(rates[steps]):g} over all steps")
        if max(each) > (1 + AGREEMENT) * min(each) and step == steps:
            raise ParseError(f"{WHAT}: processes of one job at {min(each):g} and {max(each):g} images/s")
    images = head["global_batch"]
    seconds, at, found = 0.0, 0, []
    for step in wanted[1:]:
        rate = processes * statistics.fmean(rates[step])
        whole = step * images / rate
        took = whole - seconds
        if took <= 0:
            raise ParseError(f"{WHAT}: {number_of(step - at, 'step')} up to step {step} took {took:g} s")
        # both ends are printed to a tenth: what that leaves open of the time between them
        open_ = 2 * processes * PRINTED / rate * whole
        if open_ > COARSE * took:
            return [], list(losses.values())
        found.append((step - at) * images / took)
        seconds, at = whole, step
    return found, [real(loss, f"{WHAT}: loss") for loss in losses.values()]


def _total(text: str, processes: int, blocks: Sequence[float]) -> float:
    """Rate of the whole job, which every process prints; ParseError where they contradict each other or the steps."""
    said = [number(_float(value), f"{WHAT}: total images/sec") for value in TOTAL.findall(text)]
    if len(said) not in (1, processes) or not said:
        raise ParseError(f"{WHAT}: {len(said)} totals of {number_of(processes, 'process')}: the job came to no end")
    if max(said) > (1 + AGREEMENT) * min(said):
        raise ParseError(f"{WHAT}: processes of one job tell totals from {min(said):g} to {max(said):g} images/s")
    total = statistics.fmean(said)
    by_steps = statistics.harmonic_mean(blocks) if blocks else total
    if abs(by_steps - total) > 2 * AGREEMENT * total:
        raise ParseError(f"{WHAT}: a total of {total:g} images/s does not fit its steps, {by_steps:g} images/s")
    return total


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParseError(f"{WHAT}: {short(text)} is no number") from None


def _facts(
    doc: ProbeDoc,
    params: Mapping[str, Scalar],
    placed: Sequence[str],
    head: Mapping[str, Any],
    no_memory: str,
    losses: Sequence[float] = (),
) -> TrainingFacts:
    ranks = int(str(params["ranks"]))
    each = max(1, ranks // len(placed))
    told = {
        "world_size": ranks, "hosts": [host for host in placed for _ in range(each)], "batch": params["batch"],
        "warmup": params["warmup"], "steps": params["steps"], "threads": 0, "python": "", "torch": "", "horovod": "",
        "mpi": doc["facts"].get("mpi", ""), "model": params["model"], "precision": params["precision"],
        "framework": "tf_cnn_benchmarks", "tensorflow": head.get("tensorflow", ""), "out_of_memory": no_memory,
        "loss_first": losses[0] if losses else None, "loss_last": losses[-1] if losses else None,
    }  # fmt: skip
    log = doc["stdout"] + "\n" + doc["stderr"]
    return as_facts(TrainingFacts, told, f"{WHAT}: the job").model_copy(update={"carriers": carriers(log)})
