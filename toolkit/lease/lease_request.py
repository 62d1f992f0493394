"""What is asked of the pool: what a user wishes, and the request that it is against the pool as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from toolkit.lease import LeaseError
from toolkit.lease.display import several
from toolkit.lease.fraction import GpuPart, parse_part, share_text

Mode = Literal["run", "hold"]
Where = Literal["client", "server"]


def omit(chosen: str, why: str, given: Mapping[str, object]) -> None:
    """LeaseError where options are there that have no meaning beside `chosen`; `given` is the value of each option, and
    none, "", False and one GPU are what nobody asked for."""
    words = [option for option, value in given.items() if value and (option, value) != ("-n", 1)]
    if words:
        raise LeaseError(f"{chosen} {why}; omit {', '.join(words)}")


@dataclass(frozen=True)
class LeaseWish:
    """As a user says it: so many GPUs, or a part of each, or as large a part as holds memory_mib. servers: names with
    commas between them, None for any. seconds: None for what the pool allows. engine: by which its programs find the
    GPUs, "" for the site's first. up_to: with which part of each GPU it may compute while nobody else has it."""

    count: int = 1
    part: str | None = None
    memory_mib: int | None = None
    apart: bool = False
    servers: str | None = None
    gpu_class: str = ""
    seconds: int | None = None
    engine: str = ""
    up_to: str | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> LeaseWish:
        """Those of a command's options that are a wish; the others stay there."""
        return cls(**{one.name: options.pop(one.name) for one in fields(cls)})

    @property
    def whole(self) -> bool:
        """Whether it is for whole GPUs."""
        return self.memory_mib is None and (self.part is None or parse_part(self.part).whole)

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' names, none for any."""
        return tuple(name.strip() for name in (self.servers or "").split(",") if name.strip())

    def check(self) -> None:
        """LeaseError for what no pool can meet, before any is asked."""
        if self.part is not None and self.memory_mib is not None:
            raise LeaseError("-p and -m both set the size of a part; give one of them")
        if self.part is not None:
            parse_part(self.part)
        if self.up_to is not None and self.whole:
            raise LeaseError("--up-to goes with a part (-p or -m): a whole GPU is nobody else's")
        if self.up_to is not None:
            parse_part(self.up_to)
        if not re.fullmatch(r"[\w.-]*", self.gpu_class):
            raise LeaseError(f"--class {self.gpu_class!r}: not the name of a class; toolkit gpus lists them")
        if not re.fullmatch(r"([a-z][a-z0-9-]{0,30})?", self.engine):
            raise LeaseError(f"--engine {self.engine!r}: not the name of an engine")
        if self.servers is not None and not self.names:
            raise LeaseError("-l names no server; omit it for any")


@dataclass(frozen=True)
class LeaseRequest:
    """What the pool is asked for: `count` devices, each `part` of a GPU, for so many seconds (None: what it allows).

    host_mib: host memory on the server for each device. apart: each part or GPU on a server of its own. where: whether
    the program runs here, by an engine, or on the server itself, in one job on `servers_there` servers with `cpus` on
    each. unequal: their numbers of GPUs are as Slurm finds them free; `cpus_per_gpu` then goes before `cpus`, where it
    is not 0. engine: which of the site's is told its servers, "" for the first. up_to: shards of each GPU with which it
    may compute while nobody else has them, 0 for no more than the part.
    """

    count: int
    part: GpuPart
    servers: tuple[str, ...] = ()
    gpu_class: str = ""
    seconds: int | None = None
    mode: Mode = "run"
    memory_mib: int = 0
    host_mib: int = 0
    apart: bool = False
    where: Where = "client"
    cpus: int = 1
    servers_there: int = 1
    unequal: bool = False
    cpus_per_gpu: int = 0
    engine: str = ""
    up_to: int = 0

    @property
    def on_each(self) -> int:
        """Devices of a program on the server itself, on each of its servers; of unequal numbers one in between."""
        return self.count // self.servers_there

    @property
    def crowded(self) -> bool:
        """Whether a process for each device may be more than one for each processor."""
        return not self.cpus_per_gpu and (self.unequal or self.on_each > self.cpus)

    @property
    def spread(self) -> bool:
        """Whether it is one job on as many servers as it has devices: Slurm spreads parts over servers, and never over
        the GPUs of one."""
        return self.apart and self.count > 1 and self.where == "client"

    @property
    def text(self) -> str:
        """2 x 1/2 GPU, 1 GPU."""
        if self.part.whole:
            return several(self.count, "GPU")
        more = f" up to {share_text(self.up_to, self.part.of)}" if self.up_to else ""
        return f"{self.count} x {self.part.text} GPU{more}" if self.count > 1 else f"{self.part.text} GPU{more}"
