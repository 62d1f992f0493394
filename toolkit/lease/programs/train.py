"""elastic-ai-train: trains a small network on the GPUs that it sees, by the CUDA driver API alone.

Runs with any libcuda.so.1 that runs kernels: the driver of real GPUs, a remoting engine's, the emulated one of a lab.
No CUDA toolkit and no framework: its kernels (matrix products, bias, ReLU, softmax with cross-entropy, SGD with
momentum) are PTX that comes with it. Each step copies a batch to the GPUs, launches 13 kernels on each, and copies the
loss back, which is the one thing that it waits for. Several GPUs share each batch; their gradients are added by way of
this machine's memory. Everything follows from --seed, and the kernels use + - * / alone in a fixed order: the same
options and number of GPUs give the same losses, bit by bit, on every device, near or far.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.lease.programs.copybench import EMULATED, Cuda, CudaError, servers
from toolkit.lease.programs.train_costs import costs
from toolkit.lease.programs.train_gpu import Counted, Gpu, Pinned, said
from toolkit.lease.programs.train_keep import INTERRUPTED, TOLD, NotKept, State, Told, load, save, writable
from toolkit.lease.programs.train_net import FLOAT, KINDS, Net, Shape, batches, first_weights
from validation.base.counting import number_of

CODE = Path(__file__).parent / "kernels/train.ptx"
RATE, KEEP = 0.02, 0.9  # of the update: how far a gradient moves the weights, how much of the last move stays
ENDING = """
examples:
  elastic-ai-train                               on all GPUs that are visible, 50 steps
  toolkit run -n 2 -p 1/3 -- elastic-ai-train    on two thirds of GPUs elsewhere
  elastic-ai-train --batch 512 --json            one document with every loss and every step's time
  elastic-ai-train --infer --batch 1             forward passes alone: the time of each answer
  elastic-ai-train --steps 9999 --keep work.ckpt asked to end, it keeps its work; the same command again goes on

reading it:
  images/s rises with --batch where what limits is the launches and the round trip of each step, which a remote GPU
  pays by the network. The last loss and the hash of the weights tell at a glance whether two runs computed the same.

