"""Burn-in: windows, comparisons and digests of each device, held against the time and against each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, real
from validation.measures.compute.burn_copies_probe import window_s
from validation.measures.compute.burn_in_facts import BurnFacts
from validation.measures.compute.exact import reference as turn
from validation.measures.gpu.watch_parse import watch_of
from validation.model import Sample
from validation.probes import ProbeDoc, exact_products

UNITS = {"torch-cuda": "TFLOP/s", "torch-cpu": "TFLOP/s", "copies": "GB/s", "processors": "turns/s"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WHAT = "burn-in"


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`burn_wrong` of each device: results that were not what they had to be. The rest stands in the facts."""
    report = json_object(doc["stdout"], f"{_WHAT}: the report")
    load, raw, emulated = report["load"], report["devices"], flag(doc["facts"]["emulated"], f"{_WHAT}: emulated")
    expect(params, "seconds", report["seconds"], f"{_WHAT}: seconds")
    seconds, took = (number(report[key], f"{_WHAT}: {key}") for key in ("seconds", "took_s"))
    if report["window_s"] != window_s(seconds):
        raise ParseError(f"{_WHAT}: windows of {report['window_s']} s, {window_s(seconds):g} s expected")
    if load not in UNITS or not isinstance(raw, list) or not raw:
        raise ParseError(f"{_WHAT}: nothing was loaded")
    gpus = load in ("torch-cuda", "copies")
    wanted = [f"cuda:{n}" for n in range(len(raw))] if gpus else ["cpu"]
    if [one["device"] for one in raw] != wanted or doc["facts"].get("devices") != len(raw):
        raise ParseError(f"{_WHAT}: the devices are not {', '.join(wanted)}")
    declared = int(count(params.get("gpus", 0), f"{_WHAT}: declared GPUs"))
    if declared and (not gpus or len(raw) < declared):
        raise ParseError(f"{_WHAT}: {len(raw) if gpus else 0} of {number_of(declared, 'GPU')} were loaded")
    if took < seconds and not all(one.get("fault") for one in raw):
        raise ParseError(f"{_WHAT}: {took:g} s of the {seconds:g} s that were asked for")
    devices = [_device(one, report, load) for one in raw]
    facts = {key: report[key] for key in ("load", "how", "seconds", "took_s", "window_s", "before", "after")}
    found = as_facts(BurnFacts, {"type": "burn-in", **facts, "emulated": emulated, "devices": devices}, _WHAT)
    samples = [Sample(metric="burn_wrong", value=d.wrong + sum(d.bad.values()), unit="count") for d in found.devices]
    return samples, found


def _device(one: Mapping[str, Any], report: Mapping[str, Any], load: str) -> dict[str, Any]:
    what = f"{_WHAT}: {one['device']}"
    fault, unit = str(one["fault"]), UNITS[load]
    if "rates" not in one:  # its process ended without a report
        empty = {"name": "", "address": "", "load": "", "unit": unit, "rates": [], "checks": 0, "wrong": 0}
        return {"device": one["device"], **empty, "products": 0, "fault": fault or "its process ended without a report"}
    if one["unit"] != unit:
        raise ParseError(f"{what}: rates in {one['unit']}, {unit} expected")
    rates = [number(rate, f"{what}: rate") for rate in one["rates"]]
    checks, wrong = (int(count(one[key], f"{what}: {key}")) for key in ("checks", "wrong"))
    most = report["took_s"] / report["window_s"] + 1
    if not (0 if fault else 1) <= len(rates) <= most or checks < len(rates) or wrong > checks:
        raise ParseError(f"{what}: {len(rates)} windows and {checks} results in {report['took_s']:g} s, {wrong} wrong")
    products, bad, unproved = _digests(one["exact"], what)
    seen = {each["when"] for each in one["exact"]}
    if not fault and not ({"during"} if load == "processors" else {"cold", "hot"}) <= seen:
        raise ParseError(f"{what}: no digest cold and hot")
    address = str(one["address"])
    found = {key: str(one[key]) for key in ("device", "name", "load")}
    course = [[real(at, f"{what}: second"), *rest] for at, *rest in report["courses"].get(address, [])]
    return {
        **found, "address": address, "unit": unit, "rates": rates, "checks": checks, "wrong": wrong, "fault": fault,
        "products": products, "bad": bad, "unproved": unproved, "course": course,
        "watch": watch_of(report["watch"], address) if one["device"] != "cpu" else None,
    }  # fmt: skip


def _digests(raw: Any, what: str) -> tuple[int, dict[str, int], dict[str, str]]:
    """How many digests there are, which came out wrong, and which were not computed."""
    products, bad, unproved = 0, Counter[str](), {}
    for each in raw:
        when, precision = str(each["when"]), str(each["precision"])
        if "why" in each:
            unproved[precision] = str(each["why"])
            continue
        digests = {key: int(count(times, f"{what}: times of a digest")) for key, times in each["digests"].items()}
        right = _right(each, precision, what)
        if not digests or not all(_DIGEST.fullmatch(key) for key in (*digests, right)):
            raise ParseError(f"{what}: a digest is no SHA-256, or there is none")
        products += sum(digests.values())
        bad[f"{precision} {when}"] += sum(digests.values()) - digests.get(right, 0)
    return products, {what: times for what, times in bad.items() if times}, unproved


def _right(each: Mapping[str, Any], precision: str, what: str) -> str:
    """The digest that has to come out."""
    if precision == "turns":
        return turn()
    if precision == "copies":
        return str(each["sent"])
    if precision not in exact_products.SHAPES or each["size"] not in (exact_products.GPU_SIZE, exact_products.CPU_SIZE):
        raise ParseError(f"{what}: products in {precision} of {number_of(each['size'], 'row')}, which none has")
    return exact_products.reference(precision, each["size"])
