"""inventory.json of a run: what of the inventory a report may hold, by an allow-list.

A variable gets in because its name is known to be harmless, never because nobody knew better: addresses, groups, bill
of materials, fabric ports, versions and states of our roles. Everything else stays out whatever it is, vault or not,
for Ansible has decrypted vault files by then. Of what is left out only the number is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from toolkit.inventory_source import Host
from validation.base.secret_words import secret_text
from validation.model import Bom, LabLink, Node, Platform, Scalar, Topology

SCHEMA: Literal["elastic-ai-inventory/3"] = "elastic-ai-inventory/3"
#: Variables that are taken from the checked model of a host, so that they count as known.
_MODELLED = frozenset(
    {"ansible_host", "ansible_port", "ansible_user", "fabric_ports", "bom", "platform", "stack", "training_slots"}
)
_MODELLED |= {"elastic_ai_virtual", "elastic_ai_emulated", "elastic_ai_hypervisor_host", "elastic_ai_os_stand_in"}
_MODELLED |= {
    "bmc",
    "cables",
    "storage",
    "recovery_allowed",
    "lab_link",
    "acceptance_profile",
    "elastic_ai_emulated_gpus",
    "gpu_mig",
}
#: Variables of our roles that say which release, or whether at all; their values are single words.
NAMES = frozenset(
    {"fabric", "fabric_mtu", "ofed_soft_roce", "roce_enabled", "stack_release"}
    | {"cuda_cudnn_version", "cuda_nccl_version", "cuda_version", "dcgm_driver_version", "dcgm_version"}
    | {"docker_containerd_version", "docker_version", "horovod_version", "nvidia_container_toolkit_version"}
    | {"nvidia_driver_fabric_manager_version", "nvidia_driver_nvlsm_version", "nvidia_driver_version"}
    | {"ofed_version", "repos_doca_version"}
    | {"acceptance_state", "base_state", "cuda_state", "dcgm_state", "docker_state", "fabric_state"}
    | {"gpudirect_state", "horovod_state", "kernel_state", "monitoring_state", "nvidia_container_toolkit_state"}
    | {"nvidia_driver_state", "ofed_state", "packages_state", "remoting_client_state", "remoting_server_state"}
    | {"pool_login_state", "pool_page", "pool_page_state", "repos_state", "roce_state", "slurm_state", "tuning_state"}
)
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:~-]{0,39}")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortRecord(_Model):
    """A fabric port as declared. `address` has its prefix length."""

    interface: str
    address: str
    rate_gbps: float | None
    rdma: bool


class HostRecord(_Model):
    """A host of the inventory. `variables` are declared versions, states and the like; `left_out` counts the others."""

    name: str
    groups: tuple[str, ...]
    address: str
    ssh_port: int
    ssh_user: str
    slots: int
    bom: Bom
    platform: Platform
    stack: dict[str, str]
    virtual: str | None
    emulated: bool
    hypervisor_host: str | None
    os_stand_in: str | None
    ports: tuple[PortRecord, ...]
    variables: dict[str, Scalar]
    left_out: int


class InventoryRecord(_Model):
    """inventory.json; `format` tells its form. `acceptance_profile` is what the inventory declares, name or file."""

    format: Literal["elastic-ai-inventory/3"] = SCHEMA
    site: str
    lab_link: LabLink | None
    acceptance_profile: str | None
    hosts: tuple[HostRecord, ...]


def harmless(name: str, value: object) -> bool:
    """True where a variable may stand in inventory.json."""
    if name not in NAMES:
        return False
    if isinstance(value, (bool, int, float)):
        return True
    return isinstance(value, str) and _VALUE.fullmatch(value) is not None and not secret_text(value)


def record(
    topology: Topology,
    said: Mapping[str, Host],
    groups: Mapping[str, Iterable[str]],
    acceptance_profile: str | None = None,
) -> InventoryRecord:
    """What may be kept of an inventory. `said`: host -> its variables; `groups`: group -> its hosts."""
    members = {group: set(hosts) for group, hosts in groups.items()}
    return InventoryRecord(
        site=topology.site,
        lab_link=topology.lab_link,
        acceptance_profile=acceptance_profile,
        hosts=tuple(_host(node, said[node.name], members) for node in topology.nodes),
    )


def _host(node: Node, said: Host, members: Mapping[str, set[str]]) -> HostRecord:
    found = sorted(said.values.items())
    kept = {name: value for name, value in found if name not in _MODELLED and harmless(name, value)}
    return HostRecord(
        name=node.name,
        groups=tuple(sorted(group for group, hosts in members.items() if node.name in hosts)),
        address=node.ssh.host,
        ssh_port=node.ssh.port,
        ssh_user=node.ssh.user,
        slots=node.slots,
        bom=node.bom,
        platform=node.platform,
        stack=node.stack,
        virtual=node.virtual,
        emulated=node.emulated,
        hypervisor_host=node.hypervisor_host,
        os_stand_in=node.os_stand_in,
        ports=tuple(
            PortRecord(interface=p.interface, address=f"{p.address}/{p.prefix}", rate_gbps=p.rate_gbps, rdma=p.rdma)
            for p in node.ports
        ),
        variables=kept,
        left_out=sum(name not in _MODELLED and name not in kept for name in said.names),
    )
