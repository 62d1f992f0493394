"""Remoting engines behind one small interface: how a server instance is started, and how a client finds it.

An adapter is a module with the functions of `Engine`; nothing else of the toolkit knows an engine's names or options.
An engine whose sessions compute on processors where devices are emulated, as one processor for each device, has
HOLDS_PROCESSORS = True: the unit of a lease is held to its share.
An engine whose servers of one lease carry data between them has KNOWS_PEERS = True: they are told where the others are.
An engine whose server is closed by something beside it also has `refuse_open(server)` (see there).
Where an engine's servers give out GPUs by themselves, a lease is not Slurm's: its adapter also has
`run_elsewhere(program, gpus)`, the command line that runs the program by the engine's own client.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, Protocol, cast

from toolkit.errors import or_nearest
from toolkit.lease import LeaseError
from toolkit.lease.fields import DamagedDocument, Fields
from toolkit.lease.fraction import thread_percentage

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""All adapters: every module of this folder is one."""
#: UUIDs of GPUs and MIG instances, names of engines and of their releases, and device files of MIG instances.
_UUID, _NAME = r"[A-Za-z0-9][A-Za-z0-9/_.:-]{0,127}", r"[A-Za-z0-9][^\x00-\x1f\x7f]{0,127}"
_CAPABILITY, _DRIVER, _MOST_CUDA = r"([0-9]{1,3}\.[0-9]{1,3})?", r"[A-Za-z0-9._+-]{0,79}", 1_000_000
_INSTANCE_FILE = r"/[^\s\x00-\x1f\x7f]*/nvidia-cap[0-9]+"


@dataclass(frozen=True)
class LeasedGpu:
    """A GPU as an instance gets it. memory_mib: the whole GPU's; limit_mib: what the part comes to (None: all),
    context_bytes: what each program's context takes of that. emulated: host memory stands in for it.

    A MIG instance has its own uuid and memory_mib; gpu_uuid is its GPU's, and device_files those that it needs beside.
    What a context takes of it is not measured.

    capability, driver and cuda are as its server's NVML says them (module nvml), for programs that ask ("" and 0 where
    it does not).
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    shards: int
    of: int
    limit_mib: int | None = None
    emulated: bool = False
    context_bytes: int = 0
    gpu_uuid: str = ""
    device_files: tuple[str, ...] = ()
    capability: str = ""
    driver: str = ""
    cuda: int = 0

    @classmethod
    def read(cls, fields: Fields) -> LeasedGpu:
        """As it stands in a document; DamagedDocument where it is none."""
        found = cls(
            index=fields.number("index", most=1 << 16),
            uuid=fields.text("uuid", _UUID),
            name=fields.text("name"),
            memory_mib=fields.number("memory_mib"),
            shards=fields.number("shards", least=1),
            of=fields.number("of", least=1),
            limit_mib=fields.number_or_none("limit_mib"),
            emulated=fields.flag("emulated"),
            context_bytes=fields.number("context_bytes"),
            gpu_uuid=fields.text("gpu_uuid", f"({_UUID})?"),
            device_files=fields.texts("device_files", _INSTANCE_FILE),
            # a lease that began before an upgrade goes on without
            capability=fields.text("capability", _CAPABILITY) if fields.has("capability") else "",
            driver=fields.text("driver", _DRIVER) if fields.has("driver") else "",
            cuda=fields.number("cuda", most=_MOST_CUDA) if fields.has("cuda") else 0,
        )
        fields.end()
        if found.shards > found.of:
            fields.refuse("shards", f"is {found.shards} of {found.of}")
        return found

    @property
    def gpu(self) -> str:
        """UUID of the GPU that it is, or is an instance of."""
        return self.gpu_uuid or self.uuid

    @property
    def usable_mib(self) -> int:
        """Memory that is the lease's."""
        return self.limit_mib or self.memory_mib

    @property
    def mig(self) -> bool:
        """Whether it is a MIG instance, which is held to its part by the hardware."""
        return bool(self.gpu_uuid)

    @property
    def whole(self) -> bool:
        """Whether the lease has all of it."""
        return self.shards == self.of


