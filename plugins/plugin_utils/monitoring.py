"""Which nodes role monitoring asks for metrics, and where their exporters answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

MANAGEMENT = "management"


def nodes_running(
    names: Iterable[str], unit: str, hostvars: Mapping[str, Mapping[str, Any]], recorded: str, job: str
) -> list[str]:
    """Hosts on which a unit was active when role monitoring read them.

    A host that this run does not reach, as with --limit, stays if it is a target of `job` in the configuration that the
    head has, whose text is `recorded` ("" where there is none).
    """
    known = _targets(recorded, job)

    def active(name: str) -> bool:
        read = hostvars[name].get("monitoring_node")
        if read is None:
            return name in known
        return bool(((read.get("units") or {}).get(unit) or {}).get("active"))

    return [name for name in names if active(name)]


def _targets(recorded: str, job: str) -> set[str]:
    """Labels `node` of a job's targets in a configuration of Prometheus."""
    try:
        configured = yaml.safe_load(recorded) or {}
    except yaml.YAMLError:
        return set()  # the role writes it anew
    jobs = [entry for entry in configured.get("scrape_configs") or [] if entry.get("job_name") == job]
    return {str(s["labels"]["node"]) for entry in jobs for s in entry.get("static_configs") or [] if "labels" in s}


def _literal(host: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, None for a name."""
    try:
        return ipaddress.ip_address(str(host))
    except ValueError:
        return None


def _for_url(host: Any) -> str:
    address = _literal(host)
    return f"[{address}]" if address is not None and address.version == 6 else str(host)


def management_address(variables: Mapping[str, Any]) -> list[str]:
    """The address that the inventory reaches a host by; empty where it says a name."""
    address = _literal(variables.get("ansible_host", ""))
    return [str(address)] if address is not None else []


def exporter_listen(listen: str, own: Mapping[str, bool]) -> str:
    """Where node-exporter is to answer, "" for every address.

    `listen` is the role's option. `own`: the management address as node_state found it; behind a translation of
    addresses it is not the node's, and a service cannot listen there.
    """
    if listen != MANAGEMENT:
        return _for_url(listen)
    return next((_for_url(address) for address, mine in own.items() if mine), "")


def exporter_target(name: str, variables: Mapping[str, Any], port: int) -> str:
    """Where Prometheus asks a host: the one address at which the inventory lets it answer, else the management one."""
    address = _literal(variables.get("monitoring_listen", ""))
    if address is not None and not address.is_unspecified:
        return f"{_for_url(address)}:{port}"
    return f"{_for_url(variables.get('ansible_host', name))}:{port}"
