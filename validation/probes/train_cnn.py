"""The training program of training_short: a network of the whitepaper, one process a rank.

Synthetic images as in the reference architecture's short test: what is measured is compute and the all-reduce of the
gradients, not storage. They stay on the device; those of files are train_input's. Every rank has a batch of its own, of
images that are a common pattern for each of ten classes plus noise, so that the loss must fall with any number of
ranks. Momentum and weight decay are the whitepaper's; its learning rate of 0.4 is for 90 epochs, and a rate does not
depend on it.

On GPUs where every rank has one of its own, else on processors. Rank 0 prints one line of JSON. What keeps the job from
being measured is in it, too (`cannot`): a batch that does not fit into memory, a network whose library is not there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.base.counting import number_of
from validation.probes import gpu_watch, train_trace
from validation.probes.train_input import Feed, feed_of
from validation.probes.train_networks import NETWORKS, PRODUCTS, SMALL, Missing, build
from validation.probes.train_world import Alone, about, agree, begin_rank, join, leave, parser_of, sums_of

PATTERNS = 10
NOISE = 0.5  # standard deviation; that of the patterns is 1
LEARNING_RATE = 0.01
MOMENTUM, WEIGHT_DECAY = 0.9, 0.0001  # Dell whitepaper 2019, section 7.4.1
TRACED = {True: 5, False: 3}  # steps after the measured ones of which a trace is kept, on GPUs and on processors
EXIT_MEMORY = 77  # a rank that found no memory in the middle of the job: the others wait for it


class CannotTrain(Exception):
    """What keeps this rank from training, in words; no fault of the program."""


class Device:
    """What a rank computes on, and in which precision."""

    def __init__(self, torch: Any, world: Alone, args: argparse.Namespace) -> None:
        """A GPU of its own for each rank, or processors for all. CannotTrain where that is not what was asked for."""
        self.torch, self.precision = torch, args.precision
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        mine = args.device != "cpu" and gpus > world.local
        if args.device == "gpu" and not mine:
            build_of = f"torch {torch.__version__} (CUDA {torch.version.cuda or 'not built in'})"
            raise CannotTrain(f"{build_of} sees {number_of(gpus, 'GPU')}, one for each rank is needed")
        self.wish = mine
        self.cuda, self.words = False, f"cpu {platform.machine()}"
        self.watch: gpu_watch.Watch | None = None  # of this rank's GPU, made before the rank itself works on it

    def settle(self, world: Alone) -> Any:
        """The device of this rank: a GPU where every rank has one."""
        torch = self.torch
        self.cuda = all(row[0] for row in world.gather(torch, [float(self.wish)]))
        if not self.cuda:
            if self.precision in ("tf32", "fp16"):
                raise CannotTrain(f"processors do not train in {self.precision}")
            return torch.device("cpu")
        self.watch = gpu_watch.Watch(gpu_watch.address(world.local))
        torch.cuda.set_device(world.local)
        bus = ctypes.create_string_buffer(64)
        if ctypes.CDLL("libcuda.so.1").cuDeviceGetPCIBusId(bus, 64, world.local):
            raise CannotTrain(f"the driver does not tell the PCI address of GPU {world.local}")
        self.words = f"GPU {bus.value.decode().lower()} {torch.cuda.get_device_name(world.local)}"
        least = {"bf16": (8, 0), "tf32": (8, 0)}.get(self.precision, (0, 0))
        if tuple(torch.cuda.get_device_capability(world.local)) < least:
            raise CannotTrain(f"{self.words} does not compute in {self.precision}")
        torch.backends.cudnn.benchmark = True  # the fastest algorithm for sizes that stay
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        return torch.device("cuda", world.local)

    def autocast(self) -> Any:
        """The context in which the network runs forward."""
        if self.precision in ("fp32", "tf32"):
            return contextlib.nullcontext()
        kind = "cuda" if self.cuda else "cpu"
        return self.torch.autocast(kind, dtype=getattr(self.torch, PRODUCTS[self.precision]))

    def scaler(self) -> Any:
        """What keeps small gradients of fp16 above zero; None for other types."""
        if self.precision != "fp16":
            return None
        amp: Any = getattr(self.torch, "amp", None)
        if hasattr(amp, "GradScaler"):
            return amp.GradScaler("cuda")
        return self.torch.cuda.amp.GradScaler()

    def rounds_to_tf32(self, at: Any) -> bool:
        """True where a convolution of float32 loses what ten bits of mantissa cannot hold: tensor cores took it."""
        torch = self.torch
        value = 1 + 2.0**-14
        images = torch.full((8, 32, 16, 16), value, device=at)
        weights = torch.zeros(32, 32, 3, 3, device=at)
        weights[:, 0, 1, 1] = 1.0
        made = torch.nn.functional.conv2d(images, weights, padding=1)
        return bool((made != value).any())


class Products:
    """The types that a network's matrix products and convolutions come out in: a witness of the precision."""

    def __init__(self, torch: Any, model: Any) -> None:
        """Look at each of them from now on."""
        self.seen: dict[str, int] = {}
        kinds = (torch.nn.Conv2d, torch.nn.Linear)
        self.hooks = [m.register_forward_hook(self._look) for m in model.modules() if isinstance(m, kinds)]

    def _look(self, _module: Any, _inputs: Any, made: Any) -> None:
        name = str(made.dtype).rpartition(".")[2]
        self.seen[name] = self.seen.get(name, 0) + 1

    def end(self) -> dict[str, int]:
        """How many came out in each type."""
        for hook in self.hooks:
            hook.remove()
        return self.seen


