"""How far a long training is, by the small file that its rank 0 keeps beside its checkpoints.

`stdout`: that file (train_course.py): epoch, epochs, step, steps, images_per_s, loss, last (the curve's last line),
predicted, written (seconds since 1970). A training that has written none yet is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from validation.measures.training.training_short_probe import ENTER
from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, run_tool
from validation.probes.train_course import PROGRESS


@dataclass
class Asked:
    """What is asked of this probe."""

    checkpoints: str  # folder, in the training container
    enter: str = ENTER  # runs a command in it; "": here


def probe(args: Asked) -> ProbeDoc:
    """Read the file once."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        enter = [args.enter] if args.enter else []
        ran = run_tool([*enter, "cat", f"{args.checkpoints}/{PROGRESS}"], timeout_s=20)
        try:
            return ran, json.loads(ran.stdout) if ran.returncode == 0 else {}, None
        except ValueError as fault:
            return ran, {}, f"the progress cannot be read: {fault}"

    return document("training-progress", "cat", measure, lambda ran: "")