exit: 0 trained; 1 a loss was no number; 2 a CUDA call failed (as with --stray) or the arguments are wrong; 3 with
--keep: asked to end by SIGTERM or SIGUSR1 (toolkit run sends one before a lease ends), and its work is kept; by Ctrl-C
it is kept as well, and the code 130, so that a loop that starts it again ends.
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parsed command line."""
    words = (__doc__ or "").split(": ", 1)[1]
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("elastic-ai-train", description=words, epilog=ENDING, formatter_class=form)
    parser.add_argument("--steps", type=_count, default=50, help="batches, one after the other (default 50)")
    parser.add_argument("--batch", type=_count, default=64, help="images of a step, over all GPUs (default 64)")
    parser.add_argument("--gpus", type=_count, help="how many to use, the first ones (default: all that are visible)")
    parser.add_argument("--inputs", type=_count, default=784, help="numbers of an image (default 784)")
    parser.add_argument("--hidden", type=_count, default=128, help="width of the network (default 128)")
    parser.add_argument("--classes", type=_count, default=10, help="(default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and images (default 1)")
    parser.add_argument("--infer", action="store_true", help="forward passes alone, with the answers copied back")
    parser.add_argument("--stray", type=_count, help="at this step write where no memory is: what do others notice?")
    parser.add_argument("--costs", action="store_true", help="with --json, of one GPU: what its calls cost too")
    parser.add_argument("--wait", action="store_true", help="say when it is ready, and begin when a line comes in")
    kept = "the checkpoint: written when asked to end, trained on from where it is there; the losses are as without"
    parser.add_argument("--keep", type=Path, metavar="FILE", help=kept)
    parser.add_argument("--keep-every", type=_count, metavar="STEPS", help="also written after each so many steps")
    slow = "milliseconds that a step takes at least, as where data come slowly (default 0)"
    parser.add_argument("--pace", type=_count, metavar="MS", help=slow)
    parser.add_argument("--code", type=Path, default=CODE, help="other PTX with the same kernels")
    parser.add_argument("--label", default="", help="passed through to the document")
    parser.add_argument("--json", action="store_true", help="one document with all figures, for programs")
    return parser.parse_args(given)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"'{text}': give a whole number from 1 to {1 << 20}")
    return int(text)


class Unusable(Exception):
    """What was asked cannot be done here; in words."""


class Training:
    """A network on some devices."""

    def __init__(self, cuda: Cuda, options: argparse.Namespace) -> None:
        """Take the devices; CudaError where a call fails, Unusable where the options do not fit."""
        self.cuda, self.options, self.counted, self.told = cuda, options, Counted(), Told()
        code = _code(options.code)
        if options.keep:
            writable(options.keep)
        self.opened_s = time.monotonic()  # no device was touched before
        cuda.cuInit(0)
        found = device_count(cuda)
        wanted = options.gpus or found
        if wanted > found:
            raise Unusable(f"--gpus {wanted}: {found} {'is' if found == 1 else 'are'} visible here")
        if options.costs and (wanted > 1 or options.infer or options.keep):
            raise Unusable("--costs are of a whole training on one GPU (--gpus 1)")
        if options.batch % wanted:
            raise Unusable(f"--batch {options.batch} is not a multiple of {wanted}, the number of GPUs that share it")
        self.shape = Shape(options.inputs, options.hidden, options.classes)
        self.rows = options.batch // wanted
        self.data = batches(self.shape, options.batch, options.seed)
        self.of = {key: getattr(options, key) for key in ("batch", "inputs", "hidden", "classes", "seed")}
        self.of |= {"gpus": wanted, "weights": self.shape.weights, "code": hashlib.sha256(code).hexdigest()}
        kept = load(options.keep, self.of) if options.keep else None
        self.losses = kept.losses if kept else []
        self.resumed_from = len(self.losses)
        if self.resumed_from >= options.steps:
            raise Unusable(
                f"--keep {options.keep}: all of the {number_of(options.steps, 'step')} are done; ask for "
                "more by --steps"
            )
        weights = kept.weights if kept else first_weights(self.shape, options.seed)
        self.gpus = [Gpu(cuda, i, code, self.counted) for i in range(wanted)]
        self.nets = [Net(gpu, self.shape, self.rows, options.batch, weights) for gpu in self.gpus]
        self.update = [net.updater(RATE, KEEP) for net in self.nets]
        self.all = self.shape.weights * FLOAT
        if kept:
            for net in self.nets:
                net.put(net.moved, kept.moved)
        self.waits: list[float] = []
        if wanted > 1:
            self.host = [Pinned(cuda, self.all) for _ in self.gpus]
            self.gpus[0].use()
            self.more = self.gpus[0].alloc(self.all)
            cuda.cuCtxSynchronize()
            self.add = self.nets[0].adder(self.more)

    def _average(self) -> None:
        """Every device gets the sum of all gradients, which are shares of the mean: added by the first, in order."""
        for gpu, net, host in zip(self.gpus[1:], self.nets[1:], self.host[1:]):
            gpu.use()
            gpu.give(host, net.gradient, self.all)
        first, sums = self.gpus[0], self.host[0]
        for gpu, host in zip(self.gpus[1:], self.host[1:]):
            gpu.use()
            gpu.wait()
            first.use()
            first.take(self.more, host, self.all)
            self.add()
        first.give(sums, self.nets[0].gradient, self.all)
        first.wait()
        for gpu, net in zip(self.gpus[1:], self.nets[1:]):
            gpu.use()
            gpu.take(net.gradient, sums, self.all)

    def step(self, number: int) -> float:
        """One batch; the mean loss of its images, 0 where nothing is learnt."""
        images, labels = self.data[number % KINDS]
        width, infer = self.shape.inputs * FLOAT, self.options.infer
        if self.options.stray == number + 1:
            self.nets[0].stray()
        for i, net in enumerate(self.nets):
            at, to = i * self.rows, (i + 1) * self.rows
            net.forward(images[at * width : to * width], labels[at * FLOAT : to * FLOAT])
            if not infer:
                net.backward()
        if len(self.nets) > 1 and not infer:
            self._average()
        for gpu, net, update in zip(self.gpus, self.nets, self.update):
            gpu.use()
            if infer:
                gpu.give(net.answers, net.logits, net.answers.size)
            else:
                update()
                gpu.give(net.loss_host, net.loss, FLOAT)
        total = 0.0
        began = time.perf_counter()
        for gpu in self.gpus:
            gpu.use()
            gpu.wait()
        self.waits.append(time.perf_counter() - began)
        for net in self.nets:
            total += 0.0 if infer else struct.unpack("f", net.loss_host.read(FLOAT))[0]
        return float(total / self.options.batch)

    def keep(self) -> dict[str, Any]:
        """Write the checkpoint: of one device, for all have the same weights."""
        began, net = time.monotonic(), self.nets[0]
        state = State(net.bytes_of(net.weights, self.all), net.bytes_of(net.moved, self.all), self.losses)
        size = save(self.options.keep, state, self.of)
        ended = time.monotonic()
        return {"steps": len(self.losses), "bytes": size, "seconds": ended - began, "saved_s": ended}

    def costs(self, counts: dict[str, int], steps: int) -> dict[str, Any]:
        """Of the calls of a step, by what so many steps counted."""
        return costs(self.gpus[0], self.nets[0], counts["launches"] // steps)

    def run(self, heard: Callable[[int, float, float], None]) -> dict[str, Any]:
        """The document; `heard` hears of each step: number, loss, seconds. NotKept where its work cannot be kept."""
        times: list[float] = []
        setup, options, kept = asdict(self.counted), self.options, None
        if options.keep:
            self.told.listen()
        first = time.monotonic()
        for number in range(self.resumed_from, options.steps):
            if self.told.at_s is not None:
                break
            began = time.perf_counter()
            self.losses.append(self.step(number))
            times.append(time.perf_counter() - began)
            heard(number, self.losses[-1], times[-1])
            if options.keep_every and len(self.losses) % options.keep_every == 0:
                kept = self.keep()
            if options.pace and number + 1 < options.steps:
                self.told.rest(options.pace / 1e3 - times[-1])
        counts = {key: value - setup[key] for key, value in asdict(self.counted).items()}
        if self.told.at_s is not None:
            if kept is None or kept["steps"] != len(self.losses):
                kept = self.keep()
            kept["saved_s"] = max(kept["saved_s"], self.told.at_s)  # told after a regular one: all was kept by then
        # The first step pays for what is done once: code is made ready, memory is touched.
        timed = times[1:] or times
        weights = self.nets[0].bytes_of(self.nets[0].weights, self.all)
        answers = b"".join(net.answers.read(net.answers.size) for net in self.nets)
        known = servers(self.cuda)
        return {
            "tool": "elastic-ai-train",
            "label": options.label,
            "host": os.uname().nodename,
            "emulated": hasattr(self.cuda.library, EMULATED) or any(server["emulated"] for server in known),
            "devices": [{"name": gpu.name, "uuid": gpu.uuid} for gpu in self.gpus],
            "servers": known,
            "gpus": len(self.gpus),
            "infer": options.infer,
            "steps": len(self.losses),
            "planned_steps": options.steps,
            **{key: getattr(options, key) for key in ("batch", "inputs", "hidden", "classes", "seed")},
            "weights": self.shape.weights,
            "code_sha256": self.of["code"],
            # all of them, those of the checkpoint first
            "losses": [] if options.infer else self.losses,
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
            "answers_sha256": hashlib.sha256(answers).hexdigest() if options.infer else "",
            "images_per_s": options.batch * len(timed) / sum(timed) if timed else 0.0,
            # moments of this machine's monotonic clock, by which programs here know when others ran
            "opened_s": self.opened_s,
            "began_s": first,
            "ended_s": time.monotonic(),
            "step_s": times,  # of this run alone
            "resumed_from": self.resumed_from,
            "told_s": self.told.at_s,
            "told_by": self.told.signal,
            "kept": kept,
            "wait_s": self.waits,  # of each step's time: the synchronisation at its end
            **counts,
            **({"costs": self.costs(counts, len(times))} if options.costs else {}),
        }


def told_to_begin() -> None:
    """Say that all is ready, and wait for a line; Unusable where the input ends without one."""
    print(json.dumps({"ready": True}), flush=True)
    if not sys.stdin.readline():
        raise Unusable("--wait: the input ended, and nobody said that it shall begin")


def _code(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise Unusable(f"no code for the GPUs: {path}: {fault.strerror}") from None


def device_count(cuda: Cuda) -> int:
    """How many are visible; at least one. CudaError otherwise."""
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def opening(training: Training) -> str:
    """What is done on what."""
    place = {d.get("uuid"): s.get("server", "") for s in servers(training.cuda) for d in s.get("devices", [])}
    shape, options = training.shape, training.options
    does = "answers for" if options.infer else "training with"
    lines = [f"{does} {options.batch} images a step, {training.rows} on each GPU; {number_of(shape.weights, 'weight')}"]
    for gpu in training.gpus:
        where = f", at {place[gpu.uuid]}" if place.get(gpu.uuid) else ""
        lines.append(f"  {gpu.ordinal}  {gpu.name}{where}")
    return "\n".join([*lines, "", f"{'STEP':>6} {'MS':>9}" + ("" if options.infer else f" {'LOSS':>12}")])


def ending(document: dict[str, Any]) -> str:
    """What it comes to."""
    steps, ordered = len(document["step_s"]), sorted(document["step_s"][1:] or document["step_s"])
    if not steps:
        return (
            f"\nasked to end ({document['told_by']}) before the first step; kept {number_of(document['steps'], 'step')}"
        )
    at = {p: ordered[min(len(ordered) - 1, len(ordered) * p // 100)] * 1e3 for p in (50, 99)}
    rows = [
        ("images/s", f"{document['images_per_s']:.1f}"),
        ("step", f"{at[50]:.3f} ms in the middle, {at[99]:.3f} ms at 99 %"),
        ("launches", f"{document['launches'] / steps:g} a step"),
        ("to the GPUs", f"{number_of(document['bytes_to_devices'] / steps, 'byte')} a step"),
        ("from the GPUs", f"{number_of(document['bytes_from_devices'] / steps, 'byte')} a step"),
        ("synchronisations", f"{document['synchronisations'] / steps:g} a step"),
    ]
    if document["infer"]:
        rows += [("answers", document["answers_sha256"][:16])]
    else:
        rows += [("loss", f"{document['losses'][0]:.9g} at first, {document['losses'][-1]:.9g} at last")]
        rows += [("weights", document["weights_sha256"][:16])]
    if document["resumed_from"]:
        rows += [("went on", f"after {number_of(document['resumed_from'], 'step')} of a checkpoint")]
    if document["kept"]:
        why = f"asked to end ({document['told_by']})" if document["told_by"] else "the last checkpoint"
        rows += [
            (
                "kept",
                f"{number_of(document['kept']['steps'], 'step')}, "
                f"{number_of(document['kept']['bytes'], 'byte')}: {why}",
            )
        ]
    lines = ["", *(f"{name:17} {value}" for name, value in rows)]
    return "\n".join([*lines, *(["Emulated devices: not a GPU's figures."] if document["emulated"] else [])])


def main(given: list[str] | None = None) -> int:
    """Run it; the exit code."""
    options = arguments(given)
    if (options.keep_every and not options.keep) or (options.keep and options.infer):
        why = (
            "--keep with --infer: answers alone leave nothing to keep" if options.infer else "--keep-every needs --keep"
        )
        print(f"elastic-ai-train: {why}", file=sys.stderr)
        return 2
    every = max(1, options.steps // 10)

    def heard(number: int, loss: float, seconds: float) -> None:
        if number % every == 0 or number == options.steps - 1:
            row = f"{number:6} {seconds * 1e3:9.3f}" + ("" if options.infer else f" {loss:12.9f}")
            print(row, file=sys.stderr if options.json else sys.stdout, flush=True)

    try:
        training = Training(Cuda(), options)
        if not options.json:
            print(opening(training), flush=True)
        if options.wait:
            told_to_begin()
        document = training.run(heard)
    except CudaError as fault:
        print(f"elastic-ai-train: {said(fault)}", file=sys.stderr)
        return 2
    except (Unusable, NotKept) as fault:
        print(f"elastic-ai-train: {fault}", file=sys.stderr)
        return 2
    except OSError as fault:
        print(f"elastic-ai-train: no CUDA driver library: {fault}", file=sys.stderr)
        return 2
    except AttributeError as fault:
        print(f"elastic-ai-train: this driver or engine lacks a function that kernels need: {fault}", file=sys.stderr)
        return 2
    print(json.dumps(document) if options.json else ending(document))
    if not all(loss == loss and abs(loss) < 1e30 for loss in document["losses"]):
        return 1
    if document["told_s"] is None or document["steps"] == options.steps:
        return 0
    return INTERRUPTED if document["told_by"] == "SIGINT" else TOLD


if __name__ == "__main__":
    sys.exit(main())