class Training:
    """A network, its images and everything that a step needs."""

    def __init__(self, torch: Any, world: Alone, device: Device, at: Any, args: argparse.Namespace) -> None:
        """Make all of it on this rank's device; Missing, or torch's own fault where memory does not suffice."""
        self.torch, self.world, self.device, self.args = torch, world, device, args
        network = NETWORKS[args.model]
        torch.manual_seed(99)
        patterns = torch.randn(PATTERNS, 3, network.side, network.side)  # the same on every rank
        self.model = build(torch, args.model).to(at)
        torch.manual_seed(1234 + world.rank)
        labels = torch.arange(args.batch) % PATTERNS
        self.labels, self.images = labels.to(at), patterns.to(at)[labels]
        self.images += NOISE * torch.randn(self.images.shape, device=at)
        if device.cuda and args.precision in ("bf16", "fp16"):  # the order that their tensor cores take
            self.model = self.model.to(memory_format=torch.channels_last)
            self.images = self.images.to(memory_format=torch.channels_last)
        decay = 0.0 if args.model == SMALL else WEIGHT_DECAY
        rates = {"lr": LEARNING_RATE, "momentum": MOMENTUM, "weight_decay": decay}
        self.optimizer = torch.optim.SGD(self.model.parameters(), **rates)
        self.loss_of, self.scaler = torch.nn.CrossEntropyLoss(), device.scaler()
        self.parameters = list(self.model.parameters())
        if args.cores and not device.cuda:
            torch.set_num_threads(args.cores)
        self.feed: Feed | None = args.feed
        if self.feed is not None:
            self.feed.start(at, self.images)
        world.start(torch, at)

    def try_alone(self) -> dict[str, int]:
        """One step of this rank by itself, which takes the memory that it will need; the types of its products."""
        products = Products(self.torch, self.model)
        with self.device.autocast():
            loss = self.loss_of(self.model(self.images).float(), self.labels)
        loss.backward()
        group = self.optimizer.param_groups[0]
        rate, group["lr"] = group["lr"], 0.0  # it takes memory and learns nothing
        self.optimizer.step()
        group["lr"] = rate
        self.optimizer.state.clear()
        self.optimizer.zero_grad()
        return products.end()

    def begin(self) -> None:
        """All ranks with the parameters of rank 0."""
        self.model, self.optimizer = self.world.wrap(self.torch, self.model, self.optimizer)

    def step(self) -> tuple[float, list[float]]:
        """Loss, and seconds: the whole step, input, forward and backward, waiting for the average of gradients."""
        clock = self.world.clock
        begin, first = time.perf_counter(), clock.now()
        # synthetic ones are on the device: nothing is loaded
        images, labels = (self.images, self.labels) if self.feed is None else self.feed.next()
        fed = clock.now()
        self.optimizer.zero_grad()
        with self.device.autocast():
            loss = self.loss_of(self.model(images).float(), labels)
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        done, averaged = self.world.backward(scaled, self.optimizer)
        self.world.step(self.optimizer, self.scaler)
        value = float(loss.item())
        if self.device.cuda:
            self.torch.cuda.synchronize()
        whole = time.perf_counter() - begin
        parts = [clock.between(first, fed), clock.between(fed, done), clock.between(done, averaged)]
        return value, [whole, *parts]

    def trace(self) -> dict[str, Any] | None:
        """A few steps more on every rank, with a profiler on rank 0, which alone has what it saw."""
        cuda = self.device.cuda
        return train_trace.record(self.torch, self.step, TRACED[cuda], cuda, self.world.rank == 0)

    def sums(self) -> list[float]:
        """The sum of each parameter."""
        return sums_of(self.parameters)

    def count(self) -> int:
        """Parameters that are trained."""
        return sum(p.numel() for p in self.parameters)


