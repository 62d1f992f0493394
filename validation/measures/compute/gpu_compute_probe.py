"""What the GPUs of this node compute, and how fast: DeepBench's lists and exact products by the torch that is there.

The work is done by torch_compute.py, in this machine's Python that has torch or in the node's training container. All
GPUs work at the same time; where somebody works on one of them nothing is done, unless `anyway`. Where the node has no
NVIDIA GPU its processors take a few small problems.

`stdout`: the worker's document (torch_compute.py). `facts`: where ("cuda" or "cpu"), torch, cuda, devices (how many),
gpus (NVIDIA's on the PCI buses, or those that a container was given; 0 where they are not to be used).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from validation.base.counting import number_of
from validation.measures.training.training_short_probe import in_container
from validation.probes import PROGRAM_FOLDER, ProbeDoc, json_text, pcie
from validation.probes.gpu_host import HELD_BYTES, given, in_use
from validation.probes.tool import Ran, document, last_line, run_tool

PROGRAM = PROGRAM_FOLDER / "torch_compute.py"
SYSFS = Path("/sys")


@dataclass
class Asked:
    """What is asked of this probe."""

    lists: list[str]  # of deepbench.LISTS
    precisions: list[str]  # of torch_compute.TYPES
    most: int  # problems of each list at most, from the smallest to the largest; 0: all
    sustained: list[str]  # PRECISION:MxNxKNT of products whose rate is known of some GPU
    least_s: float  # of each batch
    batches: int  # of each problem
    exact: int  # exact products of each precision before the lists, and as many after them
    device: Literal["auto", "cpu"] = "auto"  # cpu: GPUs, if there are any, are not this node's to use
    enter: str = ""  # runs a command in the training container; "": torch is this machine's
    python: str = "/usr/bin/python3"  # that has torch
    anyway: bool = False  # measure GPUs that somebody works on


def gpus_here(sysfs: Path = SYSFS) -> int:
    """NVIDIA's GPUs on the PCI buses of this node, of a container those that it was given."""
    return given(sum(card["what"] == "gpu" for card in pcie.collect([], sysfs)))


def command_for(args: Asked, gpus: int) -> list[str]:
    """The worker, in the training container where there is one."""
    keys = ("lists", "precisions", "most", "sustained", "least_s", "batches", "exact", "device")
    asked = json.dumps({**{key: getattr(args, key) for key in keys}, "gpus": gpus})
    command = [args.python, "-I", str(PROGRAM), asked]
    return in_container(args.enter, command) if args.enter else command


def wrong(report: dict[str, Any], gpus: int) -> str | None:
    """What keeps the whole report from being used, in words; a fault of one GPU does not."""
    if gpus and report["where"] != "cuda":
        build = f"built for CUDA {report['cuda']}" if report["cuda"] else "built without CUDA"
        return f"torch {report['torch']} ({build}) sees none of the {number_of(gpus, 'GPU')} of this node"
    if gpus and len(report["devices"]) != gpus:
        return f"torch sees {len(report['devices'])} of the {number_of(gpus, 'GPU')} of this node"
    if not report["devices"]:
        return "nothing was measured"
    faults = [f"{one['device']}: {one['fault']}" for one in report["devices"] if one.get("fault")]
    return "; ".join(faults) if len(faults) == len(report["devices"]) else None


def probe(args: Asked) -> ProbeDoc:
    """Run the worker to its end."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        gpus = gpus_here() if args.device == "auto" else 0
        if gpus and not args.anyway and (refused := in_use(HELD_BYTES)):
            return Ran(["gpu-compute"], 0, "", ""), {"gpus": gpus}, refused
        environment = {key: os.environ[key] for key in os.environ if not key.startswith("PYTHON")}
        ran = run_tool(command_for(args, gpus), env=environment)
        facts: dict[str, Any] = {"gpus": gpus}
        if ran.returncode != 0:
            return ran, facts, None
        try:
            report = json_text.report(ran.stdout)
            facts.update({key: report[key] for key in ("where", "torch", "cuda")}, devices=len(report["devices"]))
            return ran, facts, wrong(report, gpus)
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            said = last_line(ran.stderr) or f"{type(fault).__name__}: {fault}"
            return ran, facts, f"the report of torch cannot be used: {said}"

    return document("gpu-compute", "torch", measure, lambda ran: _version(ran.stdout))


def _version(stdout: str) -> str:
    try:
        return str(json_text.report(stdout)["torch"])
    except (ValueError, KeyError, TypeError):
        return ""
