"""The files of an inventory, in the form of inventories/xe9680. What nobody could be sure of is marked CHECK."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from toolkit.errors import UsageFault
from toolkit.scan.propose import NodeProposal, PortLine, Proposal, Scalar
from toolkit.scan.ranges import rules
from toolkit.scan.wanted import GROUPS

MARK = "CHECK:"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ._()/-]*")
_WIDTH = 110
_MAKES_IMAGES = ("debian ", "ubuntu ")
_OF_EL = ("rhel ", "rocky ", "almalinux ")
_ABOUT = {
    "heads": "Scheduler, monitoring, and where training is launched from. The first one has these duties.",
    "clients": "Machines without a GPU that use the GPUs of others.",
    "gpu_servers": "Machines with GPUs.",
}


def scalar(value: Scalar) -> str:
    """A value as YAML has it, quoted where it would be something else otherwise."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and not value.endswith(" ") and yaml.safe_load(value) == value
        return value if plain else json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def comment(text: str, indent: int) -> list[str]:
    """Lines of a comment; what is in it cannot leave it."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return textwrap.wrap(
        clean,
        _WIDTH,
        initial_indent=" " * indent + "# ",
        subsequent_indent=" " * indent + "#   ",
        break_long_words=False,
    )


def _checks(checks: Iterable[str], indent: int) -> list[str]:
    return [line for check in checks for line in comment(f"{MARK} {check}", indent)]


def port_line(port: PortLine) -> str:
    """`{interface: ens31np0, address: 10.80.0.31/24, rate_gbps: 400}`."""
    parts = {"interface": scalar(port.interface), "address": port.address}
    if port.rate_gbps is not None:
        parts["rate_gbps"] = f"{port.rate_gbps:g}"
    if port.link_layer != "ethernet":
        parts["link_layer"] = port.link_layer
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}"


def node_lines(node: NodeProposal, common: Mapping[str, Scalar], indent: int, shared: Container[str] = ()) -> list[str]:
    """A host of hosts.yml. `common`: the bill of materials of its group; `shared`: checks that stand elsewhere."""
    space, login = " " * indent, node.read.login
    lines = [f"{space}{scalar(node.name)}:"]
    lines += _about(node, indent + 2)
    lines += _checks((check for check in node.checks if check not in shared), indent + 2)
    lines.append(f"{space}  ansible_host: {scalar(login.address)}")
    if login.port != 22:
        lines.append(f"{space}  ansible_port: {login.port}")
    if node.read.wanted.user is not None:
        lines.append(f"{space}  ansible_user: {scalar(login.user)}")
    if node.ports:
        lines.append(f"{space}  fabric_ports:")
        lines += [f"{space}    - {port_line(port)}" for port in node.ports]
    lines += _not_listed(node, indent + 2)
    if node.bom.get("model") != common.get("model"):
        lines.append(f"{space}  bom:")
        lines += [f"{space}    {key}: {scalar(value)}" for key, value in node.bom.items()]
    return lines


def _about(node: NodeProposal, indent: int) -> list[str]:
    """What a machine is, and who manages its fabric ports."""
    answer = node.answer
    by = ", ".join(dict.fromkeys(m for port in node.choice.ports for m in port.managers)) or "nobody"
    where = ", ".join(answer.network) or "none that is known"
    machine = f"{answer.model}, {answer.os}, kernel {answer.kernel}; network services: {where}"
    return comment(f"{machine}; fabric ports managed by {by}", indent)


def _not_listed(node: NodeProposal, indent: int) -> list[str]:
    told = [f"{port.interface} ({reason})" for port, reason in node.choice.others]
    return comment(f"not listed: {', '.join(told)}", indent) if told else []


def _shared(members: Sequence[NodeProposal]) -> list[str]:
    """Checks that every node of a group has: they stand once, with what the group has in common."""
    if len(members) < 2:
        return []
    return [check for check in members[0].checks if all(check in node.checks for node in members[1:])]


def hosts(proposal: Proposal, name: str) -> str:
    """hosts.yml."""
    lines = [
        "# Read from the nodes by `toolkit inventory init`. Yours from now on: nothing overwrites it, and",
        f"# `toolkit inventory scan inventories/{name}` shows where the nodes differ from it.",
        f"# What the nodes do not tell is marked {MARK[:-1]}; take the mark away when you have looked.",
    ]
    for one in proposal.problems:
        lines += comment(f"{MARK} not in here: {one.who}: {one.why}", 0)
    lines += ["---", *_checks(proposal.checks, 0), "all:", "  children:"]
    for group in GROUPS:
        members = proposal.members(group)
        lines += comment(_ABOUT[group], 4)
        also = proposal.also_head if group == "heads" else None
        if not members and not also:
            lines.append(f"    {group}: {{}}")
            continue
        lines += [f"    {group}:", "      hosts:"]
        if also:
            lines.append(f"        {scalar(also)}:")
        regular = rules(members)
        if regular is not None:
            lines += [*_about(members[0], 8), *_not_listed(members[0], 8), f"        {regular.names}:"]
            continue
        for node in members:
            lines += node_lines(node, proposal.bom.get(group, {}), 8, _shared(members))
    return "\n".join(lines) + "\n"


def _rails(proposal: Proposal) -> str | None:
    """rails.yml: what is regular of the groups; None where nothing is."""
    lines = [
        "# Addresses and fabric ports of whole groups (docs/how-to/inventory.md): {rail} counts ports from 0, {host}",
        "# is the last number of ansible_host.",
        "---",
        "plugin: elastic_ai.toolkit.rails",
        "groups:",
    ]
    found = {group: rules(proposal.members(group)) for group in GROUPS}
    for group, regular in found.items():
        if regular is None:
            continue
        lines += [f"  {group}:", f"    ansible_host: {regular.ansible_host}"]
        if regular.ports is not None:
            lines += ["    fabric_ports:", f"      interface: {regular.ports.interface}"]
            lines.append(f"      address: {regular.ports.address}")
            if regular.ports.rate_gbps is not None:
                lines.append(f"      rate_gbps: {regular.ports.rate_gbps:g}")
            if regular.ports.link_layer != "ethernet":
                lines.append(f"      link_layer: {regular.ports.link_layer}")
    return "\n".join(lines) + "\n" if any(found.values()) else None


def _site(proposal: Proposal, user: str) -> str:
    lines = ["---", "# How to log in: root, or a user with sudo.", f"ansible_user: {scalar(user)}"]
    if any(node.answer.root == "with password" for node in proposal.nodes):
        lines += [
            "# sudo asks for a password, which belongs into a vault (docs/how-to/vault.md):",
            '# ansible_become_password: "{{ vault_become_password }}"',
        ]
    lines += [
        "# Time servers of the site. Without them the head serves the time to all.",
        "# base_chrony_servers: [ADDRESS]",
    ]
    lines += ["# For a site without internet: a mirror of the vendors' repositories.", "# repos_mirror: http://MIRROR"]
    lines += [*comment(f"{MARK} what is owed for this delivery: `toolkit profiles`", 0), "acceptance_profile: elastic"]
    return "\n".join(lines) + "\n"


def _fabric(proposal: Proposal) -> str:
    lines = ["---", "# The fabric that these nodes are judged by (toolkit fabrics)."]
    if proposal.fabric is not None:
        lines.append(f"fabric: {proposal.fabric}")
    else:
        fits = f"one of {', '.join(proposal.fabrics)}" if proposal.fabrics else "no profile has these rates"
        lines += [*comment(f"{MARK} {fits}", 0), "# fabric: NAME"]
    lines += ["# Of the ports, in bytes. Switches need more: 9216.", *comment(f"{MARK} do the switches pass it?", 0)]
    lines += ["fabric_mtu: 9000"]
    if any(p.link_layer == "ethernet" for node in proposal.nodes for p in node.ports):
        lines += [
            "# Lossless RoCE on every fabric port, once the switches have the same policy.",
            "# roce_enabled: true",
        ]
    return "\n".join(lines) + "\n"


def _stack(proposal: Proposal) -> str:
    systems = [system for system, _ in Counter(node.answer.os for node in proposal.nodes).most_common()]
    lines = ["---", "# Which versions of everything belong together (stacks/).", "stack_release: current", ""]
    lines += ["# What validation expects to find on every node, beside that release."]
    if len(systems) > 1:
        lines += comment(f"{MARK} the nodes run different systems: {', '.join(systems)}", 0)
    if systems:
        lines += ["stack:", f"  os: {scalar(systems[0])}"]
    lines += _left_out(proposal)
    return "\n".join(lines) + "\n"


def _left_out(proposal: Proposal) -> list[str]:
    """Answers to what preflight refuses on these systems otherwise: those that need nothing of the site."""
    heads = proposal.members("heads") or [node for node in proposal.nodes if node.name == proposal.also_head]
    lines = []
    if any(not node.answer.os.startswith(_MAKES_IMAGES) for node in heads[:1]):
        lines += [
            "",
            "# The image that training runs in is made on a head with Debian or Ubuntu, so training is left out.",
        ]
        lines += ["# With an image in a registry of yours (docs/how-to/training-image.md) replace the line by"]
        lines += ["# horovod_image: REGISTRY/NAME@sha256:DIGEST", "horovod_state: absent"]
    if any(node.answer.os.startswith(_OF_EL) for node in proposal.nodes):
        lines += [
            "",
            "# RDMA by EL's own drivers. DOCA-OFED needs the fingerprint of the key that signs its repository:",
        ]
        lines += ["# repos_fingerprints: {doca: FINGERPRINT}", "ofed_provider: inbox"]
    return lines


def _machine(proposal: Proposal, group: str) -> str:
    bom = proposal.bom[group]
    lines = ["---", "# The bill of materials. Found, not ordered: compare it with the order."]
    lines += _checks(_shared(proposal.members(group)), 0)
    lines += ["bom:", *(f"  {key}: {scalar(value)}" for key, value in bom.items())]
    lines += comment(f"{MARK} of bounds of memory bandwidth, as `dmidecode --type memory` prints it for root:", 0)
    lines += ["# platform: {memory_channels: CHANNELS_OF_A_SOCKET, memory_mts: MT_PER_S}"]
    if group == "gpu_servers" and bom.get("gpu_count"):
        lines += [
            "# Ranks that a training job starts on each of these nodes: its GPUs.",
            f"training_slots: {bom['gpu_count']}",
        ]
    return "\n".join(lines) + "\n"


def files(proposal: Proposal, name: str, user: str) -> dict[str, str]:
    """Path below the inventory's folder -> text."""
    found = {
        "hosts.yml": hosts(proposal, name),
        "group_vars/all/site.yml": _site(proposal, user),
        "group_vars/all/fabric.yml": _fabric(proposal),
        "group_vars/all/stack.yml": _stack(proposal),
    }
    rails = _rails(proposal)
    found |= {"rails.yml": rails} if rails is not None else {}
    return found | {f"group_vars/{group}/machine.yml": _machine(proposal, group) for group in proposal.bom}


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write an inventory; UsageFault, and nothing written, where one of its files is there already."""
    there = [path for path in texts if (folder / path).exists()]
    if there:
        raise UsageFault(f"{folder / there[0]}: is there already, and is not overwritten; see toolkit inventory scan")
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8") as handle:
                handle.write(text)
    except OSError as fault:
        raise UsageFault(f"{fault.filename or folder}: {fault.strerror}; the inventory is not whole") from None
