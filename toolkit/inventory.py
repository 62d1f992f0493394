"""Ansible inventory -> Topology, read by Ansible itself (`inventory_source`), so that both see the same variables.

Groups `heads`, `clients` and `gpu_servers` hold the nodes under test; hosts in none of them are left alone. Variables
are checked here, once, and a fault names the file and line where the variable stands, as far as that can be found.
"""

from __future__ import annotations

import getpass
import ipaddress
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from toolkit.cables import site_cables
from toolkit.inventory_address import address_fault, is_ipv6, without_ipv6
from toolkit.inventory_bmc import BmcVariable, plain_password
from toolkit.inventory_files import refuse_unusable
from toolkit.inventory_lines import locate
from toolkit.inventory_record import NAMES, InventoryRecord, record
from toolkit.inventory_source import Host, InventoryError, read_source
from toolkit.inventory_storage import StorageFault, agree, storages
from toolkit.lab_inventory import refuse_absent_lab
from validation.base.secret_words import secret_name, secret_text
from validation.base.unread_variables import of_no_group
from validation.model import Bom, LabLink, Node, Platform, Port, SshTarget, Topology, UnitPart
from validation.model.base import explain
from validation.rules.witness import site_tests

GROUPS = ("heads", "clients", "gpu_servers")
__all__ = ["DeclaredFabric", "InventoryError", "PortMtu", "Site", "declared", "read_inventory", "read_site"]


def _number(value: object) -> object:
    """A number that a template of Ansible before 2.19 has made a text of."""
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _truth(value: object) -> object:
    """As Ansible takes a text for true or false."""
    words = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


_Int = Annotated[int, BeforeValidator(_number)]
_Bool = Annotated[bool, BeforeValidator(_truth)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


#: Ansible's connections to a machine with sshd. `local` is this machine, as one of the nodes: by ssh to itself.
_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", "local")


#: Settings of a login, which Ansible takes for left out where they are null. Roles read `ansible_host` too.
_LOGIN: tuple[str, ...] = ("ansible_port", "ansible_user", "ansible_ssh_private_key_file")
_LOGIN += ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")


class _FabricPort(_Model):
    """A port as role fabric knows it; what only that role needs is checked there."""

    interface: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,15}$")
    address: str
    address6: str | None = None
    gateway: str | None = None
    routes: list[str] = []
    table: _Int | None = Field(default=None, ge=1)
    rate_gbps: float | None = Field(default=None, gt=0, strict=False)
    link_layer: Literal["ethernet", "infiniband"] = "ethernet"
    mtu: _Int | None = Field(default=None, ge=576)
    ipoib_mode: Literal["datagram", "connected"] = "datagram"
    pkey: str | None = None
    parent: str | None = None
    vlan: _Int | None = Field(default=None, ge=1, le=4094)
    bond_members: list[str] | None = None
    bond_mode: Literal["802.3ad", "active-backup"] = "802.3ad"
    rdma: _Bool = True
    leaf: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,62}$")

    @field_validator("address")
    @classmethod
    def _with_prefix(cls, value: str) -> str:
        if "/" not in value:
            raise ValueError(f"{value!r} has no prefix length; write it like 10.0.0.1/24")
        ipaddress.ip_interface(value)
        without_ipv6(value, "give the port an IPv4 address, and this one as its address6")
        return value


