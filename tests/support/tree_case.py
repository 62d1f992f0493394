"""Constructed servers as the facts of a node, and what is judged of a site of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.driver import whole
from tests.support.site import BOM, criterion, hardware, node, plan_of, real_results, verdict_of, with_facts
from tests.support.trees import Gpu, Nic, Server, Switch, nvlink, write
from validation.model import Judgement, Port
from validation.probes import pcie, processors


def read(server: Server, folder: Path, **tree: Any) -> dict[str, Any]:
    """What the probe says of it, as far as sysfs tells; `tree`: as of trees.write."""
    sysfs = write(server, folder / "sys", **tree)
    pci = pcie.collect(ports_of(server), sysfs)
    managed = bool(server.nvswitches) and not server.switch_trays  # else Fabric Manager is elsewhere, or nowhere
    return {
        "virt": "none", "lab": "", "model": server.model, "gpu_model": server.gpu_model, "gpu_count": server.gpus,
        "pci": pci, "numa_nodes": processors.numa_nodes(sysfs),
        "nvswitches": pcie.nvswitches(sysfs), "fabric_manager_state": "active" if managed else "inactive",
        "fabric_manager": "nvidia-fabricmanager 580.126.20-1" if managed else "",
        **whole("580.126.20"),
        "driver": "nvidia-driver-cuda 580.126.20-1", "driver_loaded": "580.126.20",
        "nvlink": nvlink(server, [card["address"] for card in pci if card["what"] == "gpu"]), "nvlink_unread": "",
    }  # fmt: skip


def ports_of(server: Server) -> list[str]:
    """Interfaces of its fabric ports."""

    def walk(card: Gpu | Nic | Switch) -> list[str]:
        if isinstance(card, Switch):
            return [name for each in card.below for name in walk(each)]
        return [card.interface] if isinstance(card, Nic) else []

    return [name for root in server.roots for name in walk(root.below)]


def judged(id_: str, server: Server, folder: Path, fabric: str = "tcp10", **said: Any) -> Judgement:
    """The criterion's judgement on a site of this one server; `said`: facts in place of its own.

    On another fabric than tcp10 the server's facts are all that was measured.
    """
    ports = tuple(Port(interface=name, address=f"192.0.2.{i}", prefix=24) for i, name in enumerate(ports_of(server), 1))
    bom = BOM.model_copy(update={"gpu_count": server.gpus})
    topology = hardware(["gpu1"]).model_copy(update={"nodes": (node("gpu1", 1, ports=ports, bom=bom, virtual=None),)})
    plan = plan_of(topology, ["preflight"], fabric)
    there = {**read(server, folder), **said}
    if fabric != "tcp10":
        plan = plan.model_copy(update={"measurements": tuple(m for m in plan.measurements if m.kind == "facts")})
    results = [with_facts(r, **there) if r.measurement == "facts.gpu1" else r for r in real_results(plan)]
    (found,) = criterion(verdict_of(topology, plan, results, fabric=fabric), id_).judgements
    assert isinstance(found, Judgement)
    return found
