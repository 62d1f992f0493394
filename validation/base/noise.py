"""What is ours among all that comes back from a node: login files, banners and warnings print there too.

A document is known by its form and an answer by its marks, never by where it stands. Standard library only, for Python
3.9: machines of the pool import this module too.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_ESCAPES = rb"(?:\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\xef\xbb\xbf|[\x00-\x20])+"
_BEFORE, _AFTER = re.compile(rb"^" + _ESCAPES), re.compile(_ESCAPES + rb"$")
_WARNINGS = re.compile(
    r"warning: setlocale|cannot (?:change|set) locale|^manpath: |^perl: warning|^Warning: Permanently added|"
    r"^Pseudo-terminal will not be|^\*\* |^setrlimit|^sudo: (?:setrlimit|unable to resolve host)|"
    r"^stty: |^tput: |^tcgetattr|^mesg: |no job control in this shell|cannot set terminal process group|"
    r"^Connection to \S+ closed|^Shared connection to|^X11 forwarding|^/usr/bin/xauth",
    re.IGNORECASE,
)
"""Lines of shells, sudo and ssh that no fault follows from."""
_SCRIPT = 'printf "\\n%s\\n" "$1"; mark=$1; shift; "$@"; code=$?; printf "\\n%s\\n" "$mark"; exit "$code"'


def documents(output: bytes) -> list[dict[str, Any]]:
    """Every line that is a JSON object, in order; other lines, and escape sequences around one, are left out."""
    found = []
    for line in output.splitlines():
        bare = _AFTER.sub(b"", _BEFORE.sub(b"", line, count=1), count=1)
        if bare.startswith(b"{"):
            with suppress(ValueError, RecursionError):
                value = json.loads(bare)
                if isinstance(value, dict):
                    found.append(value)
    return found


def is_ready(document: dict[str, Any]) -> bool:
    """Whether a document is the word of a program of ours that it waits for us."""
    return document.get("ready") is True


def last_words(said: str) -> str:
    """The last line that tells something; of a text of nothing but warnings the last of these, "" of an empty one."""
    lines = [printable(line).strip() for line in said.splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if not _WARNINGS.search(line)]
    return (telling or lines or [""])[-1]


def printable(line: str) -> str:
    """A line without control characters, those of a terminal's escape sequences with all that belongs to them."""
    bare = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)", "", line)
    return "".join(c for c in bare if c.isprintable() or c == "\t")


class Marked:
    """A command for a remote shell whose answer stands between two lines that nobody else can print."""

    def __init__(self, words: Sequence[str]) -> None:
        """`words`: the command; its exit status stays its own."""
        self._mark = f"elastic-ai-{secrets.token_hex(8)}"
        self.line = shlex.join(["sh", "-c", _SCRIPT, "sh", self._mark, *words])

    def is_mark(self, line: bytes) -> bool:
        """Whether a line of the output is one of the two marks."""
        return line.strip(b"\r\n") == self._mark.encode()

    def answer(self, output: bytes) -> bytes:
        """What the command itself printed; nothing where it was never run."""
        mark = self._mark.encode()
        begin = re.search(rb"^" + mark + rb"\r?\n", output, re.MULTILINE)
        if begin is None:
            return b""
        end = re.search(rb"\r?\n" + mark + rb"\r?$", output[begin.end() - 1 :], re.MULTILINE)
        return output[begin.end() :] if end is None else output[begin.end() : begin.end() - 1 + max(1, end.start())]