def no_memory(torch: Any, fault: RuntimeError) -> bool:
    """True where torch, or a library below it, found no memory."""
    kind = getattr(torch.cuda, "OutOfMemoryError", ())
    return isinstance(fault, kind) or "out of memory" in str(fault) or "can't allocate memory" in str(fault)


def prepare(args: argparse.Namespace, torch: Any, world: Alone) -> tuple[Training | None, dict[str, Any]]:
    """What is ready to train on every rank, or why one of them cannot, which all of them learn."""
    why, device = args.no_images, None
    try:
        device = Device(torch, world, args)
    except CannotTrain as fault:
        why = str(fault)
    training, found, why = settled(
        args, torch, world, device, why, lambda device, at: Training(torch, world, device, at, args)
    )
    if device is not None and device.cuda:
        # before the rank came: how many processes worked on its GPU, and the bytes that they held
        held = device.watch.who["others"] if device.watch else {}
        found["others"] = world.gather(torch, [float(len(held)), float(sum(held.values()))])
    said = [text for text in world.texts(torch, why) if text]
    return training, {**found, "cannot": said[0] if said else "", "cannot_ranks": len(said)}


def settled(
    args: argparse.Namespace, torch: Any, world: Alone, device: Device | None, why: str, made: Callable[..., Any]
) -> tuple[Any, dict[str, Any], str]:
    """What `made(device, where)` makes, with a first step of it, what was found, and why this rank cannot train.

    All ranks come here, those too that cannot: nobody settles where one does not.
    """
    learner, found = None, dict[str, Any]()
    if any(stopped(torch, world, why)) or device is None:
        return learner, found, why
    try:
        at = device.settle(world)
    except CannotTrain as fault:
        why = str(fault)
    if not any(stopped(torch, world, why)):
        try:
            learner = made(device, at)
            found = {"products": learner.try_alone(), "tf32": device.rounds_to_tf32(at)}
        except Missing as fault:
            why = str(fault)
        except RuntimeError as fault:
            if not no_memory(torch, fault):
                raise
            why = f"out of memory: a batch of {args.batch} images does not fit on {device.words}"
    found["devices"] = world.texts(torch, device.words)
    return learner, found, why


def stopped(torch: Any, world: Alone, why: str) -> list[float]:
    """For each rank whether it cannot go on."""
    return [row[0] for row in world.gather(torch, [float(bool(why))])]


