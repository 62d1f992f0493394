"""A decoder trained data-parallel over several nodes, launched as training_short is: train_decoder.py on each rank.

`stdout`: the launcher's output, in it one line of JSON from rank 0, whose fields are the `facts`. `cannot` alone where
the job could not be measured here: no memory, or a torch without FSDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from validation.base.counting import number_of
from validation.measures.training import training_short_probe
from validation.measures.training.training_short_probe import alike, explained, launched, version, with_mpi
from validation.probes import PROGRAM_FOLDER, ProbeDoc
from validation.probes.tool import Ran, document
from validation.probes.train_decoders import TINY

PROGRAM = PROGRAM_FOLDER / "train_decoder.py"


@dataclass
class Asked(training_short_probe.Asked):
    """What is asked of this probe: `batch` is sequences of a rank and step."""

    model: str = TINY
    sharding: Literal["ddp", "fsdp"] = "ddp"  # each rank has all parameters, or a part of them


def program(args: Asked, framework: str) -> list[str]:
    """The training program and its arguments; torch's own all-reduce, whatever the image has."""
    words = [str(PROGRAM), "--warmup", str(args.warmup), "--steps", str(args.steps), "--batch", str(args.batch)]
    words += ["--time-limit-s", str(args.time_limit_s), "--model", args.model, "--precision", args.precision]
    return [*words, "--device", args.device, "--sharding", args.sharding, "--framework", framework]


def wrong(args: Asked, report: dict[str, Any]) -> str | None:
    """What the job did other than asked, in words; None where it did everything, or cannot be measured here."""
    if report.get("cannot"):
        return None
    steps = report["tokens_per_s"]
    checks = [
        (report["world_size"] == args.ranks, f"ran with {number_of(report['world_size'], 'rank')}, not {args.ranks}"),
        (len(steps) == args.steps, f"measured {number_of(len(steps), 'step')}, not {args.steps}"),
        (report["loss_finite"], "had a loss that is not a number"),
    ]
    faults = [text for good, text in checks if not good]
    return "the training " + ", ".join(faults) if faults else None


def probe(args: Asked) -> ProbeDoc:
    """Train for `warmup` + `steps` steps; tokens/s of the whole job for each measured step."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        job = launched(args)
        looked, why = alike(job)
        if looked is not None:
            return looked, {}, why
        made = training_short_probe.train(job, lambda framework: program(job, framework), lambda r: wrong(job, r))
        return with_mpi(job, made)

    return explained(document("training-decoder", "torch", measure, lambda ran: version(ran.stdout)))
