"""Trainings natively and remotely, in turns: each job's document under its heading."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.remoting.remoting_train_probe import HEADING, PROGRAM, WAYS
from validation.measures.remoting.train_facts import RemoteTrainFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

#: By how much a job's own rate may differ from that of its steps: both are of the same numbers.
RATE_WITHIN = 1e-6
COUNTS = ("launches", "bytes_to_devices", "bytes_from_devices", "synchronisations")
#: What every job of the measurement must have in common.
ALIKE = ("code_sha256", "inputs", "hidden", "classes", "seed", "steps", "weights", "emulated")


def metric_of(way: str, batch: object) -> str:
    """`images_per_s_native_64`."""
    return f"images_per_s_{way}_{batch}"


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_WAY_BATCH`: one sample for each step but the first of each turn; `differing_runs`: how many jobs
    computed something else than the first native one of their batch size.
    """
    raw, reports = doc["facts"], alike(doc, params)
    first = next(iter(reports.values()))
    runs = [_run(report, *key) for key, report in reports.items()]
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
            "runs": runs,
            **({"link": _link(raw["link"], params)} if "rate_by" in params else {}),
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
        if other := [key for key in ALIKE if report[key] != first[key]]:
            raise ParseError(f"{what}: {other[0]} is not that of the first job")
        if report["devices"] != first["devices"]:
            raise ParseError(f"{what}: another GPU than that of the first job")
        if way == "native" and report["servers"]:
            raise ParseError(f"{what}: its GPU was reached through an engine")
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


def trained(report: Mapping[str, Any], what: str, gpus: int = 1) -> tuple[list[float], list[float]]:
    """Seconds and loss of each step of one program; ParseError where they are no whole training on so many GPUs."""
    there = {device["uuid"] for device in report["devices"]}
    if report["tool"] != PROGRAM or report["infer"] is not False or report["gpus"] != gpus or len(there) != gpus:
        raise ParseError(f"{what}: no training by {PROGRAM} on {number_of(gpus, 'GPU')}")
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


def _run(report: Mapping[str, Any], turn: int, way: str, batch: int) -> dict[str, Any]:
    what = f"training: turn {turn}, {way}, batch {batch}"
    times, losses = trained(report, what)
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
