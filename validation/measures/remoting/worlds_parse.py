"""Trainings on several GPUs: over more and more servers (remoting-scale), and in layouts (remoting-layout)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, short
from validation.measures.remoting.remoting_layout_probe import layouts
from validation.measures.remoting.remoting_scale_probe import ONE, prefixes
from validation.measures.remoting.remoting_worlds_probe import HEADING
from validation.measures.remoting.train_parse import ALIKE, trained
from validation.measures.remoting.worlds_facts import WorldsFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

Report = Mapping[str, Any]
Wanted = Mapping[str, int]  # a job's name -> its GPUs


def metric_of(name: str) -> str:
    """`images_per_s_L2R2`."""
    return f"images_per_s_{name}"


def scale(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_NAME`: one sample for each step but the first of each turn; `differing_runs`: how many jobs
    computed something else than the first on as many GPUs.
    """
    raw = doc["facts"]
    servers = tuple(map(str, raw["servers"]))
    expect(params, "servers", servers, "scaling: servers")
    gpus = [int(count(value, "scaling: GPUs of a server")) for value in raw["gpus"]]
    if len(gpus) != len(servers) or not servers or not all(gpus):
        raise ParseError(f"scaling: {number_of(len(gpus), 'number')} of GPUs for {number_of(len(servers), 'server')}")
    wanted = {ONE: 1, **{f"servers-{many}": sum(gpus[:many]) for many in prefixes(len(servers))}}
    reports = _reports(doc["stdout"], wanted, params, "scaling")
    return _parsed(raw, servers, reports, params, "scaling")


def layout(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """The same of layouts, whose GPUs must be those of the servers that each layout names."""
    raw = doc["facts"]
    expect(params, "server", raw["server"], "layouts: server")
    expect(params, "other", raw["other"], "layouts: other server")
    gpus, other = int(count(raw["gpus"], "layouts: GPUs")), str(raw["other"])
    if not gpus:
        raise ParseError("layouts: on no GPU")
    wanted = dict.fromkeys(layouts(gpus, other), gpus)
    reports = _reports(doc["stdout"], wanted, params, "layouts")
    own, others = ([str(uuid) for uuid in raw[key]] for key in ("own", "others"))
    for (turn, name), report in reports.items():
        mine = [device["uuid"] for device in report["devices"]]
        there = sum(uuid in own for uuid in mine), sum(uuid in others for uuid in mine)
        half = gpus // 2
        expected = (half, half) if "L" in name and "R" in name else (0, gpus) if "R" in name else (gpus, 0)
        if there != expected:
            raise ParseError(f"layouts: turn {turn}, {name}: {there[0]} own GPUs and {there[1]} of the other server")
        if name.startswith("N") and report["servers"]:
            raise ParseError(f"layouts: turn {turn}, {name}: its GPUs were reached through an engine")
    return _parsed(raw, (str(raw["server"]), *([other] if other else [])), reports, params, "layouts")


def _reports(text: str, wanted: Wanted, params: Mapping[str, Scalar], what: str) -> dict[tuple[int, str], Report]:
    """(turn, name) -> its document; ParseError unless all that are wanted are there, each once, on so many GPUs."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError(f"{what}: no job's output is there")
    if words[0].strip():
        raise ParseError(f"{what}: {short(words[0].strip())} stands before the first job")
    found: dict[tuple[int, str], Report] = {}
    turns = int(words[2])
    for turn, of, name, gpus, output in zip(*(words[at::5] for at in range(1, 6)), strict=True):
        key = (int(turn), name)
        if key in found or int(of) != turns:
            raise ParseError(f"{what}: turn {turn}, {name}: is there twice, or of another number of turns")
        found[key] = json_object(output, f"{what}: turn {turn}, {name}")
        if wanted.get(name) != int(gpus) or found[key]["gpus"] != int(gpus):
            raise ParseError(f"{what}: turn {turn}, {name}: on another number of GPUs than planned")
    expect(params, "turns", turns, f"{what}: turns")
    all_wanted = {(turn, name) for turn in range(1, turns + 1) for name in wanted}
    if set(found) != all_wanted:
        raise ParseError(
            f"{what}: {len(all_wanted & set(found))} of {number_of(len(all_wanted), 'planned job')} are there"
        )
    return found


def _parsed(
    raw: Mapping[str, Any],
    servers: Sequence[str],
    reports: Mapping[tuple[int, str], Report],
    params: Mapping[str, Scalar],
    what: str,
) -> Parsed:
    first = next(iter(reports.values()))
    worlds = []
    for (turn, name), report in reports.items():
        whose = f"{what}: turn {turn}, {name}"
        times, losses = trained(report, whose, int(report["gpus"]))
        if other := [key for key in ALIKE if report[key] != first[key]]:
            raise ParseError(f"{whose}: {other[0]} is not that of the first job")
        if report["batch"] * first["gpus"] != first["batch"] * report["gpus"]:
            raise ParseError(f"{whose}: another share of images for each GPU than in the first job")
        rates = [report["batch"] / seconds for seconds in times[1:]]
        world = {"name": name, "turn": turn, "gpus": report["gpus"], "images_per_s": rates, "losses": losses}
        worlds.append({**world, "weights_sha256": report["weights_sha256"]})
    for key in ("steps", "inputs", "hidden"):
        expect(params, key, first[key], f"{what}: {key}")
    batch = first["batch"] // first["gpus"]
    expect(params, "batch", batch, f"{what}: batch")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], f"{what}: emulated"):
        raise ParseError(f"{what}: pool and program do not agree whether the GPUs are emulated")
    facts = as_facts(
        WorldsFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "client")},
            **{key: first[key] for key in ("inputs", "hidden", "steps")},
            "servers": list(servers),
            "device": first["devices"][0]["name"],
            "batch": batch,
            "worlds": worlds,
        },
        what,
    )
    samples = [Sample(metric="differing_runs", value=len(facts.differing()), unit="count")]
    samples += [
        Sample(metric=metric_of(world.name), value=rate, unit="images/s")
        for world in facts.worlds
        for rate in world.images_per_s
    ]
    return samples, facts
