"""`toolkit train`: a training by itself, of hours."""

from __future__ import annotations

from pathlib import Path

import click

from toolkit import rundir
from toolkit.commands.formats import format_option
from toolkit.commands.options import inventory_option, runs_dir_option
from toolkit.commands.validate import begin, go_on
from toolkit.errors import UsageFault
from toolkit.exits import epilogue
from validation.model import Scalar
from validation.probes.train_networks import NETWORKS, PRECISIONS
from validation.suites.training_long import EPOCHS, IN_MEMORY, LIMIT_HOURS

SUITES = ("preflight", "training")


@click.group()
def train() -> None:
    """Train on the GPU servers of an inventory, in the stack that was provisioned.

    \b
    toolkit train long --model resnet50 --data /data/imagenet --checkpoints /data/checkpoints -i inventories/site
    toolkit train long --data tiny --model small-resnet --epochs 4      the virtual lab: minutes
    """


@train.command(epilog=epilogue("validate"))
@click.option("--model", metavar="NAME", help=f"{', '.join(NETWORKS)}.  [default: resnet50 on GPUs]")
@click.option("--data", metavar="DIR", help="Pictures on every GPU server: train and val as folders of classes, tar "
              "shards or TFRecord; or tiny: a small set that is made there.")  # fmt: skip
@click.option("--checkpoints", metavar="DIR", help="Folder on the GPU servers for this training alone; best one that "
              f"they share.  [default, of a lab alone: {IN_MEMORY}]")  # fmt: skip
@click.option("--epochs", type=click.IntRange(1, 10_000), help=f"[default: {EPOCHS}]")
@click.option("--batch", metavar="N", help="Images per GPU and step.  [default: 128 on GPUs]")
@click.option("--gpus", metavar="N", help="Number of GPUs.  [default: all]")
@click.option("--dtype", metavar="NAME", help=f"{', '.join(PRECISIONS)}.  [default: fp16 on GPUs, else fp32]")
@click.option("--checkpoint-steps", type=click.IntRange(1), help="Steps between checkpoints.  [default: ten minutes]")
@click.option("--limit-hours", type=click.IntRange(1, 8760), help=f"End it after that.  [default: {LIMIT_HOURS}]")
@click.option("--fabric", metavar="NAME", help="The network; toolkit fabrics lists them.  [default: the inventory's]")
@inventory_option
@click.option("--resume", metavar="RUN", help="Go on from the newest checkpoint of a run that was ended.")
@click.option("--dry-run", is_flag=True, help="Print the plan, touch no node.")
@format_option(none=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout: the verdict, or the plan.")
@runs_dir_option
def long(
    model: str | None,
    data: str | None,
    checkpoints: str | None,
    epochs: int | None,
    batch: str | None,
    gpus: str | None,
    dtype: str | None,
    checkpoint_steps: int | None,
    limit_hours: int | None,
    fabric: str | None,
    inventory: Path,
    resume: str | None,
    dry_run: bool,
    formats: tuple[str, ...],
    as_json: bool,
    runs_dir: Path,
) -> None:
    """Train a network to an accuracy, as the long test of the reference architecture does.

    Its rate is 0.4, from epoch 10 on 0.04 and from 60 on 0.004, of 90, for 1024 images a step; for other numbers of
    epochs and images in proportion, above 1024 with a warm-up of 5 epochs. First the rate is measured and the hours are
    predicted. A checkpoint is written about every ten minutes and after each epoch: whatever ends the training, the
    same command with the same --checkpoints, or --resume RUN, goes on from there, with the same learning curve. It
    takes the same network, batch and number of GPUs.

    \b
    toolkit train long --model resnet50 --data /data/imagenet --checkpoints /data/ckpt -i inventories/site
    toolkit train long --resume runs/2026-11-21T10-15-00Z-ib-edr
    toolkit train long --data tiny:tar --model small-resnet --epochs 4      the virtual lab

    \b
    DIR/train/CLASS/*.jpg    DIR/val/CLASS/*.jpg              folders; classes in the order of their names
    DIR/train/*.tar          DIR/val/*.tar                    shards: KEY.jpg beside KEY.cls with a whole number
    DIR/train-00000-of-01024 DIR/validation-00000-of-00128    TFRecord, or *.tfrecord in folders train and val

    Both folders have to be volumes of the training container (horovod_volumes), and CHECKPOINTS writable for its user.
    """
    given: dict[str, str | int | None] = {
        "models": model, "data": data, "checkpoints": checkpoints, "epochs": epochs, "batches": batch, "gpus": gpus,
        "precisions": dtype, "checkpoint_steps": checkpoint_steps, "limit_hours": limit_hours,
    }  # fmt: skip
    options: dict[str, Scalar] = {key: value for key, value in given.items() if value is not None}
    if resume:
        if options or fabric or dry_run:
            raise UsageFault("--resume takes everything from the run; omit the other options")
        go_on(rundir.find(runs_dir, resume), formats, as_json)
        return
    if data is None:
        raise UsageFault("--data DIR is missing: the folder with the pictures, or tiny")
    options["alone"] = 1
    begin(fabric, inventory, SUITES, (None, None), None, options, dry_run, formats, as_json, runs_dir)
