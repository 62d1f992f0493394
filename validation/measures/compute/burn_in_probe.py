"""Burn-in of this node: all its GPUs loaded at once for a given time, every result compared bit by bit.

With torch that sees all GPUs matrix products (torch_burn.py); without it copies of the CUDA driver API to, inside and
from each GPU, all GPUs at once, each read back and compared. Either way each GPU has a process of its own. Where the
node has no GPU its processors work: by torch, else by the turns of exact_compute. A sampler looks at the GPUs meanwhile
(gpu_watch.py), and what GPUs and kernel log say of errors is read before and after.

`stdout`: rates of windows, comparisons and digests of each device, as JSON; `watch` and its course; `before` and
`after` as GpuHealthFacts. A GPU that somebody works on is refused, unless `anyway`. Everything on a
GPU is a process's, and goes with it however it ends. By `steps` the load changes (power_steps.py).
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from validation.base.counting import number_of
from validation.measures.compute import exact_compute_probe
from validation.measures.compute.burn_copies_probe import COPY_BYTES, by_copies, device_document, window_s
from validation.measures.gpu import gpu_health_probe
from validation.measures.gpu.gpu_copies_probe import refusals
from validation.measures.training.training_short_probe import in_container
from validation.nvml import Nvml, NvmlError
from validation.probes import PROGRAM_FOLDER, ProbeDoc, json_text, kernel_log
from validation.probes.cuda import CudaError
from validation.probes.gpu_watch import Sampler
from validation.probes.power_steps import Pace
from validation.probes.tool import Ran, Stopped, document, last_line, run_tool, stopped

PROGRAM = PROGRAM_FOLDER / "torch_burn.py"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
Device = dict[str, Any]


@dataclass
class Asked:
    """What is asked of this probe."""

    seconds: float  # of load
    gpus: int = 0  # how many the node is said to have; 0: nobody says, and there may be none
    device: Literal["auto", "cpu"] = "auto"  # cpu: GPUs, if there are any, are not this node's to use
    anyway: bool = False  # load a GPU that somebody works on
    enter: str = ""  # runs a command in the training container; "": torch is this machine's
    python: str = "/usr/bin/python3"  # that has torch; "": none has
    copy_bytes: int = COPY_BYTES  # of a copy, at most
    steps: list[str] = field(default_factory=list)  # of the load, `share:seconds`; none: full load throughout
    segment: int = 0  # which of a longer burn-in this is, from 1; 0: it is all of it
    segments: int = 0  # of how many


def by_torch(args: Asked, gpus: int) -> tuple[list[Device], str]:
    """Devices as torch_burn.py has them, and which torch; no devices and why, where torch cannot do it."""
    asked = {"seconds": args.seconds, "window_s": window_s(args.seconds), "gpus": gpus, "device": args.device,
             "precisions": PRECISIONS, "steps": args.steps}  # fmt: skip
    command = [args.python, "-I", str(PROGRAM), json.dumps(asked)]
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("PYTHON")}
    ran = run_tool(in_container(args.enter, command) if args.enter else command, env=environment)
    if stopped():
        raise Stopped
    try:
        report = json_text.report(ran.stdout)
        why = "" if report["devices"] else f"torch {report['torch']} sees {report['seen']} of {number_of(gpus, 'GPU')}"
        return report["devices"], why or f"torch {report['torch']}"
    except (ValueError, KeyError, TypeError):
        return [], f"no torch: {last_line(ran.stderr) or f'exit status {ran.returncode}'}"


def by_processors(args: Asked) -> list[Device]:
    """Turns of exact work on every processor, one window after another."""
    cpus = sorted(os.sched_getaffinity(0))
    one = device_document("cpu", f"{len(cpus)} processors", "", "turns/s", "exact arithmetic on every processor")
    until, digests = time.monotonic() + args.seconds, Counter[str]()
    pace = Pace(args.steps, until, stopped)
    while not one["rates"] or time.monotonic() < until:
        ends, turns, busy = min(until, time.monotonic() + window_s(args.seconds)), 0, 0.0
        while not turns or time.monotonic() < ends:
            if stopped():
                raise Stopped
            begin = time.monotonic()
            for found in exact_compute_probe.together(cpus, max(0.1, min(pace.slice_s(), ends - begin))):
                turns += found["turns"]
                digests.update(found["digests"])
            took = time.monotonic() - begin
            busy += took
            pace.rest(took)
        one["rates"].append(round(turns / busy, 6))
        one["checks"] += turns
    one["steps"] = pace.spent
    one["exact"] = [{"when": "during", "precision": "turns", "digests": dict(digests)}]
    return [one]


def loaded(args: Asked, gpus: int, emulated: bool) -> tuple[str, list[Device], str]:
    """What the load was, the devices, and which torch it was or why it was none."""
    why = "the GPUs are emulated: nothing computes on them" if emulated else "no Python with torch is named"
    if args.python and not emulated:
        devices, why = by_torch(args, gpus)
        if devices:
            return ("torch-cuda" if gpus else "torch-cpu"), devices, why
    if gpus:
        return "copies", by_copies(args.seconds, args.copy_bytes, args.steps), why
    return "processors", by_processors(args), why


def readings() -> dict[str, Any]:
    """What GPUs and kernel log say of errors now."""
    return {**gpu_health_probe.collect(), "kernel_log": kernel_log.collect(kernel_log.KMSG)}


def there(args: Asked) -> tuple[int, bool, str]:
    """How many GPUs there are, whether they are emulated, and why they are not to be loaded."""
    if args.device == "cpu":
        return 0, False, ""
    try:
        with Nvml() as nvml:
            count, emulated = nvml.count(), nvml.emulated
            refused = "; ".join(refusals(nvml.answering()[0], args.anyway).values())
    except NvmlError as fault:
        return 0, False, str(fault) if args.gpus else ""
    return (
        count,
        emulated,
        refused or (f"NVML shows {count} of {number_of(args.gpus, 'GPU')}" if count < args.gpus else ""),
    )


def probe(args: Asked) -> ProbeDoc:
    """Load everything for the time that was asked."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        ran = Ran(["burn-in"], 0, "", "")
        count, emulated, refused = there(args)
        facts: dict[str, Any] = {"gpus": count, "emulated": emulated}
        if refused:
            return ran, facts, refused
        before, begin = readings(), time.monotonic()
        with Sampler() as sampler:
            try:
                load, devices, how = loaded(args, count, emulated)
            except (CudaError, RuntimeError) as fault:
                return ran, facts, str(fault)
        took = round(time.monotonic() - begin, 3)
        report = {
            "load": load, "how": how, "seconds": args.seconds, "took_s": took, "window_s": window_s(args.seconds),
            "devices": devices, "watch": sampler.document(), "before": before, "after": readings(),
            "courses": {one.address: one.course for one in sampler.seen},
        }  # fmt: skip
        facts.update(load=load, devices=len(devices))
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("burn-in", "probes", measure, lambda _: "")
