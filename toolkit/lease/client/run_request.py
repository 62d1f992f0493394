"""What `toolkit run` is told, checked before anything is asked of anybody."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.lease import LeaseError
from toolkit.lease.client import ranks, step
from toolkit.lease.client.folder_copies import readable
from toolkit.lease.client.running import parse_signal
from toolkit.lease.lease_request import LeaseRequest, LeaseWish, omit
from validation.base.counting import number_of


@dataclass(frozen=True)
class RunRequest:
    """A program and the GPUs that it wishes; the other fields are the command's options of these names.

    lease, static: on what it runs, where it asks for no GPUs. where: auto for whichever place can run it. image: of a
    container, with these of the user's variables. driver_api, no_kernels: what the user states of the program; cpu_ok:
    that it may run without a GPU. ports: of its machine, to be reached on this one. detach: it goes on alone (package
    kept), with `then` and `mail` when it has ended.
    """

    program: tuple[str, ...]
    wish: LeaseWish = field(default_factory=LeaseWish)
    lease: int | None = None
    static: str | None = None
    signal_name: str | None = None
    where: Literal["auto", "client", "server"] = "auto"
    folder: str | None = None
    sync: str | None = None
    terminal: bool = False
    start: ranks.StartMode | None = None
    label: bool = False
    mpi: str | None = None
    image: str | None = None
    variables: tuple[str, ...] = ()
    driver_api: bool = False
    no_kernels: bool = False
    cpu_ok: bool = False
    ports: tuple[int, ...] = ()
    detach: bool = False
    then: str | None = None
    mail: str | None = None

    @classmethod
    def checked(cls, **options: Any) -> RunRequest:
        """The request that a command's options are. LeaseError where they contradict each other."""
        request = cls(wish=LeaseWish.taken_from(options), **options)
        if request.signal_name is not None:
            parse_signal(request.signal_name)
        if request.on_a_lease:
            request._check_on_a_lease()
        request._check_detached()
        return request

    @property
    def on_a_lease(self) -> bool:
        """Whether it runs on a lease that is there."""
        return self.lease is not None or self.static is not None

    @property
    def signal(self) -> signal.Signals | None:
        """What its program is sent before its lease ends early, None for the usual."""
        return None if self.signal_name is None else parse_signal(self.signal_name)

    @property
    def needs_driver_api_alone(self) -> bool:
        """Whether its user says that the CUDA driver API is enough for it."""
        return self.driver_api or self.no_kernels

    @property
    def _there_alone(self) -> dict[str, object]:
        """Options that are for programs on the server itself."""
        return {
            "-t": self.terminal,
            "--folder": self.folder,
            "--sync": self.sync,
            "--start": self.start,
            "--label": self.label,
            "--mpi": self.mpi,
        }

    def _check_on_a_lease(self) -> None:
        wish = self.wish
        given: dict[str, object] = {
            "-n": wish.count,
            "-p": wish.part,
            "-m": wish.memory_mib,
            "--apart": wish.apart,
            "--up-to": wish.up_to,
            "-l": wish.servers,
            "--class": wish.gpu_class,
            "--engine": wish.engine,
            "-t": self.terminal,
            "--folder": self.folder,
            "--sync": self.sync,
            "--where server": self.where == "server",
            "--start": self.start,
            "--label": self.label,
            "--mpi": self.mpi,
            "--image": self.image,
            "--time": wish.seconds,
            "--static": self.static if self.lease is not None else None,
        }
        omit("--static" if self.lease is None else "--lease", "runs on what the lease has", given)

    def _check_detached(self) -> None:
        if not self.detach:
            omit("--then and --mail", "are for --detach", {"--then": self.then, "--mail": self.mail})
            return
        given: dict[str, object] = {"-t": self.terminal, "--static": self.static}
        omit("--detach", "lets the program go on alone, without a terminal and by a lease of Slurm's", given)

    def check_here(self) -> None:
        """LeaseError for what only a program on the server itself has, where this one runs here."""
        for option, value in self._there_alone.items():
            if value:
                raise LeaseError(f"{option} is for programs on the server, and this one runs here")

    def check_by_engine(self) -> None:
        """LeaseError for what an engine's own client does not know, by which this one runs."""
        given: dict[str, object] = {
            "--time": self.wish.seconds,
            "--class": self.wish.gpu_class,
            "--apart": self.wish.apart,
            "--up-to": self.wish.up_to,
            "--lease": self.lease,
            "--static": self.static,
            "--signal": self.signal_name,
            "--image": self.image,
            "-e": self.variables,
            "--detach": self.detach,
        }
        omit("the engine here", "runs programs by its own client, which gives out GPUs and knows no leases", given)

    def how_there(self) -> step.How:
        """How it runs on the server itself. LeaseError where that cannot be."""
        if self.sync and self.folder:
            raise LeaseError("--sync and --folder both say where the program runs; give one of them")
        if self.mpi and not re.fullmatch(r"[a-z0-9_]+", self.mpi):
            raise LeaseError(f"--mpi {self.mpi}: no kind of MPI; srun --mpi=list on a server lists them")
        if self.image is not None and self.mpi:
            raise LeaseError(
                "--mpi: a container does not reach Slurm's MPI; --start gpu starts one process for each GPU"
            )
        return step.How(
            terminal=self.terminal,
            folder=Path(self.folder) if self.folder else None,
            synced=readable(Path(self.sync)) if self.sync is not None else None,
            start=self.start or ("gpu" if self.mpi else "server"),
            label=self.label,
            mpi=self.mpi or "none",
            variables=self.variables,
        )


def refuse_lone_start(request: LeaseRequest, how: step.How) -> None:
    """LeaseError where one process is to start the others, and cannot reach them (--start once)."""
    if how.start != "once":
        return
    servers = number_of(request.servers_there, "server")
    if how.image and request.servers_there > 1:
        raise LeaseError(
            f"--start once: these are {servers}, and a container reaches no other one; "
            "--start server or gpu starts processes on each"
        )
    if request.unequal and request.servers_there > 2:
        raise LeaseError(
            f"--start once: {servers} would give {number_of(request.count, 'GPU')} in unequal numbers, which a "
            "launcher's own steps do not get (Slurm); ask for a multiple of the servers, or give --start gpu"
        )
