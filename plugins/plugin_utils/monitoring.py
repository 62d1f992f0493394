"""Which nodes role monitoring asks for metrics, and where their exporters answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
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


def bmcs_watched(
    names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], account: Mapping[str, Any], ca: str
) -> dict[str, Any]:
    """The hosts' BMCs as the head's program is told of them, and the authorities that signed their certificates.

    `account`: user and password of the read-only account, {} for none. `ca`: where the authorities are on the head.
    The files of authorities are those that hosts declare on the controller, each once.
    """
    bmcs, files = [], dict[str, None]()
    for name in names if account else ():
        declared = hostvars[name].get("bmc") or {}
        if not declared.get("address"):
            continue
        file, mark = (str(declared.get(key) or "") for key in ("ca", "fingerprint"))
        files |= {file: None} if file else {}
        bmcs.append({"node": name, "address": str(declared["address"]), "port": int(declared.get("port") or 443),
                     "user": str(account["user"]), "password": str(account["password"]), "ca": ca if file else "",
                     "fingerprint": mark.replace(":", "").lower()})  # fmt: skip
    texts = [Path(file).expanduser().read_text(encoding="ascii").strip() for file in files]
    return {"bmcs": bmcs, "authorities": "".join(f"{text}\n" for text in texts)}