@dataclass(frozen=True)
class EngineStart:
    """What an instance is to be: addresses, port, files, devices."""

    engine_dir: Path
    release: str
    address: str
    port: int
    port_file: Path
    token_file: Path
    clients: tuple[str, ...]
    devices: tuple[LeasedGpu, ...]
    #: Folder of the MPS daemon's pipes on this server, None where none runs.
    mps_pipe: Path | None = None
    #: What carries its clients' bytes, one of the adapter's `TRANSPORTS`; nothing else does.
    transport: str = "tcp"
    #: The lease's servers with this one, where they know each other, and their secret; else None.
    peers_file: Path | None = None
    peer_token_file: Path | None = None


@dataclass(frozen=True)
class EngineCommand:
    """A server's command line and environment. `tells_port`: it writes port_file when it listens."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    tells_port: bool = False


@dataclass(frozen=True)
class Server:
    """One server of a lease, as its client knows it."""

    address: str
    port: int
    token: str
    devices: int
    transport: str = "tcp"


@dataclass(frozen=True)
class EngineGpus:
    """What a program asks for: `count` GPUs, of each this part or so much memory, on these servers (empty: any)."""

    count: int
    part: Fraction | None = None
    memory_mib: int | None = None
    servers: tuple[str, ...] = ()


class Engine(Protocol):
    """What an adapter module has."""

    #: For docs/how-to/pool.md: what the engine is for, and what holds a part of a GPU.
    MEANT_FOR: str
    HOLDS_PARTS: str
    #: Whether programs can compute on its GPUs; without kernels they can copy, and no more.
    RUNS_KERNELS: bool
    #: Whether programs of the CUDA driver API work by it.
    RUNS_DRIVER_API: bool
    #: Whether the CUDA runtime and what stands on it (any framework) work by it.
    RUNS_RUNTIME: bool
    #: Frameworks whose programs work by it although it has no runtime, by the names that programs import.
    RUNS_FRAMEWORKS: tuple[str, ...]
    #: What can carry its clients' bytes: tcp; verbs (RDMA).
    TRANSPORTS: tuple[str, ...]
    #: Servers that one client process can join; None where there is no limit.
    MAX_SERVERS: int | None
    #: Host memory that its server needs for each device of a lease, MiB, where the site says nothing else.
    HOST_MEMORY_MIB: int
    #: Processes and threads that the unit of a lease may have.
    TASKS: int
    #: How long its server may take until it listens.
    STARTS_S: float
    #: The variable of the program's environment that holds the servers' tokens, "" where a file does (`secret`).
    SECRET_VARIABLE: str
    #: Whose memory a part's limit holds: of all programs of the lease together, of each of them, or (none) nobody's.
    HOLDS_MEMORY_OF: Literal["lease", "program", "none"]

    def keeps_part(self, start: EngineStart) -> str:
        """Why this server cannot hold a lease to its part, '' when it can."""

    def notes(self, start: EngineStart) -> list[str]:
        """What the owner ought to know of how his part is held."""

    def command(self, start: EngineStart) -> EngineCommand:
        """How the server instance is started."""

    def client(self, engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
        """The program's environment; files that it needs are made in `folder`, which the owner alone may read. Whoever
        has both has the lease."""

    def secret(self, folder: Path) -> Path | None:
        """Which of those files holds the servers' tokens; None where none does."""


def load(name: str) -> Engine:
    """The adapter of that name."""
    if name not in NAMES:
        raise LeaseError(f"unknown remoting engine {name!r}; {or_nearest(name, NAMES)}")
    return cast(Engine, importlib.import_module(f"toolkit.lease.engines.{name}"))


def run_elsewhere(name: str) -> Callable[[Sequence[str], EngineGpus], list[str]] | None:
    """That adapter's `run_elsewhere`; None for engines whose servers the toolkit starts."""
    return getattr(load(name), "run_elsewhere", None)


def host_memory_mib(name: str, emulated: bool, whole: bool) -> int:
    """Host memory that its server needs for a device, where the site says nothing else; an adapter may have
    EMULATED_PART_MIB, for a part of an emulated one."""
    adapter = load(name)
    less: int = getattr(adapter, "EMULATED_PART_MIB", adapter.HOST_MEMORY_MIB)
    return less if emulated and not whole else adapter.HOST_MEMORY_MIB


def refuse_open(name: str, server: Server) -> None:
    """LeaseError where a server of an engine whose own server asks for no token answers without one."""
    check: Callable[[Server], None] | None = getattr(load(name), "refuse_open", None)
    if check is not None:
        check(server)


