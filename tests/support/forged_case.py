"""A signed run of real machines, to be forged: fixtures and ways to change a file."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.forging import signed_anew
from tests.support.report_fixture import make_run
from tests.support.signing_case import allow, make_key, sign
from validation.report.formats import write_formats
from validation.signing.verify import Verification, verify

QUICK = Path(__file__).parents[1] / "support/quick_pdf"


GOOD = ("verified", "intact")


@pytest.fixture(autouse=True)
def quick_pdf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in lays out the PDF."""
    stand_in(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QUICK)
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed run of real machines with profile, waivers and PDF, its key, and a file of allowed signers."""
    folder = tmp_path_factory.mktemp("forged")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        run = make_run(folder / "run", virtual=False, waive=True)
        write_formats(run)
        key = make_key(folder / "key")
        sign(run, key)
    return run, key, allow(folder / "allowed", key)


@pytest.fixture
def run(made: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def looked_at(run: Path, made: tuple[Path, Path, Path], **more: Any) -> Verification:
    signed_anew(run, made[1])
    return verify(run, made[2], **more)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def digit(data: bytes) -> bytes:
    """The last number of the file is another."""
    found = list(re.finditer(rb"(?<![#\w.])[1-9]", data))[-1]
    other = b"1" if found[0] == b"7" else b"7"
    return data[: found.start()] + other + data[found.end() :]


def word(data: bytes) -> bytes:
    """A word is another, in the middle of a text of any form."""
    found = list(re.finditer(rb"[a-z]{5,}", data))
    one = found[len(found) // 2]
    return data[: one.start()] + b"accepted" + data[one.end() :]


TAMPER: dict[str, Callable[[bytes], bytes]] = {
    "cut": cut,
    "digit": digit,
    "word": word,
    "empty": lambda data: b"",
    "more": lambda data: data + b"ACCEPTED\n",
    "deep": lambda data: b"[" * 2000 + b"]" * 2000,
    "nan": lambda data: b'{"run": NaN}\n',
    "huge": lambda data: b'{"run": ' + b"9" * 5000 + b"}\n",
    "twice": lambda data: b'{"run": "a", "run": "b"}\n',
    "surrogate": lambda data: b'{"run": "\\ud800"}\n',
    "bytes": lambda data: b"\xff\xfe" + data,
    "line": lambda data: b"x" * (2 << 20),
}


FORGED = b"%PDF-1.7\n% ACCEPTED\n%%EOF\n"