class _HostVars(BaseModel):
    """What we read of a host's variables; all others are Ansible's business."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    ansible_host: str | None = Field(default=None, min_length=1)
    ansible_port: int = Field(default=22, ge=1, le=65535, strict=False)
    ansible_user: str | None = None
    ansible_connection: str = "ssh"
    ansible_ssh_private_key_file: str | None = None
    ansible_ssh_common_args: str = ""
    ansible_ssh_extra_args: str = ""
    ansible_ssh_args: str = ""
    fabric_ports: list[_FabricPort] = []
    training_slots: _Int | None = Field(default=None, ge=1)
    bom: dict[str, str | int | float | None] = {}
    platform: Platform = Field(default=Platform(), strict=False)
    bmc: BmcVariable | None = None
    storage: list[dict[str, Any]] | None = []
    recovery_allowed: bool = True
    stack: dict[str, str] = {}
    stack_release: str | None = None
    elastic_ai_virtual: str | None = None
    elastic_ai_emulated: _Bool = False
    elastic_ai_hypervisor_host: str | None = Field(default=None, min_length=1)
    elastic_ai_emulated_gpus: _Int = Field(default=0, ge=0)
    gpu_mig: _Bool = False
    remoting_engine_torch_artifact: str | None = None
    remoting_engine_tensorflow_artifact: str | None = None
    remoting_server_transport: Literal["tcp", "verbs"] = "tcp"
    horovod_state: str = "present"
    elastic_ai_os_stand_in: str | None = Field(default=None, min_length=1)
    lab_link: LabLink | None = Field(default=None, strict=False)
    acceptance_profile: str | None = Field(default=None, min_length=1)
    fabric: str | None = Field(default=None, min_length=1)
    fabric_mtu: int | None = Field(default=None, ge=576, strict=False)
    cables: list[dict[str, Any]] | None = []
    switches: dict[str, Any] | None = {}

    @field_validator("ansible_host")
    @classmethod
    def _by_ipv4(cls, value: str | None) -> str | None:
        without_ipv6(value or "", "give the node's IPv4 address")
        if value and (fault := address_fault(value)):
            raise ValueError(fault)
        return value

    @field_validator("ansible_connection")
    @classmethod
    def _by_ssh(cls, value: str) -> str:
        if value.removeprefix("ansible.builtin.") not in _CONNECTIONS:
            known = ", ".join(_CONNECTIONS)
            raise ValueError(f"is {value}; nodes are logged in to by ssh, so it has to be one of {known}")
        return value


class PortMtu(NamedTuple):
    """An MTU (bytes) that an inventory declares for a fabric port, and by which of its host's variables."""

    host: str
    link_layer: Literal["ethernet", "infiniband"]
    mtu: int
    variable: tuple[int | str, ...]


@dataclass(frozen=True)
class DeclaredFabric:
    """What an inventory says of its fabric: `name` is its variable `fabric`, a packaged name or a file; None: nothing.

    `host` is one of its hosts, by which the line of a variable is found.
    """

    name: str | None
    host: str
    mtus: tuple[PortMtu, ...] = ()


class Site(NamedTuple):
    """An inventory: its nodes, what of it may be kept with a run, and what it says of its fabric; `part` of a unit."""

    topology: Topology
    record: InventoryRecord
    fabric: DeclaredFabric
    part: UnitPart | None = None


def _fault(inventory: Path, host: str | None, path: tuple[int | str, ...], words: str) -> InventoryError:
    where = locate(inventory, host, path)
    variable = ".".join(str(part) for part in path)
    return InventoryError(": ".join(part for part in (where, host, variable, words) if part))


def _host_vars(inventory: Path, host: str, said: Host) -> _HostVars:
    for variable, why in said.unresolved.items():
        if variable not in NAMES or variable in _HostVars.model_fields:
            locked = "vault secrets" in why or "Decryption failed" in why
            cure = "name its file in ANSIBLE_VAULT_PASSWORD_FILE" if locked else "facts of nodes are not known here, so"
            words = f"Ansible cannot resolve it: {why.rstrip('.')}; {cure}{'' if locked else ' write the value'}"
            raise _fault(inventory, host, (variable,), words)
    if said.values.get("ansible_host", "") is None:
        raise _fault(inventory, host, ("ansible_host",), "is null, which roles take for an address; leave it out")
    try:
        # Ansible takes a setting of a login that is null for one that is left out.
        given = {name: value for name, value in said.values.items() if value is not None or name not in _LOGIN}
        return _HostVars.model_validate(given)
    except ValidationError as fault:
        path, words = explain(fault)
        raise _fault(inventory, host, path, words) from None


def _target(inventory: Path, host: str, given: _HostVars) -> SshTarget:
    if not given.ansible_host:  # then its name is its address
        words = f"{host} is an IPv6 address, over which this release sets nothing up" if is_ipv6(host) else ""
        if words := words or address_fault(host):
            raise _fault(inventory, host, (), f"{words}; give the node a name, and its IPv4 address as ansible_host")
    try:
        texts = (given.ansible_ssh_args, given.ansible_ssh_common_args, given.ansible_ssh_extra_args)
        extra = [word for text in texts for word in shlex.split(text)]
    except ValueError as fault:
        raise _fault(inventory, host, ("ansible_ssh_common_args",), f"{fault}; quote its arguments") from None
    key = given.ansible_ssh_private_key_file
    if key is not None:
        key = str(Path(key).expanduser())
        if not Path(key).is_file():
            raise _fault(inventory, host, ("ansible_ssh_private_key_file",), f"{key}: no such file")
    return SshTarget(
        host=given.ansible_host or host,
        port=given.ansible_port,
        user=given.ansible_user or getpass.getuser(),
        key_file=key,
        extra_args=tuple(extra),
    )


