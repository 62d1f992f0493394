"""A Python that has torch, for tests of the engine `torch`: made once under build/, from tests/support/torch.lock.

The toolkit needs no torch, so its environment has none. `ELASTIC_AI_TORCH_PYTHON` names a Python to take instead.
`python -m tests.support.torch_env` makes it, as `bin/test` does; a test file that is run alone makes it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("torch.lock")
BUILD = ROOT / "build"
GIVEN = "ELASTIC_AI_TORCH_PYTHON"
PROGRESS_S = 15
ASK = "import torch; print(torch.__version__, torch.version.cuda or 'cpu', torch.backends.cuda.is_built())"


class TorchEnvError(Exception):
    """There is no Python with torch here, and none could be made."""


def say(line: str) -> None:
    """A line of progress, at once, where pytest does not keep it back."""
    print(line, file=sys.stderr, flush=True)


def wanted() -> str:
    """The release of torch that the lock names: a range."""
    return next(line for line in LOCK.read_text(encoding="utf-8").splitlines() if line.startswith("torch"))


def _stamp() -> str:
    return hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One process at a time makes what is called so under build/."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f".{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def patiently(what: str, command: list[str], env: dict[str, str] | None = None) -> str:
    """What the command prints; says every 15 seconds that it runs. TorchEnvError with its last lines where it fails."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        while True:
            try:
                out, _ = process.communicate(timeout=PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                say(f"{what}, {time.monotonic() - began:.0f} s")
    if process.returncode:
        raise TorchEnvError(f"{what}: exit {process.returncode}: " + "\n".join(out.splitlines()[-12:]))
    return out


def _make(folder: Path) -> None:
    """The environment in this folder. Not compiled: most of torch's modules are imported by nobody here."""
    patiently(
        "making an environment for torch", [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)]
    )
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    install = [*pip, "install", "--quiet", "--no-compile", "--no-deps", "-r", str(LOCK)]
    patiently(f"installing {wanted()} (about 200 MB)", install)
    patiently("looking whether the lock names all that its packages need", [*pip, "check"])


@cache
def python() -> Path:
    """The interpreter. TorchEnvError with a sentence where there is none."""
    given = os.environ.get(GIVEN)
    found = Path(given) if given else _made()
    done = subprocess.run([found, "-c", ASK], capture_output=True, text=True, check=False, env=plain_environment())
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TorchEnvError(
            f"{found} does not import torch ({last}); the package index that this machine's pip asks must have the "
            f"wheel for processors of {wanted()}, or {GIVEN} must name a Python with it"
        )
    return found


def _made() -> Path:
    folder = BUILD / f"torch-env-{_stamp()}"
    whole = folder / "whole"
    with alone("torch-env"):
        if not whole.exists():
            began = time.monotonic()
            _make(folder)
            whole.touch()
            say(f"made {folder.relative_to(ROOT)} in {time.monotonic() - began:.0f} s")
    return folder / "bin/python"


def plain_environment() -> dict[str, str]:
    """This process's environment without what makes a program a client of a lease or changes what torch computes."""
    dropped = ("ELASTIC_AI_TORCH_", "PYTORCH_", "TORCH_", "OMP_", "MKL_", "CUDA_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped) and key != "PYTHONPATH"}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}


if __name__ == "__main__":
    try:
        where = python()
        print(f"torch for the tests: {where} has " + subprocess.check_output([where, "-c", ASK], text=True).strip())
    except TorchEnvError as fault:
        sys.exit(f"error: {fault}")
