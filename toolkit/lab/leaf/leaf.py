"""The switch of a lab's fabric: which cable is in which port, where it answers, and what it is answered from.

Traffic goes over a bridge of the kernel. lldpd announces its ports, and an ssh server prints the configuration that a
real switch would have; both are one process of the lab (serve.py), which reads what this module writes.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.lab.leaf.constructed import configuration
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, NodeSpec, read_faults

NAME, SYSTEM, USER, PORT = "leaf1", "sonic", "netops", 22
PASSWORD, KEY, PLACE, CONFIGURATION = "switch-password", "switch.key", "place.json", "running.txt"
CROSSED = "cables-crossed"
"""The fault of two cables that are in each other's port."""
ELSEWHERE = "cable-swapped"
"""The fault of a cable that is in the management switch, which announces nothing."""
LOOK_S = 0.25
"""How often the switch looks for other files."""
SENDS_S = 2
"""How often a port sends itself by LLDP; a node that no longer hears it forgets it after four times as long."""


def folder(spec: LabSpec) -> Path:
    """Where a lab keeps key, password and files of its switch; root's alone."""
    return spec.dir / "switch"


def address(spec: LabSpec) -> str:
    """IPv4 address of the switch, in the management network."""
    return f"10.77.{spec.index}.2"


def wanted_port(node: NodeSpec) -> str:
    """The port that a node's fabric cable belongs in."""
    return f"Eth1/{node.number}"


def ports(spec: LabSpec, faults: Mapping[str, str]) -> dict[str, str]:
    """The end of each node's cable -> the port that it is in, by these faults (node -> kind); "": in another switch."""
    found = {node.name: wanted_port(node) for node in spec.nodes}
    for node in spec.nodes:
        if faults.get(node.name) == CROSSED:
            other = spec.after(node)
            found |= {node.name: wanted_port(other), other.name: wanted_port(node)}
        elif faults.get(node.name) == ELSEWHERE:
            found[node.name] = ""
    return {f"f-{name}": port for name, port in found.items()}


def prepare(spec: LabSpec) -> None:
    """Make host key, password and files of a lab's switch."""
    home = folder(spec)
    home.mkdir(mode=0o700, parents=True)
    (home / PASSWORD).write_text(secrets.token_urlsafe(18))
    (home / PASSWORD).chmod(0o600)
    run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", NAME, "-f", str(home / KEY)])
    write(spec)


def write(spec: LabSpec, well: str = "") -> None:
    """Write where the cables are, and the configuration, with the faults that are noted but that of node `well`; in
    force `LOOK_S` later."""
    faults = {name: kind for name, kind in read_faults(spec).items() if name != well}
    about = {wanted_port(node): f"{node.name} fab0" for node in spec.nodes}
    spoiled = {wanted_port(node): LEAF_FAULTS[faults[node.name]].spoil for node in spec.nodes
               if faults.get(node.name) in LEAF_FAULTS}  # fmt: skip
    place = {"address": address(spec), "cables": ports(spec, faults)}
    for name, content in ((CONFIGURATION, configuration(NAME, about, spoiled)), (PLACE, json.dumps(place))):
        path = folder(spec) / name
        new = path.with_suffix(".new")
        new.write_text(content)
        new.replace(path)


def variables(spec: LabSpec, private: Path) -> dict[str, Any]:
    """What the inventory says of it: the map of cables, and how the switch is reached. private: the folder of an
    inventory that has the password."""
    cables = [
        {"node": node.name, "port": "fab0", "switch": NAME, "switch_port": wanted_port(node)} for node in spec.nodes
    ]
    return {
        "cables": cables,
        "switches": {NAME: {"address": address(spec), "system": SYSTEM, "user": USER, "port": PORT}},
        "switches_password": f"{{{{ lookup('ansible.builtin.file', '{private / PASSWORD}') }}}}",
    }


def known(spec: LabSpec) -> str:
    """The switch's line of known_hosts."""
    kind, key = (folder(spec) / f"{KEY}.pub").read_text().split()[:2]
    return f"{address(spec)} {kind} {key}\n"


def copy_into(spec: LabSpec, private: Path) -> list[Path]:
    """Copy the password into an inventory's folder; the copy."""
    copied = Path(shutil.copy(folder(spec) / PASSWORD, private / PASSWORD))
    copied.chmod(0o600)
    return [copied]
