"""What GPUDirect RDMA stands on in the kernel: the peer-memory module, and options that it was built with."""

from __future__ import annotations

import gzip
import platform
from pathlib import Path
from typing import Any

ROOT = Path("/")
PEERMEM = ("nvidia_peermem", "nv_peer_mem")  # of the driver; of MLNX_OFED, before the driver had one
OPTIONS = {"p2pdma": "CONFIG_PCI_P2PDMA", "move_notify": "CONFIG_DMABUF_MOVE_NOTIFY"}


def config(root: Path = ROOT, release: str = "") -> str:
    """The options that the running kernel was built with, "" where it does not tell them."""
    release = release or platform.release()
    for name in ("proc/config.gz", f"boot/config-{release}", f"lib/modules/{release}/config"):
        path = root / name
        try:
            return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        except (OSError, EOFError, UnicodeDecodeError):
            continue
    return ""


def collect(root: Path = ROOT, release: str = "") -> dict[str, Any]:
    """As Gpudirect. An option that is not mentioned is off, as the kernel's own scripts have it."""
    lines = config(root, release).splitlines()
    built = {key: f"{option}=y" in lines if lines else None for key, option in OPTIONS.items()}
    return {"peermem": next((name for name in PEERMEM if (root / "sys/module" / name).is_dir()), ""), **built}
