"""Answers natively and remotely, in turns: each job's document under its heading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, number
from validation.measures.remoting.infer_facts import InferFacts
from validation.measures.remoting.remoting_train_probe import PROGRAM
from validation.measures.remoting.train_parse import RATE_WITHIN, alike
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def metric_of(way: str, batch: object) -> str:
    """`answer_us_native_64`."""
    return f"answer_us_{way}_{batch}"


def at_percent(times: list[float], percent: int) -> float:
    """The time that so many of a hundred do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`answer_us_WAY_BATCH`: one sample for each step but the first of each turn; `differing_runs`: how many jobs have
    other answers than the first native one of their batch size.
    """
    raw, reports = doc["facts"], alike(doc, params)
    first = next(iter(reports.values()))
    samples, runs = [], []
    for (turn, way, batch), report in reports.items():
        times = _times(report, f"answers: turn {turn}, {way}, batch {batch}")
        at = {f"p{percent}_us": at_percent(times, percent) * 1e6 for percent in (50, 99)}
        run = {"way": way, "turn": turn, "batch": batch, "images_per_s": batch * len(times) / sum(times)}
        runs.append({**run, **at, "answers_sha256": report["answers_sha256"]})
        samples += [Sample(metric=metric_of(way, batch), value=seconds * 1e6, unit="us") for seconds in times]
    facts = as_facts(
        InferFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server")},
            **{key: first[key] for key in ("inputs", "hidden", "steps")},
            "device": first["devices"][0]["name"],
            "runs": runs,
        },
        "answers",
    )
    differing = sum(len(facts.differing(batch)) for batch in facts.batches())
    return [Sample(metric="differing_runs", value=differing, unit="count"), *samples], facts


def _times(report: Mapping[str, Any], what: str) -> list[float]:
    """Seconds of each step but the first; ParseError where they are those of no whole job on one GPU."""
    if report["tool"] != PROGRAM or report["infer"] is not True or report["gpus"] != 1 or len(report["devices"]) != 1:
        raise ParseError(f"{what}: no answers by {PROGRAM} --infer on one GPU")
    steps = int(count(report["steps"], f"{what}: steps"))
    times = [number(value, f"{what}: seconds of a step") for value in report["step_s"]]
    if steps < 2 or len(times) != steps:
        raise ParseError(f"{what}: {len(times)} times of {number_of(steps, 'step')}")
    rate = number(report["images_per_s"], f"{what}: images/s")
    if abs(rate * sum(times[1:]) / (report["batch"] * (steps - 1)) - 1) > RATE_WITHIN:
        raise ParseError(f"{what}: {rate:g} images/s do not follow from its steps")
    return times[1:]