def transport_of(name: str, transport: str, first: bool = True) -> str:
    """What carries the bytes of that engine's leases on a server with this transport: an engine that is not the site's
    first one, and has TCP alone, has that. LeaseError where the engine has no such transport."""
    offered = load(name).TRANSPORTS
    if transport in offered:
        return transport
    if not first and offered == ("tcp",):
        return "tcp"
    words = f"the engine {name} speaks {', '.join(offered)} and not {transport}"
    raise LeaseError(f"{words}: set remoting_server_transport to one that it has, and run site.yml")


def one_transport(servers: Sequence[Server]) -> str:
    """What carries the bytes of a program of these servers. LeaseError where they have no one transport."""
    transports = sorted({server.transport for server in servers})
    if len(transports) != 1:
        raise LeaseError(f"the lease's servers speak {' and '.join(transports)}: a program has one transport for all")
    return transports[0]


#: Beside the folder of a site's first engine (`current`): a folder for each further one, by name, with its `current`.
BESIDE = "beside"


@dataclass(frozen=True)
class Installed:
    """An engine of a machine (engine.json), and where it lies. torch, tensorflow: minor releases of PyTorch that it is
    built for, as 2.13, and of TensorFlow that it knows; none of engines that are not for these."""

    engine: str
    release: str
    folder: Path = Path()
    torch: tuple[str, ...] = ()
    tensorflow: tuple[str, ...] = ()

    @property
    def minors(self) -> tuple[str, ...]:
        """Of the framework that it is for."""
        return self.torch or self.tensorflow


def _described(folder: Path) -> Installed | None:
    """The engine in a folder; None where there is none. LeaseError where its description is damaged."""
    try:
        fields = Fields.in_file(folder / "engine.json")
        minors = [fields.texts(one, r"\d+\.\d+") if fields.has(one) else () for one in ("torch", "tensorflow")]
        return Installed(fields.text("engine", _NAME), fields.text("release", _NAME), folder, *minors)
    except FileNotFoundError:
        return None
    except DamagedDocument:
        raise LeaseError(f"{folder}/engine.json has no engine and release; install it again") from None


def all_installed(engine_dir: Path) -> list[Installed]:
    """The engines that are installed here, the site's first one first; LeaseError when one's description is damaged."""
    folders = [engine_dir, *sorted(engine_dir.parent.glob(f"{BESIDE}/*/current"))]
    return [found for found in map(_described, folders) if found is not None]


def installed(engine_dir: Path, name: str = "") -> Installed:
    """The engine of that name here; without a name the site's first one. LeaseError when there is none."""
    there = all_installed(engine_dir)
    if not there:
        words = f"no remoting engine is installed here ({engine_dir}); set remoting_engine_artifact and run site.yml"
        raise LeaseError(words)
    for one in there:
        if name in ("", one.engine):
            return one
    variable = f"remoting_engine_{name}_artifact" if name in ("torch", "tensorflow") else "remoting_engine_artifact"
    has = " and ".join(one.engine for one in there)
    raise LeaseError(f"the engine {name} is not installed here (it has {has}); set {variable} and run site.yml")


def runs(engine: str, framework: str) -> bool:
    """Whether programs that import this framework find the GPUs by that engine."""
    adapter = load(engine)
    return adapter.RUNS_RUNTIME or framework in adapter.RUNS_FRAMEWORKS


def library_path(engine_dir: Path, environment: Mapping[str, str]) -> str:
    """LD_LIBRARY_PATH with the engine's libraries before all others."""
    before = environment.get("LD_LIBRARY_PATH", "")
    return f"{engine_dir}/lib" + (f":{before}" if before else "")


def mps_environment(start: EngineStart) -> dict[str, str]:
    """What holds an instance to its part under MPS: threads, and pinned memory by device in the visible order."""
    if start.mps_pipe is None or all(d.whole for d in start.devices):
        return {}
    limits = ",".join(f"{i}={d.limit_mib}M" for i, d in enumerate(start.devices) if d.limit_mib is not None)
    smallest = min(start.devices, key=lambda d: d.shards)
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(start.mps_pipe),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": thread_percentage(smallest.shards, smallest.of),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limits,
    }
