"""The training program of training_long: a network of the whitepaper on pictures with labels, to an accuracy.

One process a rank; the ranks meet as in train_cnn.py. train_course.py has the course, which ends with one line of JSON
of rank 0. The accuracy on training data is that of the batches that are learned from, as tf_cnn_benchmarks prints it;
that on validation data is of whole pictures after each epoch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.probes import train_keep, train_tiny
from validation.probes.train_cnn import (
    MOMENTUM,
    WEIGHT_DECAY,
    CannotTrain,
    Device,
    Products,
    say_who,
    settled,
)
from validation.probes.train_course import Course, Diverged, Training
from validation.probes.train_data import BadData, Pictures, look, storage_of
from validation.probes.train_feed import Cut, Feeder
from validation.probes.train_networks import NETWORKS, build
from validation.probes.train_world import Alone, about, agree, begin_rank, join, leave, parser_of, sums_of

SEED = 20190201
MOST_WORKERS = 16  # processes that feed a rank; "16 CPU threads enough to feed the input pipeline" (Dell EMC, 2019)
TINY = "tiny"


class Ranks:
    """The world as train_course.py has it."""

    def __init__(self, torch: Any, world: Alone) -> None:
        """Of this rank."""
        self.torch, self.world, self.rank, self.size = torch, world, world.rank, world.size

    def everyone(self, values: list[float]) -> list[list[float]]:
        """A row of each rank."""
        return self.world.gather(self.torch, values)

    def share(self, data: bytes) -> bytes:
        """What rank 0 has."""
        return self.world.share(self.torch, data)


class TorchLearner:
    """A network that learns by torch."""

    def __init__(
        self, torch: Any, world: Alone, device: Device, at: Any, args: argparse.Namespace, sets: list[Pictures]
    ) -> None:
        """Weights by the seed, the same on every rank. Missing, or torch's own fault where memory does not suffice."""
        self.torch, self.world, self.device, self.at = torch, world, device, at
        network = NETWORKS[args.model]
        torch.manual_seed(args.seed)
        self.net = build(torch, args.model).to(at)
        if device.cuda and args.precision in ("bf16", "fp16"):  # the order that their tensor cores take
            self.net = self.net.to(memory_format=torch.channels_last)
        torch.manual_seed(args.seed + 1 + world.rank)
        rates = {"lr": 0.1, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY}
        self.optimizer = torch.optim.SGD(self.net.parameters(), **rates)
        self.loss_of, self.scaler = torch.nn.CrossEntropyLoss(), device.scaler()
        workers = args.workers if args.workers >= 0 else 0
        if args.workers < 0 and device.cuda:
            beside = world.texts(torch, socket.gethostname()).count(socket.gethostname())
            workers = max(1, min(MOST_WORKERS, len(os.sched_getaffinity(0)) // beside))
        self.workers, self.side = workers, network.side
        self.feeders = [
            Feeder(torch, Cut(one, network.side, network.classes, args.seed, learning), at, workers)
            for one, learning in zip(sets, (True, False))
        ]
        self.val = list(range(len(sets[1])))[world.rank :: world.size]
        self.batch = args.batch
        self.clear([0.0] * 4)
        world.start(torch, at)

    def try_alone(self) -> dict[str, int]:
        """One step of this rank by itself on an empty picture, which takes the memory that it will need."""
        products = Products(self.torch, self.net)
        before = io.BytesIO()
        self.torch.save(self.net.state_dict(), before)
        images = self.torch.zeros(self.batch, 3, self.side, self.side, device=self.at)
        labels = self.torch.zeros(self.batch, dtype=self.torch.long, device=self.at)
        with self.device.autocast():
            loss = self.loss_of(self.net(images).float(), labels)
        loss.backward()
        self.optimizer.zero_grad()
        before.seek(0)
        self.net.load_state_dict(self.torch.load(before, map_location=self.at))
        return products.end()

    def begin(self) -> None:
        """All ranks with the parameters of rank 0."""
        self.model, self.optimizer = self.world.wrap(self.torch, self.net, self.optimizer)

    def feed(self, epoch: int, batches: list[list[int]]) -> Iterator[Any]:
        """Of the training pictures."""
        return self.feeders[0].feed(epoch, batches)

    def step(self, batch: Any, rate: float) -> None:
        """One step of momentum."""
        images, labels = batch
        if self.device.cuda and self.device.precision in ("bf16", "fp16"):
            images = images.to(memory_format=self.torch.channels_last)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        with self.device.autocast():
            made = self.model(images).float()
            loss = self.loss_of(made, labels)
        self.world.backward(loss if self.scaler is None else self.scaler.scale(loss), self.optimizer)
        self.world.step(self.optimizer, self.scaler)
        self._count(self.seen, made.detach(), loss.detach(), labels)

    def _count(self, seen: Any, made: Any, loss: Any, labels: Any) -> None:
        best = made.topk(5, 1).indices == labels[:, None]
        images = len(labels)
        seen += self.torch.stack(
            [loss.double() * images, best[:, 0].sum().double(), best.sum().double(), self.one * images]
        )

    def wait(self) -> None:
        """Until the GPU has done all."""
        if self.device.cuda:
            self.torch.cuda.synchronize()

    def sums(self) -> list[float]:
        """Loss times images, right, right within five, images."""
        return [float(value) for value in self.seen.tolist()]

    def clear(self, sums: list[float]) -> None:
        """On the device, so that no step waits for a number."""
        self.seen = self.torch.tensor(sums, dtype=self.torch.float64, device=self.at)
        self.one = self.torch.ones((), dtype=self.torch.float64, device=self.at)

    def validate(self) -> list[float]:
        """This rank's part, each picture once over all ranks."""
        self.world.even(self.net)
        seen = self.torch.zeros(4, dtype=self.torch.float64, device=self.at)
        batches = [self.val[at : at + self.batch] for at in range(0, len(self.val), self.batch)]
        self.net.eval()
        with self.torch.no_grad():
            for images, labels in self.feeders[1].feed(0, batches):
                with self.device.autocast():
                    made = self.net(images).float()
                self._count(seen, made, self.loss_of(made, labels), labels)
        self.net.train()
        return [float(value) for value in seen.tolist()]

    def state(self) -> bytes:
        """Weights, statistics, momentum, the scaler, and the random numbers of every rank."""
        torch = self.torch
        mine = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if self.device.cuda else [])]
        rows = [self.world.gather(torch, [float(byte) for byte in one.tolist()]) for one in mine]
        if self.world.rank:
            return b""
        made = io.BytesIO()
        random = [[torch.tensor([int(byte) for byte in row], dtype=torch.uint8) for row in one] for one in rows]
        # Tensors and whole numbers alone: what reads a checkpoint without running code of it, of torch 1.13 no others.
        scaler = self.scaler.state_dict() if self.scaler is not None else {}
        kept = {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()["state"], "random": random}
        kept["scaler"] = {key: torch.tensor(float(value), dtype=torch.float64) for key, value in scaler.items()}
        torch.save(kept, made)
        return made.getvalue()

    def restore(self, state: bytes) -> None:
        """On this rank's device. Tensors and numbers alone are read: no code of a checkpoint runs."""
        torch = self.torch
        kept = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        self.net.load_state_dict(kept["model"])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": kept["optimizer"]})
        if self.scaler is not None:
            was = self.scaler.state_dict()
            self.scaler.load_state_dict({key: type(was[key])(float(one)) for key, one in kept["scaler"].items()})
        torch.set_rng_state(kept["random"][0][self.world.rank])
        if self.device.cuda:
            torch.cuda.set_rng_state(kept["random"][1][self.world.rank])


