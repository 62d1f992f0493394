"""pool.json: the pool's GPU servers, as the last run of site.yml found them and told this machine (role
remoting_client). The one place that reads it.

Of servers that a run did not reach it keeps what an earlier one found, which may say less: what is missing is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.lease import LeaseError
from toolkit.lease.before.offers import Offers, parse_offers
from toolkit.lease.fields import DamagedDocument


@dataclass(frozen=True)
class ServerGpu:
    """A GPU of a server. memory_mib: 0 where it is not known; reserved_mib: what the driver keeps of it; context_bytes:
    what a program's context takes, 0 where it could not be measured."""

    index: int
    name: str = "?"
    memory_mib: int = 0
    emulated: bool = False
    reserved_mib: int = 0
    context_bytes: int = 0


@dataclass(frozen=True)
class PoolServer:
    """A server. address: where leases listen, "" where it offers none. memory_mib: host memory for each device of a
    lease, 0: what the engine states. enforcement: how a part is held (engine, mps, mig), "" where it is not known.
    engines: those that it has, none where it is not known. offers: what it has for programs that run on it, None where
    it was not surveyed."""

    address: str = ""
    memory_mib: int = 0
    enforcement: str = ""
    gpus: tuple[ServerGpu, ...] = ()
    engines: tuple[str, ...] = ()
    offers: Offers | None = None


@dataclass(frozen=True)
class PoolDescription:
    """native_jobs: whose programs may run on the servers themselves, as far as this machine was told: everybody's on
    whole GPUs, nobody's, or those of some classes of users. default_image: of programs that a server cannot run without
    one, "" for none. joined: the partition of leases in a cluster of the site's own, which has nodes and
    partitions that are not the pool's; "" in a pool with a Slurm of its own."""

    servers: Mapping[str, PoolServer] = field(default_factory=dict)
    native_jobs: Literal["whole", "none", "classes"] = "whole"
    default_image: str = ""
    joined: str = ""

    def server(self, name: str) -> PoolServer:
        """One of them; of one that this machine was not told of nothing is known."""
        return self.servers.get(name, PoolServer())


def read_pool(path: Path) -> PoolDescription:
    """The file; an empty pool where this machine was not told. LeaseError where it is damaged."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return PoolDescription()
    except (OSError, ValueError) as fault:
        raise LeaseError(f"{path}: {fault}; run site.yml again") from None
    return parse_pool(text, str(path))


def parse_pool(text: str, what: str) -> PoolDescription:
    """The same, of the file's text; what: for the error."""
    try:
        data = _object(json.loads(text))
        servers = {name: _server(_object(one)) for name, one in _object(data.get("servers", {})).items()}
        texts = {key: _text(data, key) for key in ("default_image", "joined")}
        return PoolDescription(servers, _native_jobs(data.get("native_jobs")), **texts)
    except (DamagedDocument, ValueError, TypeError, KeyError, RecursionError) as fault:
        raise LeaseError(f"{what}: {fault}; run site.yml again") from None


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{ascii(value)[:40]} is no object")
    return value


def _count(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, str)) or int(value) < 0:
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return int(value)


def _text(data: Mapping[str, Any], key: str, otherwise: str = "") -> str:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return value or otherwise


def _names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = data.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return tuple(value)


def _gpu(data: Mapping[str, Any]) -> ServerGpu:
    return ServerGpu(
        index=_count({"index": data["index"]}, "index"),
        name=_text(data, "name", "?"),
        memory_mib=_count(data, "memory_mib"),
        emulated=data.get("emulated") is True,
        reserved_mib=_count(data, "reserved_mib"),
        context_bytes=_count(data, "context_bytes"),
    )


def _server(data: Mapping[str, Any]) -> PoolServer:
    gpus = data.get("gpus", [])
    if not isinstance(gpus, list):
        raise ValueError(f"gpus is {ascii(gpus)[:40]}")
    return PoolServer(
        address=_text(data, "address"),
        memory_mib=_count(data, "memory_mib"),
        enforcement=_text(data, "enforcement"),
        engines=_names(data, "engines"),
        offers=parse_offers(data.get("offers")),
        gpus=tuple(_gpu(_object(gpu)) for gpu in gpus),
    )


def _native_jobs(value: object) -> Literal["whole", "none", "classes"]:
    if isinstance(value, list):
        return "classes"
    return "none" if value == "none" else "whole"
