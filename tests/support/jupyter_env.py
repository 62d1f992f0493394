"""A Python with JupyterLab and the tests' torch: made once under build/, from tests/support/jupyter.lock.

torch comes from the environment of torch_env by a path file, and is installed once. `ELASTIC_AI_JUPYTER_PYTHON` names a
Python with both to take instead.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from tests.support.torch_env import BUILD, TorchEnvError, alone, patiently, say
from tests.support.torch_env import python as torch_python

LOCK = Path(__file__).with_name("jupyter.lock")
GIVEN = "ELASTIC_AI_JUPYTER_PYTHON"


@cache
def python() -> Path:
    """The interpreter. TorchEnvError where it cannot be made."""
    given = os.environ.get(GIVEN)
    if given:
        return Path(given)
    torch = torch_python()
    stamp = hashlib.sha256(LOCK.read_bytes() + sys.version.encode() + str(torch).encode()).hexdigest()[:16]
    folder = BUILD / f"jupyter-env-{stamp}"
    with alone("jupyter-env"):
        if not (folder / "whole").exists():
            began = time.monotonic()
            _make(folder, torch)
            (folder / "whole").touch()
            say(f"made {folder.name} in {time.monotonic() - began:.0f} s")
    return folder / "bin/python"


def _make(folder: Path, torch: Path) -> None:
    patiently(
        "making an environment for notebooks", [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)]
    )
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    patiently("installing JupyterLab", [*pip, "install", "--quiet", "--no-deps", "-r", str(LOCK)])
    where = subprocess.run(
        [torch, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True,
        check=True,
    ).stdout.strip()  # fmt: skip
    (next(folder.glob("lib/python*/site-packages")) / "torch-of-tests.pth").write_text(f"{where}\n")


__all__ = ["GIVEN", "LOCK", "TorchEnvError", "python"]