def train(args: argparse.Namespace, torch: Any, world: Alone) -> dict[str, Any]:
    """Run all steps on this rank and gather what the ranks measured; the same dictionary on every rank."""
    training, found = prepare(args, torch, world)
    told = {
        **about(args, torch, world),
        "hosts": world.texts(torch, socket.gethostname()),
        "warmup": args.warmup,
        "steps": args.steps,
        "source": args.feed.source if args.feed else "",
        "workers": args.feed.workers if args.feed else 0,
        **found,
    }
    if told["cannot"] or training is None:
        return told
    training.begin()
    losses, seconds = [], []
    watch = training.device.watch
    with watch or contextlib.nullcontext():
        for _ in range(args.warmup + args.steps):
            loss, times = training.step()
            losses.append(loss)
            seconds.append(times)
    seen = {"watch": gpu_watch.of_ranks(watch, world, torch)} if watch is not None else {}
    return {**told, **seen, **figures(args, torch, world, training, losses, seconds)}


def figures(
    args: argparse.Namespace, torch: Any, world: Alone, training: Any, losses: list[float], seconds: list[Any]
) -> dict[str, Any]:
    """What all ranks measured, put together; `training` is this program's, or that of train_tf.

    The job is as fast as its slowest rank: of each step the largest time.
    """
    every = [
        [row[at::4] for at in range(4)] for row in world.gather(torch, [t for s in seconds[args.warmup :] for t in s])
    ]
    whole, own = [ranks[0] for ranks in every], [ranks[2] for ranks in every]
    slowest = [max(times) for times in zip(*whole)]
    parts = {
        name: [round(sum(times) / world.size, 7) for times in zip(*(ranks[at] for ranks in every))]
        for at, name in ((1, "input_s"), (2, "compute_s"), (3, "allreduce_s"))
    }
    mean = [sum(values) / world.size for values in zip(*world.gather(torch, losses))]
    lost = next((at + 1 for at, value in enumerate(mean) if not math.isfinite(value)), 0)
    same = agree(torch, world, training.sums())
    trace = training.trace()
    return {
        "step_s": [round(s, 6) for s in slowest],
        "images_per_s": [round(args.batch * world.size / s, 3) for s in slowest],
        "rank_images_per_s": [round(args.batch * args.steps / sum(times), 3) for times in whole],
        "rank_compute_s": [round(sum(times) / args.steps, 7) for times in own],
        **parts,
        "allreduce_kernels": train_trace.shares(trace) if world.size > 1 else [],
        "trace": trace,
        "losses": [round(value, 5) if math.isfinite(value) else None for value in mean],
        "loss_first": mean[0] if math.isfinite(mean[0]) else None,
        "loss_last": mean[-1] if math.isfinite(mean[-1]) else None,
        "loss_lost_step": lost,
        "loss_finite": not lost,
        "ranks_agree": same,
        "parameters": training.count(),
    }


def say_who(world: Alone) -> None:
    """From here on a rank that fails says which one it is, on every line of its last words."""

    def last_words(kind: Any, fault: BaseException, trace: Any) -> None:
        who = f"[rank {world.rank} on {socket.gethostname()}]"
        for line in "".join(traceback.format_exception(kind, fault, trace)).splitlines():
            print(who, line, file=sys.stderr)
        sys.stderr.flush()
        # The others wait for this rank in the middle of a step: nothing of it may wait for them in turn.
        os._exit(EXIT_MEMORY if "out of memory" in str(fault) else 1)

    sys.excepthook = last_words


def main() -> None:
    """One rank."""
    parser = parser_of(__doc__)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--images", choices=("synthetic", "real"), default="synthetic")
    parser.add_argument("--data", default="", help="a folder with pictures; without it pictures of the program's own")
    parser.add_argument("--cores", type=int, default=0, help="processors of each rank; 0: all of its share")
    args = parser.parse_args()
    torch = begin_rank(args)
    args.feed, args.no_images = feed_of(torch, args, NETWORKS[args.model])
    world = join(torch, args.framework, args.meet, args.time_limit_s)
    say_who(world)
    report = train(args, torch, world)
    if world.rank == 0:
        trace = report.pop("trace", None)
        lines = [train_trace.line_of(trace)] if trace else []
        print(*lines, json.dumps(report), sep="\n", flush=True)
    leave(world)


if __name__ == "__main__":
    main()