def prepare(
    args: argparse.Namespace, torch: Any, world: Alone
) -> tuple[TorchLearner | None, list[Pictures], dict[str, Any]]:
    """What is ready to learn on every rank, or why one of them cannot, which all of them are told."""
    why, device, sets = "", None, []
    network = NETWORKS[args.model]
    try:
        device = Device(torch, world, args)
        folder = args.data
        if folder.partition(":")[0] == TINY:
            kind = folder.partition(":")[2] or "folders"
            folder = str(Path(args.checkpoints) / f"{TINY}-{kind}")
            Path(args.checkpoints).mkdir(parents=True, exist_ok=True)
            train_tiny.make(Path(folder), kind)
        sets = [look(folder, split, network.classes) for split in ("train", "val")]
    except (CannotTrain, BadData) as fault:
        why = str(fault)
    except OSError as fault:
        why = f"{args.checkpoints} cannot be written: {fault.strerror}"
    learner, found, why = settled(
        args, torch, world, device, why, lambda device, at: TorchLearner(torch, world, device, at, args, sets)
    )
    said = [(rank, text) for rank, text in enumerate(world.texts(torch, why)) if text]
    counts = {tuple(row) for row in world.gather(torch, [float(len(one)) for one in sets] or [0.0, 0.0])}
    if not said and len(counts) > 1:
        said = [(0, f"the nodes do not have the same pictures: {sorted(int(row[0]) for row in counts)} to train on")]
    hosts = world.texts(torch, socket.gethostname())
    told = f"{hosts[said[0][0]]}: {said[0][1]}" if said else ""
    return learner, sets, {**found, "hosts": hosts, "cannot": told, "cannot_ranks": len(said)}


