"""An error on one GPU that ends the work of its process on all of them: a new process measures the others.

After some errors (an illegal address, a failed launch, uncorrectable memory; most come with an Xid in the kernel log)
"the process is in an inconsistent state and any further CUDA work will return the same error" (cuda.h), on the other
GPUs as well. Their cells would say of them what is wrong with one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from validation.probes.tool import Ran, Stopped, last_line, run_tool, stopped

ROOT = Path(__file__).parents[2]
WHOLE_S = 86400.0  # a new process ends with this one, whose own limit counts


class Spoilt(Exception):
    """This process can do nothing more on any GPU, by the fault of one. `uuid`: whose; its words: what it said."""

    def __init__(self, uuid: str, words: str) -> None:
        """`words` name the GPU."""
        super().__init__(words)
        self.uuid = uuid


def suspect(number: int, cells: Iterable[Mapping[str, Any]], untaken: set[int]) -> tuple[int, str] | None:
    """The GPU whose error came first in the turn of `number`, and the error; None where there is none.

    Of a pair it is the other one: this one's own copies went well. What was never taken (`untaken`) has one anyway.
    """
    wrong = [cell for cell in cells if "error" in cell and not {cell["source"], cell["target"]} & untaken]
    if not wrong:
        return None
    first = next((cell for cell in wrong if not _pair(cell)), wrong[0])
    return (first["target"] if _pair(first) else number), str(first["error"])


def _pair(cell: Mapping[str, Any]) -> bool:
    return str(cell["what"]) == "peer"


def again(kind: str, asked: Any, fault: Spoilt) -> tuple[Ran, dict[str, Any], str | None]:
    """The same probe in a new process, without the GPU whose fault it was; its output, its facts and what is wrong.

    This process has found out who works on the GPUs, and may be in the new one's way: nobody else is asked for again.
    """
    if stopped():
        raise Stopped
    words = f"{fault}; this ended all work of its process, and the other GPUs were measured without it"
    params = {**asdict(asked), "anyway": True, "without": {**asked.without, fault.uuid: words}}
    command = [sys.executable, "-m", "validation.probes", "--deadline-s", str(WHOLE_S), kind, json.dumps(params)]
    ran = run_tool(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    if stopped():
        raise Stopped
    try:
        found = json.loads(last_line(ran.stdout))
        return Ran([kind], found["returncode"], found["stdout"], found["stderr"]), found["facts"], found["error"]
    except (ValueError, KeyError, TypeError):
        return Ran([kind], 0, "", ran.stderr), {}, f"{fault}; a new process said nothing: {ran.failure or 'no report'}"
