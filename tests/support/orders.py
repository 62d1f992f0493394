"""Two orders as they would arrive, as inventories of recorded machines: eight servers with H200 and four with L40S."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.node_modules import load

make: Any = load("tests/data/facts/make.py")
Json = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """What was ordered: GPU servers, and what they run. `identity`: another system of the same family and version, as
    Ansible calls it."""

    system: str
    hardware: str
    servers: int
    ports: tuple[str, ...]
    gpus: int
    variables: tuple[tuple[str, Any], ...] = ()
    identity: str = ""


#: What the second order's inventory says is what `toolkit inventory init` writes for a head with EL.
ORDERS = {
    "xe9680": Order("ubuntu2404", "xe9680-h200", 8, tuple(make.RAILS), 8),
    "r760xa": Order(
        "el9", "r760xa-l40s", 4, ("ens1np0",), 4, (("horovod_state", "absent"), ("ofed_provider", "inbox"))
    ),
}
HEAD_PORT = "ens1np0"


def inventory(order: Order, folder: Path, variables: Json, servers: int = 0, **changed: Any) -> Path:
    """Its inventory: one head without GPUs, and all or the first GPU servers.

    changed: `states`, NODE -> what node_state reads there in another way; `answers`, MODULE -> what it answers on every
    node; other keys are variables, None for none.
    """
    folder.mkdir(parents=True)
    states: dict[str, Json] = changed.pop("states", {})
    answers: Json = changed.pop("answers", {})
    names = {"head": ("r760", (HEAD_PORT,), 10)}
    count = servers or order.servers
    names |= {f"gpu{n}": (order.hardware, order.ports, 30 + n) for n in range(1, count + 1)}
    hosts: dict[str, Json] = {}
    for name, (hardware, ports, number) in names.items():
        address = f"192.0.2.{number}"
        made: Json = make.recording(order.system, hardware, name, {"eno1": [address], **{p: [] for p in ports}})
        made["modules"] |= answers
        made["modules"]["node_state"] |= states.get(name, {})
        if order.identity:
            made["ansible_facts"]["ansible_distribution"] = order.identity
            made["modules"]["node_preflight"]["os"]["id"] = order.identity.lower()
        made["modules"]["node_state"]["modules"]["mlx5_core"] = {"available": True, "loaded": True, "version": ""}
        (folder / f"{name}.json").write_text(
            json.dumps(made | {"commands": {**make.commands(*ports), "systemctl *": {"stdout": ""}}}), encoding="utf-8"
        )
        rails = [
            {"interface": p, "address": f"10.{80 + rail}.0.{number}/24", "rate_gbps": 400}
            for rail, p in enumerate(ports)
        ]
        bom = {"gpu_count": order.gpus if name != "head" else 0}
        hosts[name] = {"ansible_host": address, "fabric_ports": rails, "bom": bom}
    common = {
        "ansible_connection": "canned",
        "ansible_user": "root",
        "canned_log": str(folder / "log"),
        "canned_recording": f"{folder}/{{{{ inventory_hostname }}}}.json",
        "stack_release": "current",
        "roce_enabled": True,
        **variables,
        **dict(order.variables),
        **changed,
    }
    common = {key: value for key, value in common.items() if value is not None}
    groups = {
        "heads": {"hosts": {"head": hosts.pop("head")}},
        "gpu_servers": {"hosts": hosts},
    }
    path = folder / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"vars": common, "children": groups}}), encoding="utf-8")
    return path
