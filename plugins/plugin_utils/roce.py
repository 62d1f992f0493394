"""What the roles of the fabric derive from readings of a node: the RoCE policy, its verdicts, and RDMA devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ansible.errors import AnsibleFilterError

TUPLE = ("trust", "dscp_prio", "pfc", "ets", "ecn", "cnp_dscp", "cnp_priority", "tos", "traffic_class", "mtu")
ECN_CAPABLE = 2  # ECT(0) in the low two bits of the type-of-service byte, RFC 3168


def ethernet_ports(ports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Interfaces of the fabric ports that are not InfiniBand."""
    return [str(port["interface"]) for port in ports if port.get("link_layer", "ethernet") == "ethernet"]


def roce_policy(options: Mapping[str, Any]) -> dict[str, Any]:
    """The policy file of elastic-ai-roce from the role's options; AnsibleFilterError for one that can't work."""
    number = {key: int(options[key]) for key in ("dscp", "priority", "cnp_dscp", "cnp_priority", "bandwidth_percent")}
    dscp, priority, cnp = number["dscp"], number["priority"], number["cnp_priority"]
    faults = [f"roce_{key} {number[key]} is not 0 to 63" for key in ("dscp", "cnp_dscp") if not 0 <= number[key] <= 63]
    faults += [
        f"roce_{key} {number[key]} is not 1 to 7: priority 0 is everything else's"
        for key in ("priority", "cnp_priority")
        if not 1 <= number[key] <= 7
    ]
    if priority == cnp or dscp == number["cnp_dscp"]:
        faults.append("RoCE traffic and its congestion notifications need a DSCP and a priority each")
    if not 1 <= number["bandwidth_percent"] <= 99:
        faults.append(f"roce_bandwidth_percent {number['bandwidth_percent']} is not 1 to 99")
    if faults:
        raise AnsibleFilterError("RoCE policy: " + "; ".join(faults))
    tos = dscp * 4 + ECN_CAPABLE
    share = number["bandwidth_percent"]
    return {
        "trust": "dscp",
        "dscp_prio": {str(dscp): priority, str(number["cnp_dscp"]): cnp},
        "pfc": [priority],
        "ets": {
            "prio_tc": [prio if prio in (priority, cnp) else 0 for prio in range(8)],
            "tsa": {"0": "ets", str(priority): "ets", str(cnp): "strict"},
            "bandwidth_percent": {"0": 100 - share, str(priority): share},
        },
        "pause": {"rx": False, "tx": False},
        "ecn": True,
        "cnp_dscp": number["cnp_dscp"],
        "cnp_priority": cnp,
        "roce_mode": "RoCE v2",
        "tos": tos,
        "traffic_class": tos,
        "mtu": int(options["mtu"]),
        "sysfs_root": str(options["sysfs_root"]),
        "configfs_root": str(options["configfs_root"]),
    }


def roce_reading(documents: Mapping[str, Any]) -> dict[str, Any]:
    """What `elastic-ai-roce check --json` says, as the role and the validation use it.

    lossless of the node is the worst of its ports': False before None (not known) before True; None without ports.
    """
    applicable = [name for name, port in documents.items() if port["applies"]]
    drift = [(name, item) for name in applicable for item in documents[name]["drift"]]
    verdicts = [port["lossless"] for port in documents.values()]
    reasons = [f"{name}: {port['reason']}" for name, port in documents.items() if port["lossless"] is not True]
    worst = False if False in verdicts else None if None in verdicts or not verdicts else True
    tools = {port["tool"]: port["tool_version"] for port in documents.values()}
    return {
        "applicable": applicable,
        "not_applicable": [
            f"lossless RoCE on {name}: {port['missing'][0]}"
            for name, port in documents.items()
            if port["now"]["pfc"] is None
        ],
        "differences": [f"{name}: {item['what']} is {item['is']}, wanted {item['wanted']}" for name, item in drift],
        "drifted": sorted({name for name, item in drift if item["what"] != "mtu"}),
        "ports": {
            name: {key: port["now"].get(key) for key in TUPLE}
            | {"lossless": port["lossless"], "reason": port["reason"], "missing": port["missing"]}
            | {"rdma_device": port["rdma_device"], "global_pause": port["now"].get("pause")}
            for name, port in documents.items()
        },
        "lossless": worst,
        "reason": "; ".join(reasons) or ("this end only: the switch must agree" if documents else "no port"),
        "versions": tools,
        "stand_ins": [f"{tool} ({text})" for tool, text in tools.items() if "stand-in" in text],
    }


def ports_to_set(
    ports: Sequence[str], reading: Mapping[str, Any], units: Mapping[str, Any], files_changed: bool
) -> list[str]:
    """Ports that drifted, whose unit would not bring them back, or whose policy was changed."""

    def settled(name: str) -> bool:
        unit = units[f"elastic-ai-roce@{name}.service"]
        return bool(unit["active"] and unit["enabled"] and not files_changed and name not in reading["drifted"])

    return [name for name in ports if not settled(name)]


def kept_ports(files: Mapping[str, str]) -> list[str]:
    """Ports whose former settings the node keeps."""
    paths = [PurePosixPath(path) for path in files]
    return sorted(path.stem for path in paths if path.parent.name == "roce" and path.suffix == ".json")
