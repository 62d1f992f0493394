"""What a node's training container would train with: one line, MARK and JSON with host and what is of PARTS.

Each release as the package says it, "?" where it is there and does not say, "" where it is not; `horovod_tensorflow` is
Horovod's where it was built with TensorFlow, too. Nothing is imported, so it takes a fraction of a second.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import socket
from pathlib import Path

MARK = "parts: "
PARTS = ("torch", "horovod", "tensorflow", "horovod_tensorflow")
OF_JOB = {"ddp": ("torch",), "tensorflow": ("tensorflow", "horovod_tensorflow")}
"""What has to be the same on all nodes, where that is not all but Horovod's half for TensorFlow."""
PACKAGES = {"tensorflow": ("tensorflow", "tensorflow-cpu")}


def version(name: str) -> str:
    """Release of an installed package."""
    if name == "horovod_tensorflow":
        return version("horovod") if _with_tensorflow() else ""
    for package in PACKAGES.get(name, (name,)):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "?" if importlib.util.find_spec(name) else ""


def _with_tensorflow() -> bool:
    """Whether Horovod has the library that joins it to TensorFlow."""
    found = importlib.util.find_spec("horovod")
    folders = (found.submodule_search_locations if found else None) or []
    return any(any(Path(folder, "tensorflow").glob("mpi_lib*.so")) for folder in folders)


def mixed(said: list[dict[str, str]], framework: str = "auto") -> str:
    """What keeps these nodes from training together, in words; "" where nothing does.

    `framework`: what is asked for, horovod, ddp or tensorflow; auto takes Horovod where there is some, so all need the
    same.
    """
    concerned = OF_JOB.get(framework, PARTS[:3])
    names = [name for name in concerned if len({one[name] for one in said}) > 1]
    if names:
        told = (f"{one['host']} has {' and '.join(_one(name, one[name]) for name in names)}" for one in said)
        return f"mixed frameworks: {', '.join(told)}; every server needs the same image"
    if framework == "tensorflow":
        return _without_tensorflow(said)
    bare = [one["host"] for one in said if not one["torch"]]
    if bare:
        return f"no torch in the training container of {', '.join(bare)}"
    if framework == "horovod" and not said[0]["horovod"]:
        return f"Horovod is asked for, and the image of {said[0]['host']} has none"
    return ""


def _without_tensorflow(said: list[dict[str, str]]) -> str:
    hosts = ", ".join(one["host"] for one in said)
    what = "a training image with it is made by horovod_with_tensorflow"
    if not said[0]["tensorflow"]:
        return f"no TensorFlow in the training container of {hosts}; {what}"
    if not said[0]["horovod_tensorflow"]:
        return f"Horovod in the training container of {hosts} is not built for TensorFlow; {what}"
    return ""


def _one(name: str, release: str) -> str:
    name = "Horovod for TensorFlow" if name == "horovod_tensorflow" else name
    return f"{name} {release}" if release else f"no {name}"


if __name__ == "__main__":
    print(MARK + json.dumps({"host": socket.gethostname(), **{name: version(name) for name in PARTS}}), flush=True)
