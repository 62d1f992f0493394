"""A program that is sent to a node by ssh and answers with one JSON object; nothing is installed for it there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.node.head import last_words, ssh_words
from validation.base import bounded, noise
from validation.model import Node


def ask(
    node: Node, program: str, asked: Mapping[str, Any], timeout_s: float, words: Sequence[str] = ()
) -> dict[str, Any] | str:
    """What the program (a file of this package) answers on a node, as root; text where it does not, as a sentence.

    `words`: its command line. `asked`: what it reads from its stdin.
    """
    source = Path(program).read_bytes()
    boot = f"import sys;exec(compile(sys.stdin.buffer.read({len(source)}),'toolkit','exec'))"
    sudo = [] if node.ssh.user == "root" else ["sudo", "-n"]
    marked = noise.Marked([*sudo, "env", "LC_ALL=C", "python3", "-I", "-B", "-c", boot, *words])
    try:
        done = bounded.run(
            [*ssh_words(node.ssh), marked.line], most=bounded.STEADY_BYTES, timeout=timeout_s, where=node.name,
            stdin=source + json.dumps(asked).encode(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not answer within {timeout_s:.0f} s"
    except bounded.TooMuch as fault:
        return str(fault)
    answer = next(iter(noise.documents(marked.answer(done.stdout))), None)
    if answer is None:
        return last_words(done.stderr)
    return str(answer["refused"]) if "refused" in answer else answer
