"""What role remoting_server wrote for this GPU server (server.json)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.lease import ENGINE_DIR, SHARDS_PER_GPU, LeaseError
from toolkit.lease.fields import HOST


@dataclass(frozen=True)
class ServerConf:
    """address: where leases listen, or a name of it. ports: first and last of those for leases, two for each.

    grace_s: a `run` lease ends when its client was silent that long; heartbeat_s: how often the client speaks.
    first_s: how long a `run` lease waits for its client to come at all. enforcement: how a part is held
    (engine, mps, mig). transport: what carries the bytes between an engine and its clients (tcp, verbs).
    memory_mib: host memory for each device of a lease, beyond that of emulated devices; 0: what the engine states.
    fence: whether device files of GPUs are closed to users (module fence); device_users may open all of them.
    idle_minutes: how long GPUs of a lease may be unused, by `classes.NAME` of GPUs and `users.NAME`; gpu_class: the
    class of this server's GPUs, "" where their names say it.
    native_jobs: classes of users whose native jobs have GPUs and shards; None: everybody's have whole GPUs.
    servers: where leases listen on each server of the pool, by node; those that are not there meet no other.
    """

    node: str
    address: str
    ports: tuple[int, int] = (21000, 23999)
    engine_dir: Path = ENGINE_DIR
    shards_per_gpu: int = SHARDS_PER_GPU
    enforcement: str = "engine"
    transport: str = "tcp"
    mps_pipe: str = "/run/nvidia-mps"
    grace_s: float = 30.0
    heartbeat_s: float = 5.0
    first_s: float = 60.0
    memory_mib: int = 0
    fence: bool = True
    device_users: tuple[str, ...] = ()
    native_jobs: tuple[str, ...] | None = None
    idle_minutes: Mapping[str, float] = field(default_factory=dict)
    gpu_class: str = ""
    servers: Mapping[str, str] = field(default_factory=dict)

    def idle_limit_s(self, uid: int, account: str, gpus: Iterable[str]) -> float | None:
        """How long these GPUs (their names) may be unused in a lease of this class of users: the shortest time that it
        and their classes have; None where none has any, and for root, who is in no class."""
        classes = {self.gpu_class or class_of(name) for name in gpus}
        named = [f"users.{account}", *(f"classes.{one}" for one in classes)]
        limits = [60.0 * self.idle_minutes[name] for name in named if name in self.idle_minutes]
        return min(limits, default=None) if uid else None


def class_of(model: str) -> str:
    """The class of a GPU by its name, as role slurm makes them (its gpu_class says how)."""
    found = []
    for name in model.split(" / "):
        numbered = re.search(r"\bRTX (PRO )?(\d{4}[A-Z]?)\b", name)
        lettered = re.search(r"\b([A-Z]{1,2}\d{1,4}[A-Z]?)\b", name)
        if numbered:
            ada = "ada" if re.search(r"\bAda\b", name) else ""
            found.append(f"{'pro' if numbered[1] else 'rtx'}{numbered[2].lower()}{ada}")
        elif lettered:
            found.append(lettered[1].lower())
    by_id = re.search(r"\b0x([0-9a-f]{4})\b", model)
    return "-".join(found) or (f"id{by_id[1]}" if by_id else "gpu")


def _native_jobs(value: object) -> tuple[str, ...] | None:
    """`whole` (nothing in the pool's file), `none`, or classes of users."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    if value not in ("whole", "none"):
        raise ValueError(f"native_jobs is {value!r}, and not whole, none or a list of classes of users")
    return None if value == "whole" else ()


def read_server_conf(path: Path) -> ServerConf:
    """The file's content; LeaseError when there is none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise LeaseError(f"{path}: no such file: this server offers no leases (role remoting_server)") from None
    except ValueError as fault:
        raise LeaseError(f"{path}: {fault}; run site.yml again") from None
    return parse_server_conf(text, str(path))


def _number(data: dict[str, Any], key: str, otherwise: float) -> float:
    """A number, also as the text that an older ansible-core makes of it. ValueError for anything else."""
    value = data.pop(key, otherwise)
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not 0 <= number <= 1e9:
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return number


def _text(data: dict[str, Any], key: str, otherwise: str, form: str = r"[^\x00-\x1f\x7f]*") -> str:
    value = data.pop(key, otherwise)
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return value


def _texts(data: dict[str, Any], key: str) -> tuple[str, ...]:
    value = data.pop(key, ())
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return tuple(value)


def _idle_minutes(data: dict[str, Any]) -> dict[str, float]:
    value = data.pop("idle_minutes", {})
    if not isinstance(value, dict):
        raise ValueError(f"idle_minutes is {ascii(value)[:40]}")
    told = dict(value)
    return {name: _number(told, name, 0.0) for name in value}


def _addresses(data: dict[str, Any], key: str) -> dict[str, str]:
    value = data.pop(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    told = dict(value)
    return {name: _text(told, name, "", HOST) for name in value}


def _flag(data: dict[str, Any], key: str, otherwise: bool) -> bool:
    value = data.pop(key, otherwise)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {ascii(value)[:40]}")
    return value


def _ports(data: dict[str, Any]) -> tuple[int, int]:
    first, last = (int(port) for port in data.pop("ports"))
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"ports are {first} to {last}")
    return first, last


def parse_server_conf(text: str, what: str) -> ServerConf:
    """The same, of the file's text; what: for the error. Its defaults are the type's."""
    plain = ServerConf("", "")
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
        shards = data.pop("shards_per_gpu", None)  # None: the inventory says nothing else
        conf = ServerConf(
            node=_text({"node": data.pop("node")}, "node", "", r"[A-Za-z0-9._-]{1,255}"),
            address=_text({"address": data.pop("address")}, "address", "", HOST),
            ports=_ports(data),
            engine_dir=Path(_text({"engine_dir": data.pop("engine_dir")}, "engine_dir", "", r"/[^\x00-\x1f\x7f]*")),
            shards_per_gpu=SHARDS_PER_GPU if shards in (None, "") else int(shards),
            enforcement=_text(data, "enforcement", plain.enforcement, "engine|mps|mig"),
            transport=_text(data, "transport", plain.transport, "tcp|verbs"),
            mps_pipe=_text(data, "mps_pipe", plain.mps_pipe),
            grace_s=_number(data, "grace_s", plain.grace_s),
            heartbeat_s=_number(data, "heartbeat_s", plain.heartbeat_s),
            first_s=_number(data, "first_s", plain.first_s),
            memory_mib=int(_number(data, "memory_mib", plain.memory_mib)),
            fence=_flag(data, "fence", plain.fence),
            device_users=_texts(data, "device_users"),
            native_jobs=_native_jobs(data.pop("native_jobs", "whole")),
            idle_minutes=_idle_minutes(data),
            gpu_class=_text(data, "gpu_class", plain.gpu_class),
            servers=_addresses(data, "servers"),
        )
        if data:
            raise ValueError(f"{ascii(next(iter(data)))[:40]} is unknown")
        return conf
    except KeyError as fault:
        raise LeaseError(f"{what}: {fault} is missing; run site.yml again") from None
    except (TypeError, ValueError, RecursionError) as fault:
        raise LeaseError(f"{what}: {fault}; run site.yml again") from None
