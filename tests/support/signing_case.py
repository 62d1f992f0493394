"""Runs with keys and signatures, for the tests of signing."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.report_fixture import make_run
from tests.support.warm import COMMAND_PATH, command
from validation.report.formats import write_formats
from validation.signing.pack import bundle_run
from validation.signing.sign import Signed, sign_run

FORMATS = ("html", "json", "junit", "prom")  # a PDF takes longer than all the rest
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
NEEDS_SSH = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed here")


def make_key(path: Path, *options: str, passphrase: str = "") -> Path:
    """A key pair for a test."""
    kind = options or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", *kind, "-N", passphrase, "-C", "test", "-f", path], check=True)
    return path


def reported_run(folder: Path, **options: object) -> Path:
    """A judged run with its report, unsigned."""
    run = make_run(folder, **options)  # type: ignore[arg-type]
    write_formats(run, FORMATS)
    return run


def sign(run: Path, key: Path, who: str = "A. Example") -> Signed:
    """Sign at a fixed moment."""
    return sign_run(run, key, who, "Example AG", moment=MOMENT)


def signed_bundle(folder: Path) -> tuple[Path, Path]:
    """A signed run and its bundle."""
    run = reported_run(folder / "run")
    sign(run, make_key(folder / "key"))
    return run, bundle_run(run, folder / "run.zip").path


def allow(file: Path, key: Path, principal: str = "a@example.com", options: str = "") -> Path:
    """Add a key to a file of allowed signers."""
    with file.open("a") as out:
        out.write(f"{principal} {options} {key.with_name(key.name + '.pub').read_text()}".replace("  ", " "))
    return file


def toolkit(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user runs it, without a terminal and with a quick PDF."""
    return command(cwd, arguments, {**os.environ, "PYTHONPATH": COMMAND_PATH, **environment})
