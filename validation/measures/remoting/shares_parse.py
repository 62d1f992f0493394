"""Tenants that train on parts of one GPU at the same time: what they did together, by the times of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object, number, short
from validation.measures.remoting.remoting_shares_probe import HEADING, WHOLE
from validation.measures.remoting.shares_facts import SharesFacts
from validation.measures.remoting.train_parse import ALIKE, trained
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

LEAST_TOGETHER = 0.5
"""Share of the shortest tenant's time in which all must have trained: else nothing was shared. Ours."""

Report = Mapping[str, Any]
Tenant = tuple[str, Report]  # its part, and what its program said


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`whole_images_per_s` and `together_images_per_s`, one sample each of every turn; `differing_runs`: how many
    tenants computed something else than the first who had the whole GPU.
    """
    raw = doc["facts"]
    parts = tuple(map(str, raw["parts"]))
    expect(params, "parts", parts, "tenants: parts")
    expect(params, "server", raw["server"], "tenants: server")
    turns = _turns(doc["stdout"], parts, params)
    first = turns[0][0][0][1]
    differing = []
    for turn, (whole, shares) in enumerate(turns, 1):
        for part, report in (*whole, *shares):
            what = f"tenants: turn {turn}, {part}"
            trained(report, what)
            if other := [key for key in (*ALIKE, "batch") if report[key] != first[key]]:
                raise ParseError(f"{what}: {other[0]} is not that of the first tenant")
            if [d["uuid"] for d in report["devices"]] != [d["uuid"] for d in first["devices"]]:
                raise ParseError(f"{what}: another GPU than that of the first tenant")
            if (report["losses"], report["weights_sha256"]) != (first["losses"], first["weights_sha256"]):
                differing.append(f"turn {turn}, {part}")
    for key in ("steps", "inputs", "hidden", "batch"):
        expect(params, key, first[key], f"tenants: {key}")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], "tenants: emulated"):
        raise ParseError("tenants: pool and programs do not agree whether the GPU is emulated")
    facts = as_facts(
        SharesFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server", "parts")},
            **{key: first[key] for key in ("batch", "inputs", "hidden", "steps")},
            "device": first["devices"][0]["name"],
            "turns": [_turn(number_, *both) for number_, both in enumerate(turns, 1)],
            "differing": differing,
        },
        "tenants",
    )
    samples = [Sample(metric="differing_runs", value=len(differing), unit="count")]
    for turn_ in facts.turns:
        samples.append(Sample(metric="whole_images_per_s", value=turn_.whole_images_per_s, unit="images/s"))
        samples.append(Sample(metric="together_images_per_s", value=turn_.together_images_per_s, unit="images/s"))
    return samples, facts


def _turns(text: str, parts: tuple[str, ...], params: Mapping[str, Scalar]) -> list[tuple[list[Tenant], list[Tenant]]]:
    """Of each turn the tenant of the whole, and those of the parts; ParseError unless all are there, each once."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError("tenants: no program's output is there")
    if words[0].strip():
        raise ParseError(f"tenants: {short(words[0].strip())} stands before the first")
    found: dict[tuple[int, str, int], Report] = {}
    turns = int(words[2])
    for turn, of, part, number_, output in zip(*(words[at::5] for at in range(1, 6)), strict=True):
        key = (int(turn), part, int(number_))
        what = f"tenants: turn {turn}, {part}, number {number_}"
        if key in found or int(of) != turns:
            raise ParseError(f"{what}: is there twice, or of another number of turns")
        found[key] = json_object(output, what)
    expect(params, "turns", turns, "tenants: turns")
    of_turn = [(WHOLE, 0), *((part, at) for at, part in enumerate(parts))]
    wanted = {(turn, *one) for turn in range(1, turns + 1) for one in of_turn}
    if set(found) != wanted:
        raise ParseError(
            f"tenants: {len(wanted & set(found))} of {number_of(len(wanted), 'planned program')} are there"
        )
    return [
        ([(WHOLE, found[turn, WHOLE, 0])], [(part, found[turn, part, at]) for at, part in enumerate(parts)])
        for turn in range(1, turns + 1)
    ]


def _ends(report: Report, what: str) -> list[float]:
    """When each step ended, by the client's clock; the first, which pays for what is done once, is only a begin."""
    began = number(report["began_s"], f"{what}: its begin")
    return list(accumulate((float(seconds) for seconds in report["step_s"]), initial=began))[1:]


def _rates(tenants: Sequence[Tenant], what: str) -> tuple[float, list[float]]:
    """How long all trained at the same time (s), and the images/s of each in that time."""
    ends = [_ends(report, f"{what}, {part}") for part, report in tenants]
    begin, end = max(mine[0] for mine in ends), min(mine[-1] for mine in ends)
    shortest = min(mine[-1] - mine[0] for mine in ends)
    if end - begin < LEAST_TOGETHER * shortest:
        both = f"{max(end - begin, 0):.4g} s of {shortest:.4g}"
        raise ParseError(f"{what}: all trained at the same time for {both}: nothing was shared")
    rates = []
    for mine, (_, report) in zip(ends, tenants, strict=True):
        steps = sum(max(0.0, min(b, end) - max(a, begin)) / (b - a) for a, b in pairwise(mine))
        rates.append(report["batch"] * steps / (end - begin))
    return end - begin, rates


def _turn(turn: int, whole: list[Tenant], shares: list[Tenant]) -> dict[str, Any]:
    together_s, rates = _rates(shares, f"tenants: turn {turn}")
    return {
        "turn": turn,
        "whole_images_per_s": _rates(whole, f"tenants: turn {turn}")[1][0],
        "together_s": together_s,
        "tenants": [{"part": part, "images_per_s": rate} for (part, _), rate in zip(shares, rates, strict=True)],
    }