def _stack(inventory: Path, host: str, given: _HostVars) -> dict[str, str]:
    """What is agreed on of the stack; the release is the one that site.yml provisions by."""
    release = given.stack_release
    if not given.stack or release is None:
        return given.stack
    if given.stack.get("stack_release", release) != release:
        words = f"is {given.stack['stack_release']}, and stack_release is {release}; leave it out here"
        raise _fault(inventory, host, ("stack", "stack_release"), words)
    return {**given.stack, "stack_release": release}


def _node(inventory: Path, host: str, groups: tuple[str, ...], given: _HostVars) -> Node:
    if given.elastic_ai_emulated and not given.elastic_ai_virtual:
        words = "is true, but elastic_ai_virtual is missing; say there what the machine is, such as qemu"
        raise _fault(inventory, host, ("elastic_ai_emulated",), words)
    if given.elastic_ai_emulated_gpus and not given.elastic_ai_virtual:
        words = "is set, but elastic_ai_virtual is missing; only virtual nodes have emulated GPUs"
        raise _fault(inventory, host, ("elastic_ai_emulated_gpus",), words)
    if given.elastic_ai_os_stand_in and not given.elastic_ai_virtual:
        words = "is set, but elastic_ai_virtual is missing; only virtual nodes can imitate another system"
        raise _fault(inventory, host, ("elastic_ai_os_stand_in",), words)
    ports = []
    for port in given.fabric_ports:
        address = ipaddress.ip_interface(port.address)
        ports.append(
            Port(
                interface=port.interface,
                address=str(address.ip),
                prefix=address.network.prefixlen,
                rate_gbps=port.rate_gbps,
                rdma=port.rdma,
                leaf=port.leaf,
            )
        )
    try:
        bom = Bom.model_validate(given.bom)
    except ValidationError as fault:
        path, words = explain(fault)
        raise _fault(inventory, host, ("bom", *path), words) from None
    try:
        storage = storages(given.storage or [])
    except StorageFault as wrong:
        raise _fault(inventory, host, wrong.place, str(wrong)) from None
    platform = given.platform
    if bom.cpu_sockets is not None:
        if platform.sockets is not None:
            raise _fault(inventory, host, ("platform", "sockets"), "is in bom.cpu_sockets too; keep that one")
        platform = platform.model_copy(update={"sockets": bom.cpu_sockets})
    return Node(
        name=host,
        groups=groups,
        ssh=_target(inventory, host, given),
        ports=tuple(ports),
        slots=given.training_slots or bom.gpu_count or 1,
        bom=bom,
        platform=platform,
        stack=_stack(inventory, host, given),
        virtual=given.elastic_ai_virtual,
        emulated=given.elastic_ai_emulated,
        hypervisor_host=given.elastic_ai_hypervisor_host,
        emulated_gpus=given.elastic_ai_emulated_gpus,
        mig=given.gpu_mig,
        torch_engine=bool(given.remoting_engine_torch_artifact),
        tensorflow_engine=bool(given.remoting_engine_tensorflow_artifact),
        remoting_transport=given.remoting_server_transport,
        trains=given.horovod_state != "absent",
        os_stand_in=given.elastic_ai_os_stand_in,
        bmc=given.bmc.bmc() if given.bmc is not None else None,
        storage=storage,
        recovery_allowed=given.recovery_allowed,
    )


def _mtus(host: str, given: _HostVars) -> Iterator[PortMtu]:
    for position, port in enumerate(given.fabric_ports):
        if port.mtu is not None:
            yield PortMtu(host, port.link_layer, port.mtu, ("fabric_ports", position, "mtu"))
        elif given.fabric_mtu is not None:
            yield PortMtu(host, port.link_layer, given.fabric_mtu, ("fabric_mtu",))


def _same(inventory: Path, variable: str, values: list[str | None]) -> str | None:
    """What a variable is on every host; InventoryError where it differs."""
    if len(set(values)) > 1:
        words = "differs between hosts; a site is accepted as a whole, so set it in group_vars/all"
        raise _fault(inventory, None, (variable,), words)
    return values[0]


def _refuse_duplicates(inventory: Path, nodes: list[Node]) -> None:
    seen: dict[str, str] = {}
    known: dict[str, str] = {}
    for node in nodes:
        target = f"{node.ssh.host.lower()} port {node.ssh.port}"
        if (twin := known.setdefault(node.name.lower(), node.name)) != node.name:
            words = f"differs from {twin} by capital letters alone, and is one name for the network; give it another"
            raise _fault(inventory, node.name, (), words)
        if target in seen:
            raise _fault(
                inventory, node.name, ("ansible_host",), f"{target} is also used by {seen[target]}; each needs its own"
            )
        seen[target] = node.name
    taken: dict[str, str] = {}
    for node in nodes:
        names = [port.interface for port in node.ports]
        for position, port in enumerate(node.ports):
            place = ("fabric_ports", position, "address")
            if port.address in taken:
                words = f"{port.address} is also used by {taken[port.address]}; each port needs its own"
                raise _fault(inventory, node.name, place, words)
            taken[port.address] = f"{node.name}/{port.interface}"
            if names.count(port.interface) > 1:
                raise _fault(inventory, node.name, place[:2], f"duplicate interface: {port.interface}")


