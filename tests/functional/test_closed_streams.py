"""Commands whose output nobody reads to its end, or that cannot be written: real processes on real pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.streams import Shown

pytestmark = pytest.mark.computes

ROOT = Path(__file__).resolve().parents[2]


def ended(words: str, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout is that file."""
    done = subprocess.run(
        [sys.executable, "-m", "toolkit", *words.split()],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr or ""


def closed_pipe() -> int:
    """The end for writing of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("validate --help", 0),
        ("profiles", 0),  # drawn by rich
        ("profiles --json", 0),
        ("lab fault list", 0),
        ("validate -i inventories/xe9680 --fabric roce400 --dry-run", 0),
        ("fabrics show nowhere", 2),
    ],
)
def test_command_ends_with_its_own_code_when_its_reader_is_gone(words: str, code: int) -> None:
    pipe = closed_pipe()
    try:
        found, said = ended(words, pipe)
    finally:
        os.close(pipe)
    assert found == code, said
    assert not any(words in said for words in ("Traceback", "Broken pipe", "BrokenPipe")), said


def test_stderr_without_reader_changes_no_code() -> None:
    pipe = closed_pipe()
    try:
        found, _ = ended("fabrics show nowhere", subprocess.DEVNULL, pipe)
    finally:
        os.close(pipe)
    assert found == 2


@pytest.mark.parametrize("words", ["profiles", "profiles --json", "--help"])
def test_full_disk_is_one_clear_error(words: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        found, said = ended(words, full.fileno())
    assert found == 2
    assert said == "error: the standard output cannot be written: No space left on device\n"


def test_bytes_that_are_handed_on_survive_their_reader_too() -> None:
    pipe = closed_pipe()
    with os.fdopen(pipe, "w", encoding="utf-8") as stream:
        shown = Shown(stream)
        shown.buffer.write(b"from the head")
        shown.buffer.flush()
        shown.write("after it")
        shown.flush()