def train(args: argparse.Namespace, torch: Any, world: Alone) -> dict[str, Any]:
    """The whole course; the same dictionary on every rank."""
    learner, sets, found = prepare(args, torch, world)
    told = {**about(args, torch, world), "epochs": args.epochs, "seed": args.seed, **found}
    if told["cannot"] or learner is None:
        return told
    same: dict[str, Any] = {
        "network": args.model, "world": world.size, "batch": args.batch, "precision": args.precision,
        "epochs": args.epochs, "seed": args.seed, "framework": world.name, "format": sets[0].kind,
        "images": len(sets[0]), "validation images": len(sets[1]),
    }  # fmt: skip
    learner.begin()
    course = Course(
        args.epochs, args.batch, args.seed, Path(args.checkpoints), same, checkpoint_steps=args.checkpoint_steps
    )
    try:
        training = Training(course, learner, Ranks(torch, world), sets[0])
        training.resume()
        position = training.run()
    except (CannotTrain, Diverged) as fault:  # of all ranks at the same time
        return {**told, "cannot": str(fault)}
    same_parameters = agree(torch, world, sums_of(learner.net.parameters()))
    return {
        **told,
        "format": sets[0].kind,
        "storage": storage_of(sets[0].files[0]),
        "images": len(sets[0]),
        "val_images": len(sets[1]),
        "classes": sets[0].classes or NETWORKS[args.model].classes,
        "workers": learner.workers,
        "steps": training.steps,
        "curve": position.records,
        "predicted": position.predicted,
        "resumed": position.resumed,
        "seconds": round(position.seconds, 3),
        "checkpoint_steps": training.every,
        "parameters": sum(p.numel() for p in learner.net.parameters()),
        "ranks_agree": same_parameters,
    }


def main() -> None:
    """One rank."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", required=True, help="folder; tiny, tiny:tar or tiny:tfrecord: made here")
    parser.add_argument("--checkpoints", required=True, help="folder; '': one that is gone with this rank")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--checkpoint-steps", type=int, default=0)
    parser.add_argument("--workers", type=int, default=-1, help="-1: by the cores where there are GPUs, else none")
    args = parser.parse_args()
    args.checkpoints = args.checkpoints or str(train_keep.going())
    torch = begin_rank(args)
    world = join(torch, args.framework, args.meet, args.time_limit_s)
    say_who(world)
    report = train(args, torch, world)
    if world.rank == 0:
        print(json.dumps(report), flush=True)
    leave(world)


if __name__ == "__main__":
    main()
