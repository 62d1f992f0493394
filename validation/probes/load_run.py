"""What the programs that remoting is measured by share, whatever their framework (torch_load.py, tf_load.py): options,
the steps and their times, and the document of a batch size, like that of elastic-ai-train.

The loss is read every so many steps, as a program does that is not to wait each time; the time of a step is its share
of what lies between two reads. GPU servers are given it as text, so that it imports nothing but the standard library.

A load has `tool`, `source` (its program's text), `known` (the module with its networks), `options`, `batch`, `side`
(pixels) and the functions `step`, `read`, `weights`, `count`, `about`, `seen`, `servers`; where it can, `answer`,
`write` and `restore`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from validation.probes import load_keep

KINDS = 4  # different batches, one after the other
#: Small enough that a network whose labels mean nothing goes on with numbers.
RATE, MOMENTUM, DECAY = 1e-3, 0.9, 1e-4


def parser_of(framework: str, tool: str, words: str | None, networks: ModuleType) -> argparse.ArgumentParser:
    """The options of every such program; what a framework's program cannot do has its usual value."""
    parser = argparse.ArgumentParser(tool, description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=[framework], default=framework, help="what a plan calls this program")
    parser.add_argument("--network", choices=sorted(networks.NETWORKS), default="resnet50")
    parser.add_argument("--batch", default="32", help="images of a step over all GPUs; several: one after the other")
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--every", type=int, default=1, help="the loss is read after each so many steps")
    parser.add_argument("--side", type=int, default=0, help="of an image, in pixels (default: as published)")
    parser.add_argument("--thin", type=int, default=1, help="1/THIN of all channels")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processor", default="", metavar="UUID", help="of the emulated GPU whose place it takes")
    parser.add_argument("--label", default="")
    parser.set_defaults(gpus=1, infer=False, wait=False, keep=None, pace=0)
    return parser


def leased() -> list[dict[str, Any]]:
    """The lease's GPUs, as it tells its programs; none natively."""
    told: list[dict[str, Any]] = json.loads(os.environ.get("ELASTIC_AI_GPUS") or "[]")
    return told


def servers_in(variable: str) -> list[dict[str, str]]:
    """Where the lease's GPUs are, by its engine's variable; none natively."""
    return [{"host": one} for one in dict.fromkeys(filter(None, os.environ.get(variable, "").split(",")))]


def code_of(program: str, networks: ModuleType) -> str:
    """SHA-256 of program, this file and networks."""
    own = globals().get("SOURCE") or Path(__file__).read_text(encoding="utf-8")
    of = getattr(networks, "SOURCE", "") or Path(str(networks.__file__)).read_text(encoding="utf-8")
    return hashlib.sha256((program + own + of).encode()).hexdigest()


def run(load: Any, opened_s: float) -> dict[str, Any]:
    """The document of one batch size."""
    options, keeper = load.options, load_keep.Keeper(load.options.keep)
    losses = keeper.resume(load)
    resumed = len(losses)
    step_s: list[float] = []
    wait_s: list[float] = []
    answers, reads = b"", 0
    began_s = time.monotonic()
    waiting: list[Any] = []
    block = time.perf_counter()
    for number in range(resumed, options.steps):
        if keeper.told_s is not None and not waiting:  # a step that was taken has its loss read
            break
        if options.infer:
            answers = load.answer(number)
            wait_s.append(0.0)
        else:
            waiting.append(load.step(number))
        # the first by itself: it pays for what is done once
        soon = number in (resumed, options.steps - 1) or keeper.told_s is not None
        if waiting and not soon and len(waiting) < options.every:
            continue
        if waiting:
            asked = time.perf_counter()
            read = load.read(waiting)
            wait_s += [(time.perf_counter() - asked) / len(waiting)] * len(waiting)
            losses += read
            if number == resumed:  # whoever waits for this program's first step reads that
                print(f"{number} {losses[-1]:.9f}", file=sys.stderr, flush=True)
        reads += 1
        count, now = max(1, len(waiting)), time.perf_counter()
        step_s += [(now - block) / count] * count
        waiting, block = [], now
        if options.pace and number + 1 < options.steps:
            keeper.rest(options.pace / 1e3 - step_s[-1])
            block = time.perf_counter()
    kept, weights_sha256 = keeper.save(load, losses), hashlib.sha256(load.weights()).hexdigest()
    ended_s = time.monotonic()  # it asks nothing more of its devices
    counted = len(step_s) if options.infer else len(losses)
    timed = step_s[1:] or step_s
    emulated = bool(options.processor) or any(one.get("emulated") for one in leased())
    image = 3 * load.side**2
    return {
        "tool": load.tool, "label": options.label, "host": os.uname().nodename, "emulated": emulated, **load.about(),
        "devices": load.seen(), "servers": load.servers(), "gpus": options.gpus, "infer": options.infer,
        "network": options.network, "side": load.side, "thin": options.thin, "every": options.every,
        "steps": counted, "planned_steps": options.steps, "batch": load.batch, "inputs": image,
        "hidden": max(1, 64 // options.thin), "classes": load.known.CLASSES, "seed": options.seed,
        "weights": load.count(), "code_sha256": code_of(load.source, load.known),
        "losses": losses, "weights_sha256": weights_sha256,
        "answers_sha256": hashlib.sha256(answers).hexdigest() if options.infer else "",
        "images_per_s": load.batch * len(timed) / sum(timed) if timed else 0.0,
        "opened_s": opened_s, "began_s": began_s, "ended_s": ended_s, "step_s": step_s, "wait_s": wait_s,
        "resumed_from": resumed, "told_s": keeper.told_s, "told_by": keeper.told_by, "kept": kept,
        # what the program itself asks for; how many operators that is, the engine knows
        "launches": 0, "bytes_to_devices": len(step_s) * load.batch * (image + 8),
        "bytes_from_devices": len(answers) * len(step_s) if options.infer else 4 * len(step_s) * options.gpus,
        "synchronisations": reads,
    }  # fmt: skip


def main(make: Callable[[argparse.Namespace, int], Any], options: argparse.Namespace) -> int:
    """A line of JSON for each batch size; the exit code."""
    opened_s = time.monotonic()
    for at, batch in enumerate(options.batch.split(",")):
        load = make(options, int(batch))
        if options.wait and not at:
            print(json.dumps({"ready": True}), flush=True)
            if not sys.stdin.readline():
                return 2
        document = run(load, opened_s)
        print(json.dumps(document), flush=True)
        if document["told_s"] is not None and document["steps"] < options.steps:
            return load_keep.TOLD
    return 0