def _refuse_secrets(inventory: Path, host: str, given: _HostVars) -> None:
    """These variables are copied into topology.json and the report, so they must not contain a password."""
    if given.bmc is not None and given.bmc.password is not None:
        place = ("bmc", "password")
        if plain_password(locate(inventory, host, place)):
            words = "is written here in plain text; put it into a vault, or into ELASTIC_AI_BMC_PASSWORD"
            raise _fault(inventory, host, place, words)
    texts: dict[tuple[str, ...], str] = {
        ("ansible_ssh_common_args",): given.ansible_ssh_common_args,
        ("ansible_ssh_extra_args",): given.ansible_ssh_extra_args,
        ("ansible_ssh_args",): given.ansible_ssh_args,
        ("elastic_ai_virtual",): given.elastic_ai_virtual or "",
        ("elastic_ai_hypervisor_host",): given.elastic_ai_hypervisor_host or "",
        ("elastic_ai_os_stand_in",): given.elastic_ai_os_stand_in or "",
        **{("bom", name): str(value) for name, value in given.bom.items()},
        **{("stack", name): value for name, value in given.stack.items()},
    }
    for path, text in texts.items():
        if secret_text(text) or (path[0] == "stack" and secret_name(path[1])):
            words = "looks like a password or token, and would reach the report; use a key or ssh-agent, not a password"
            raise _fault(inventory, host, path, words)


def read_inventory(inventory: Path) -> Topology:
    """The topology that an inventory (folder or file) describes; InventoryError with one clear line."""
    return read_site(inventory).topology


def declared(inventory: Path, host: str, variable: str) -> object:
    """A host's variable as Ansible resolves it; None where it has none, or one that cannot be resolved here."""
    said = read_source(inventory, [variable]).hosts.get(host)
    return said.values.get(variable) if said is not None else None


def read_site(inventory: Path) -> Site:
    """As `read_inventory`, what of the inventory may be kept with a run (nothing secret), and its fabric.

    LabError where the inventory lists a lab that is not up.
    """
    refuse_unusable(inventory)
    refuse_absent_lab(inventory)
    source = read_source(inventory, {*_HostVars.model_fields, *NAMES})
    members = {group: source.members(group) for group in GROUPS}
    if misnamed := of_no_group(inventory, source.groups, (*GROUPS, "all")):
        raise InventoryError(misnamed)
    if not members["gpu_servers"]:
        where = locate(inventory, None, ()) or str(inventory)
        raise InventoryError(f"{where}: no host in group gpu_servers; add the machines to be accepted")
    nodes, links, every = [], [], []
    mtus: list[PortMtu] = []
    for host in dict.fromkeys(name for group in GROUPS for name in members[group]):
        given = _host_vars(inventory, host, source.hosts[host])
        _refuse_secrets(inventory, host, given)
        nodes.append(_node(inventory, host, tuple(g for g in GROUPS if host in members[g]), given))
        every.append(given)
        mtus += _mtus(host, given)
        if given.lab_link is not None and given.lab_link not in links:
            links.append(given.lab_link)
    if len(links) > 1:
        raise InventoryError(f"{inventory}: lab_link differs between hosts; the whole lab has one")
    profile = _same(inventory, "acceptance_profile", [given.acceptance_profile for given in every])
    fabric = _same(inventory, "fabric", [given.fabric for given in every])
    _refuse_duplicates(inventory, nodes)
    if odd := agree({node.name: node.storage for node in nodes}):
        raise _fault(inventory, *odd)
    folder = inventory if inventory.is_dir() else inventory.parent
    topology = Topology(
        site=folder.resolve().name,
        nodes=tuple(nodes),
        lab_link=links[0] if links else None,
        cables=site_cables(inventory, nodes[0].name, [given.cables for given in every]),
        switches=tuple(dict.fromkeys(name for given in every for name in given.switches or {})),
        witness=site_tests(folder, [node.name for node in nodes]),
    )
    groups = {group: source.members(group) for group in source.groups if group not in ("all", "ungrouped")}
    kept = record(topology, source.hosts, groups, profile)
    return Site(topology, kept, DeclaredFabric(fabric, nodes[0].name, tuple(mtus)))
