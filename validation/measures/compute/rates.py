"""What the devices of a node computed, and how fast."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_report, number, real
from validation.measures.gpu.watch import GpuWatch, checked
from validation.model import Sample
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name
from validation.probes import ProbeDoc, deepbench, exact_products

Rate = float  # TFLOP/s
THROTTLED = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
"""Reasons for which a healthy GPU in a healthy server never lowers its clocks. hw_slowdown comes with the first and the
last; sw_power_cap is usual under matrix products."""


NO_MEMORY = "out of memory"
"""What the probe calls a problem for which memory did not suffice."""


def out_of_memory(why: str) -> bool:
    """Whether torch says that the memory of a device did not suffice."""
    return "out of memory" in why


class ComputeFigure(Model):
    """A list of problems in one precision on one device. `tflops` is its operations over its seconds, `best_tflops` of
    the problem with the highest rate; None where nothing of it ran. `skipped`: why problems did not run -> how many.
    """

    list: Literal["gemm", "conv", "rnn", "gemm_inference", "conv_inference", "rnn_inference", "sustained"]
    precision: Name
    problems: Count  # that ran
    tflops: Rate | None = Field(default=None, gt=0, allow_inf_nan=False)
    best_tflops: Rate | None = Field(default=None, gt=0, allow_inf_nan=False)
    not_finite: Count = 0  # problems whose result was none
    skipped: dict[str, int] = Field(default={})

    @property
    def lacked_memory(self) -> int:
        """How many problems the device's memory did not hold, for which the probe has one word."""
        return self.skipped.get(NO_MEMORY, 0)


class ComputeDevice(Model):
    """A GPU or the processors of a node. `wrong`: precisions and when of exact products that came out wrong, `products`
    how many were computed. `reasons`: share of the looks at it with each reason for its clocks. `others`: PIDs of
    processes that held memory of it before the measurement began -> bytes. `watch`: all that was seen of it meanwhile.
    """

    device: Name  # cuda:3, cpu
    name: str = ""
    address: str = ""
    serial: str = ""
    fault: str = ""  # why nothing of it was measured
    figures: tuple[ComputeFigure, ...] = ()
    without: dict[str, str] = Field(default={})  # precision -> why it has none
    products: Count = 0
    wrong: tuple[str, ...] = ()
    unproved: dict[str, str] = Field(default={})  # precision -> why its exact product did not run
    no_memory: tuple[str, ...] | None = None  # precisions whose exact product memory did not hold; None: older results
    sm_mhz: float | None = None  # middle of the looks at it
    sm_max_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: dict[str, float] = Field(default={})
    others: dict[str, int] = Field(default={})
    unwatched: str = ""  # why nothing is known of its clocks
    watch: GpuWatch | None = None

    @property
    def lacked_memory(self) -> frozenset[str]:
        """Precisions whose exact product memory did not hold; of older results by torch's words."""
        if self.no_memory is not None:
            return frozenset(self.no_memory)
        return frozenset(precision for precision, why in self.unproved.items() if out_of_memory(why))

    @property
    def gpu(self) -> str:
        """`GPU 3`, or `processors`."""
        return f"GPU {self.device.removeprefix('cuda:')}" if self.device != "cpu" else "processors"

    @property
    def slowed(self) -> tuple[str, ...]:
        """Reasons for which its clocks were lowered and should not have been."""
        return tuple(reason for reason in THROTTLED if self.reasons.get(reason, 0) > 0)

    def figure(self, which: str, precision: str) -> ComputeFigure | None:
        """Of that list in that precision."""
        return next((f for f in self.figures if (f.list, f.precision) == (which, precision)), None)


class ComputeFacts(Facts):
    """Facts of measurement gpu-compute. `most` problems of each list were asked for, 0: all."""

    type: Literal["compute"] = "compute"
    where: Literal["cuda", "cpu"]
    torch: str
    cuda: str = ""
    cudnn: str = ""
    most: Count = 0
    devices: tuple[ComputeDevice, ...]


# --- DeepBench's lists and exact products, from the document of probes/torch_compute.py to rates ---------------------


