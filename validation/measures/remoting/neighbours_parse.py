"""A tenant beside its neighbours; boot ids around changes of parts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object, number, real, short
from validation.measures.remoting.neighbours_facts import NeighbourFacts, NoRebootFacts
from validation.measures.remoting.remoting_neighbours_probe import CASES, HEADING
from validation.measures.remoting.train_parse import ALIKE, trained
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def metric_of(case: str) -> str:
    """`images_per_s_noise`."""
    return f"images_per_s_{case}"


def neighbours(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_CASE`: one sample for each step but the first of each turn; `harmed`: what a neighbour's fault did
    beyond it, 0 where nothing.
    """
    raw, reports = doc["facts"], _reports(doc["stdout"], params)
    first = reports[1, "alone"]
    if "failed" in first:
        raise ParseError(f"neighbours: alone the tenant did not train: {short(first['failed'])}")
    samples, runs, ends = [], [], []
    for (turn, case), report in reports.items():
        what = f"neighbours: turn {turn}, {case}"
        if case == "neighbour":
            ends.append(_end(report, reports[turn, "fault"], turn, what))
            continue
        if "failed" in report:
            words = str(report["failed"]) or "without a word"
            runs.append({"beside": case, "turn": turn, "failed": words, "losses": [], "weights_sha256": ""})
            continue
        times, losses = trained(report, what)
        if other := [key for key in (*ALIKE, "batch") if report[key] != first[key]]:
            raise ParseError(f"{what}: {other[0]} is not that of the first training")
        if [d["uuid"] for d in report["devices"]] != [d["uuid"] for d in first["devices"]]:
            raise ParseError(f"{what}: another GPU than that of the first training")
        run = {"beside": case, "turn": turn, "failed": "", "losses": losses}
        runs.append({**run, "weights_sha256": report["weights_sha256"]})
        samples += [Sample(metric=metric_of(case), value=report["batch"] / s, unit="images/s") for s in times[1:]]
    for key in ("steps", "inputs", "hidden", "batch"):
        expect(params, key, first[key], f"neighbours: {key}")
    expect(params, "server", raw["server"], "neighbours: server")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], "neighbours: emulated"):
        raise ParseError("neighbours: pool and program do not agree whether the GPU is emulated")
    facts = as_facts(
        NeighbourFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server")},
            **{key: first[key] for key in ("batch", "steps")},
            "device": first["devices"][0]["name"],
            "noise": params.get("noise", 0),
            "runs": runs,
            "ends": ends,
        },
        "neighbours",
    )
    return [Sample(metric="harmed", value=len(facts.by_fault()), unit="count"), *samples], facts


def _reports(text: str, params: Mapping[str, Scalar]) -> dict[tuple[int, str], Mapping[str, Any]]:
    """(turn, case) -> its document; ParseError unless all are there, each once."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError("neighbours: no program's output is there")
    if words[0].strip():
        raise ParseError(f"neighbours: {short(words[0].strip())} stands before the first")
    found: dict[tuple[int, str], Mapping[str, Any]] = {}
    turns = int(words[2])
    for turn, of, case, output in zip(*(words[at::4] for at in range(1, 5)), strict=True):
        key = (int(turn), case)
        if key in found or int(of) != turns:
            raise ParseError(f"neighbours: turn {turn}, {case}: is there twice, or of another number of turns")
        found[key] = json_object(output, f"neighbours: turn {turn}, {case}")
    expect(params, "turns", turns, "neighbours: turns")
    wanted = {(turn, case) for turn in range(1, turns + 1) for case in (*CASES, "neighbour")}
    if set(found) != wanted:
        raise ParseError(
            f"neighbours: {len(wanted & set(found))} of {number_of(len(wanted), 'planned program')} are there"
        )
    return found


def _end(end: Mapping[str, Any], tenant: Mapping[str, Any], turn: int, what: str) -> dict[str, Any]:
    """How the neighbour ended; ParseError where its kernel did not fail, or not while the tenant trained."""
    if end["status"] == 0:
        raise ParseError(f"{what}: its kernel wrote where no memory is, and nothing failed")
    if "failed" not in tenant:
        times = [number(seconds, f"{what}: seconds of a step") for seconds in tenant["step_s"]]
        steps = list(accumulate(times, initial=number(tenant["began_s"], f"{what}: the tenant's begin")))
        at = real(end["ended_s"], f"{what}: its end")
        if not steps[0] < at < steps[-1]:
            began, ended = f"{at - steps[0]:.4g}", f"{steps[-1] - steps[0]:.4g}"
            raise ParseError(f"{what}: its kernel failed {began} s after the tenant began, which trained for {ended} s")
    return {"turn": turn, **{key: end[key] for key in ("status", "words", "after")}}


def noreboot(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`reboots`: how often a machine had another boot id than before; `change_s`: seconds of each change of parts."""
    raw, said = doc["facts"], json_object(doc["stdout"], "changes of parts")
    expect(params, "server", raw["server"], "changes of parts: server")
    flag(raw["emulated"], "emulated")
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "server")}
    facts = as_facts(NoRebootFacts, {**known, **said}, "changes of parts")
    expect(params, "wholes", tuple("+".join(change.parts) for change in facts.changes), "changes of parts")
    samples = [Sample(metric="reboots", value=len(facts.reboots()), unit="count")]
    return [*samples, *(Sample(metric="change_s", value=c.seconds, unit="s") for c in facts.changes)], facts
