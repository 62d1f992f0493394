"""Prints as JSON what is in a training image; runs in a container of it. Nothing beyond the standard library."""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 300  # a first import of TensorFlow on a busy node takes a minute
TENSORFLOW = "import horovod.tensorflow as h, tensorflow as t; print(t.__version__ if h.mpi_built() else '')"


def said(*command: str) -> str:
    """What a command prints, "" when it fails or is not there."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def package(name: str) -> str:
    """Version of an installed Debian package."""
    return said("dpkg-query", "-W", "-f", "${Version}", name)


def first(pattern: str, text: str) -> str:
    """First group of the first match, or ""."""
    found = re.search(pattern, text)
    return found.group(1) if found else ""


def torch_versions() -> dict[str, str]:
    """Torch, and the parts of CUDA that it brings or was built with ("" on a CPU build)."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return {"torch": "", "cuda": "", "cudnn": "", "nccl": ""}
    cuda = torch.version.cuda or ""
    nccl = torch.cuda.nccl.version() if cuda and torch.distributed.is_nccl_available() else ""
    if isinstance(nccl, tuple):
        nccl = ".".join(map(str, nccl))
    cudnn = torch.backends.cudnn.version() if cuda else ""
    return {"torch": torch.__version__, "cuda": cuda, "cudnn": str(cudnn or ""), "nccl": str(nccl)}


def horovod_nccl() -> bool:
    """Whether Horovod exchanges between GPUs by NCCL."""
    try:
        return bool(importlib.import_module("horovod.torch").nccl_built())
    except (ImportError, OSError):
        return False


def tensorflow_version() -> str:
    """Release of TensorFlow if Horovod loads with it and MPI.

    In a process of its own: Debian's torch loads another HDF5 than TensorFlow's h5py was built with, which then fails.
    """
    return said(sys.executable, "-c", TENSORFLOW) if importlib.util.find_spec("tensorflow") else ""


def pip_package(name: str) -> str:
    """Version of an installed Python package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def horovod_version() -> str:
    """Release of Horovod if it loads with torch and MPI."""
    try:
        if not importlib.import_module("horovod.torch").mpi_built():
            return ""
        return str(importlib.import_module("horovod").__version__)
    except (ImportError, OSError):
        return ""


release = Path("/etc/os-release").read_text(encoding="utf-8")
print(
    json.dumps(
        {
            **torch_versions(),
            "horovod": horovod_version(),
            "horovod_nccl": horovod_nccl(),
            "tensorflow": tensorflow_version(),
            "torchvision": pip_package("torchvision"),
            "timm": pip_package("timm"),
            "openmpi": first(r"\(Open MPI\)\s+(\S+)", said("mpirun", "--version")),
            "rdma_core": package("rdma-core"),
            "python": platform.python_version(),
            "os": first(r'(?m)^ID="?([^"\n]+)', release) + " " + first(r'(?m)^VERSION_ID="?([^"\n]+)', release),
            # What a wheel was built against, to the last digit, decides whether it fits.
            "abi": [
                package("python3"),
                package("python3-torch"),
                package("libopenmpi3") or package("libopenmpi3t64") or package("libopenmpi40"),
            ],
            "machine": platform.machine(),
        }
    )
)