UNIT = "TFLOP/s"
_WHAT = "gpu compute"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WATCHED = ("sm_mhz", "power_w", "temperature_c")


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`LIST_PRECISION_tflops` of each GPU, `cpu_LIST_PRECISION_tflops` of processors; `wrong_products` of each."""
    report = json_report(doc["stdout"], f"{_WHAT}: the report")
    where, raw = report["where"], report["devices"]
    if where not in ("cuda", "cpu") or (where == "cuda" and params.get("device") == "cpu"):
        raise ParseError(f"{_WHAT}: measured on {where!r}, which was not asked for")
    if not isinstance(raw, list) or not raw or (where == "cpu" and len(raw) != 1):
        raise ParseError(f"{_WHAT}: nothing was measured")
    if doc["facts"].get("devices") != len(raw) or doc["facts"].get("where") != where:
        raise ParseError(f"{_WHAT}: {number_of(len(raw), 'device')} on {where}, which its facts contradict")
    wanted = ["cpu"] if where == "cpu" else [f"cuda:{at}" for at in range(len(raw))]
    if [one["device"] for one in raw] != wanted:
        raise ParseError(f"{_WHAT}: the devices are not {', '.join(wanted)}")
    devices = [_device(one, params, where == "cpu") for one in raw]
    if all("fault" in one for one in devices):
        raise ParseError(f"{_WHAT}: {devices[0]['fault']}")
    words = {key: report[key] for key in ("torch", "cuda", "cudnn")}
    facts = {"type": "compute", "where": where, **words, "most": params.get("most", 0), "devices": devices}
    found = as_facts(ComputeFacts, facts, _WHAT)
    return _samples(found), found


def _samples(facts: ComputeFacts) -> list[Sample]:
    before = "cpu_" if facts.where == "cpu" else ""
    samples = [
        Sample(metric=f"{before}{one.list}_{one.precision}_tflops", value=value, unit=UNIT)
        for device in facts.devices
        for one in device.figures
        if (value := one.best_tflops if one.list == "sustained" else one.tflops) is not None
    ]
    products = [Sample(metric="wrong_products", value=len(d.wrong), unit="count") for d in facts.devices if d.products]
    if not samples and not products:
        raise ParseError(f"{_WHAT}: nothing of any list ran: {_reasons(facts.devices)}")
    return samples + products


def _reasons(devices: Sequence[ComputeDevice]) -> str:
    why = Counter(words for device in devices for one in device.figures for words in one.skipped)
    return why.most_common(1)[0][0] if why else "no list was asked for"


def _device(one: Mapping[str, Any], params: Mapping[str, Any], cpu: bool) -> dict[str, Any]:
    name = str(one["device"])
    if one.get("fault"):
        return {"device": name, "fault": str(one["fault"])}
    listed: Any = one["lists"]
    figures = []
    without = {str(key): str(why) for key, why in one["without"].items()}
    for which in [*params.get("lists", listed), *(["sustained"] if "sustained" in listed else [])]:
        taken = listed.get(which, {})
        for precision in params.get("precisions", taken):
            if precision in taken:
                figures.append(_figure(which, precision, taken[precision], params, cpu, name))
            elif precision not in without and which != "sustained":
                raise ParseError(f"{_WHAT}: {name}: nothing of {which} in {precision}, and no reason why")
    products, wrong, unproved, no_memory = _exact(one["exact"], params, without, name)
    found: dict[str, Any] = {key: str(one.get(key, "")) for key in ("name", "address", "serial")}
    found["others"] = {str(pid): int(count(held, f"{name}: bytes")) for pid, held in one.get("others", {}).items()}
    return {
        "device": name, **found, "figures": figures, "without": without, "products": products, "wrong": wrong,
        "unproved": unproved, "no_memory": no_memory, **_watched(one.get("watch") or {}, cpu),
    }  # fmt: skip


def _watched(watch: Mapping[str, Any], cpu: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {key: real(watch[key]["median"], key) for key in _WATCHED if key in watch}
    if watch.get("sm_max_mhz") is not None:
        seen["sm_max_mhz"] = real(watch["sm_max_mhz"], "sm_max_mhz")
    seen["reasons"] = {str(k): real(v, f"share of {k}") for k, v in watch.get("reasons", {}).items()}
    if not cpu and not watch.get("samples"):
        seen["unwatched"] = str(watch.get("said") or "NVML was not asked")
    if "reason_s" in watch and watch.get("samples"):
        seen["watch"] = checked(watch)
    return seen


def _names(which: str, precision: str, params: Mapping[str, Any]) -> Sequence[str]:
    if which != "sustained":
        return deepbench.PROBLEMS[which]
    said = [word.partition(":") for word in params.get("sustained", ())]
    return [shape for of, _, shape in said if of == precision]


def _figure(which: str, precision: str, rows: Any, params: Mapping[str, Any], cpu: bool, device: str) -> dict[str, Any]:
    what = f"{_WHAT}: {device}: {which} in {precision}"
    names = _names(which, precision, params)
    places = [int(count(row[0], f"{what}: place")) for row in rows]
    wanted = (
        list(range(len(names))) if which == "sustained" else deepbench.chosen(which, int(params.get("most", 0)), cpu)
    )
    if places != wanted or not rows:
        raise ParseError(
            f"{what}: {number_of(len(places), 'problem')}, which are not the {len(wanted)} that were asked for"
        )
    total, seconds, best, bad = 0, 0.0, 0.0, 0
    skipped: Counter[str] = Counter()
    for at, *row in rows:
        if len(row) == 1:
            skipped[str(row[0])] += 1
            continue
        times, batches, finite = row
        count(times, f"{what}: iterations")
        expect(params, "batches", len(batches), f"{what}: batches")
        operations = deepbench.operations(which, names[at])
        took = statistics.median(number(value, f"{what}: seconds") for value in batches)
        total, seconds = total + operations, seconds + took
        best, bad = max(best, operations / took / 1e12), bad + (not flag(finite, f"{what}: finite"))
    ran = len(rows) - sum(skipped.values())
    rates = {"tflops": total / seconds / 1e12, "best_tflops": best} if ran else {}
    return {
        "list": which,
        "precision": precision,
        "problems": ran,
        "not_finite": bad,
        "skipped": dict(skipped),
        **rates,
    }


def _exact(
    raw: Any, params: Mapping[str, Any], without: Mapping[str, str], device: str
) -> tuple[int, list[str], dict[str, str], list[str]]:
    """How many exact products, which came out wrong, which did not run, and which of these for lack of memory."""
    what, wrong, unproved, products = f"{_WHAT}: {device}: exact products", [], {}, 0
    no_memory: dict[str, bool] = {}
    due = [p for p in params.get("precisions", ()) if p not in without] if params.get("exact") else []
    if params and sorted((one["when"], one["precision"]) for one in raw) != sorted(
        (when, precision) for when in ("cold", "hot") for precision in due
    ):
        raise ParseError(f"{what}: not those that were asked for")
    for one in raw:
        precision = str(one["precision"])
        if "why" in one:
            unproved[precision] = str(one["why"])
            no_memory[precision] = flag(one.get("no_memory", out_of_memory(unproved[precision])), f"{what}: no_memory")
            continue
        digests = {key: int(count(times, f"{what}: times of a digest")) for key, times in one["digests"].items()}
        if not all(_DIGEST.fullmatch(key) for key in digests) or not all(digests.values()):
            raise ParseError(f"{what}: a digest is no SHA-256, or came out no time")
        expect(params, "exact", sum(digests.values()), f"{what}: repeats")
        if one["size"] not in (exact_products.GPU_SIZE, exact_products.CPU_SIZE):
            raise ParseError(f"{what}: {number_of(one['size'], 'row')}, which none has")
        right = digests.get(exact_products.reference(precision, one["size"]), 0)
        products += sum(digests.values())
        bad = sum(digests.values()) - right
        wrong += [f"{precision} {one['when']}"] * bad
    return products, wrong, unproved, [precision for precision, lacks in no_memory.items() if lacks]
