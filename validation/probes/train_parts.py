"""What a node's training container would train with: one line, MARK and JSON with host, torch, horovod and tensorflow.

Each release as the package says it, "?" where it is there and does not say, "" where it is not. Nothing is imported, so
it takes a fraction of a second.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import socket

MARK = "parts: "
PARTS = ("torch", "horovod", "tensorflow")


def version(name: str) -> str:
    """Release of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "?" if importlib.util.find_spec(name) else ""


def mixed(said: list[dict[str, str]], framework: str = "auto") -> str:
    """What keeps these nodes from training together, in words; "" where nothing does.

    `framework`: what is asked for, horovod or ddp; auto takes Horovod where there is some, so all need the same.
    """
    names = [name for name in PARTS if len({one[name] for one in said}) > 1]
    if framework == "ddp":
        names = [name for name in names if name == "torch"]
    if names:
        told = (f"{one['host']} has {' and '.join(_one(name, one[name]) for name in names)}" for one in said)
        return f"mixed frameworks: {', '.join(told)}; every server needs the same image"
    bare = [one["host"] for one in said if not one["torch"]]
    if bare:
        return f"no torch in the training container of {', '.join(bare)}"
    if framework == "horovod" and not said[0]["horovod"]:
        return f"Horovod is asked for, and the image of {said[0]['host']} has none"
    return ""


def _one(name: str, release: str) -> str:
    return f"{name} {release}" if release else f"no {name}"


if __name__ == "__main__":
    print(MARK + json.dumps({"host": socket.gethostname(), **{name: version(name) for name in PARTS}}), flush=True)
