"""A long data-parallel training to an accuracy, over the nodes that the reference architecture trains on.

Runs on the launching node as the short training does, with the same launchers, users and networks. It goes on from the
checkpoint that is in its folder, so that a training which was ended, by whatever, loses what came after the last one.

`stdout`: the launcher's output, in it one line of JSON from rank 0 (train_long.py): world_size, hosts, devices, model,
precision, batch, epochs, seed, framework, format, storage (the file system of the pictures), images, val_images,
classes, steps (of an epoch), curve (a line for each epoch: rate, loss, train_top1, train_top5, val_loss, val_top1,
val_top5, images, train_s, input_s, val_s, images_per_s), predicted (step_s, images_per_s, input_images_per_s, hours),
resumed (where it went on, each time), seconds, checkpoint_steps, workers, parameters, ranks_agree, threads, python,
torch, horovod. `cannot` where it could not train at all, and why. `facts`: the same, and mpi.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from validation.base.counting import number_of
from validation.measures.training.training_short_probe import Asked as Job
from validation.measures.training.training_short_probe import explained, launched, train, version, with_mpi
from validation.probes import PROGRAM_FOLDER, ProbeDoc
from validation.probes.tool import Ran, document

PROGRAM = PROGRAM_FOLDER / "train_long.py"


@dataclass
class Asked(Job):
    """What is asked of this probe, besides what a short training is asked; `warmup` and `steps` are of no meaning."""

    data: str = ""  # folder with train and val; tiny, tiny:tar, tiny:tfrecord: made by the ranks
    checkpoints: str = ""  # folder, of this training alone; "": of each rank, gone with it
    epochs: int = 90
    seed: int = 20190201
    checkpoint_steps: int = 0  # 0: about every ten minutes
    workers: int = -1  # processes that feed a rank; -1: by the cores


def program(args: Asked, framework: str) -> list[str]:
    """The training program and its arguments."""
    words = [str(PROGRAM), "--data", args.data, "--checkpoints", args.checkpoints, "--epochs", str(args.epochs)]
    words += ["--batch", str(args.batch), "--seed", str(args.seed), "--workers", str(args.workers)]
    words += ["--checkpoint-steps", str(args.checkpoint_steps), "--time-limit-s", str(args.time_limit_s)]
    return [*words, "--model", args.model, "--precision", args.precision, "--device", args.device,
            "--framework", framework]  # fmt: skip


def wrong(args: Asked, report: dict[str, Any]) -> str | None:
    """What the job did other than asked, in words; None when it did everything."""
    if report.get("cannot"):
        return f"{args.model} was not trained: {report['cannot']}"
    placed = sorted(Counter(report["hosts"]).values())
    asked = sorted(int(host.rsplit(":", 1)[1]) for host in args.hosts)
    losses = [line["loss"] for line in report["curve"]]
    checks = [
        (
            report["world_size"] == args.ranks,
            f"ran with {number_of(report['world_size'], 'rank')} instead of {args.ranks}",
        ),
        (placed == asked or sum(asked) > args.ranks, f"placed its ranks as {placed} instead of {asked}"),
        (len(losses) == args.epochs, f"has {number_of(len(losses), 'epoch')} instead of {args.epochs}"),
        (all(math.isfinite(loss) for loss in losses), "had a loss that is not a number"),
        (report["ranks_agree"], "ended with different parameters on different ranks"),
    ]
    faults = [text for good, text in checks if not good]
    return "the training " + ", ".join(faults) if faults else None


def probe(args: Asked) -> ProbeDoc:
    """Train all epochs, or those that are left."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        as_it_can = launched(args)
        job = train(as_it_can, lambda framework: program(args, framework), lambda report: wrong(args, report))
        return with_mpi(as_it_can, job)

    return explained(document("training-long", "horovod", measure, lambda ran: version(ran.stdout)))
