"""Labs as `toolkit lab up` leaves them on the disk, without a node: what Ansible and the toolkit read of one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from toolkit.lab.debrepo import Served
from toolkit.lab.inventory import write_inventory
from toolkit.lab.spec import inventory_dir, make_spec

LEGS = Path(__file__).parent / "legs"


def make_lab(name: str, index: int, count: int = 4, vms: bool = False) -> str:
    """The folder of a lab below ELASTIC_AI_LAB_DIR, with its inventory; the name of the machine's leg in it."""
    spec = make_spec(name, index, count, 1.0, vms=vms)
    spec.dir.mkdir(parents=True)
    (spec.dir / "spec.json").write_text(json.dumps(asdict(spec)))
    (spec.dir / "id_ed25519").write_text("a key\n")
    for node in spec.nodes:
        folder = spec.node_dir(node) / ("" if node.kind == "vm" else "root/etc/ssh")
        folder.mkdir(parents=True)
        (folder / "ssh_host_ed25519_key.pub").write_text(f"ssh-ed25519 KEY {node.name}\n")
    keys = spec.dir / "vendor.asc"
    keys.write_text("a key\n")
    write_inventory(spec, inventory_dir(name), Served(spec.vendor, ("cuda",), keys, "AB12"))
    return spec.host_interface


def environment(state: Path, *legs: str) -> dict[str, str]:
    """The environment in which labs are in `state`, and the machine has these interfaces."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "ELASTIC_AI_"))}
    return {**kept, "ELASTIC_AI_LAB_DIR": str(state), "PYTHONPATH": str(LEGS), "LEGS": ",".join(legs), "NO_COLOR": "1"}
