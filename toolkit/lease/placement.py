"""Where a program of `toolkit run` runs: on this machine by an engine, or on the GPU server itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from toolkit.lease import SHARDS_PER_GPU, LeaseError, ask, engines, images, shown_gpus, step
from toolkit.lease.fraction import GpuPart, parse_part
from toolkit.lease.host import Host
from toolkit.lease.lease_request import LeaseRequest, LeaseWish, Where
from toolkit.lease.on_server import part_refusal
from toolkit.lease.pool_file import read_pool
from toolkit.lease.run_request import RunRequest, refuse_lone_start
from toolkit.lease.submission import Submission

#: Programs of the toolkit's own, which speak the driver API.
DRIVER_API = ("elastic-ai-copybench", "elastic-ai-train")


@dataclass(frozen=True)
class Placement:
    """told: what its user hears of the choice, "" where it is his own."""

    where: Where
    told: str = ""


@dataclass(frozen=True)
class Unfit:
    """Why a program cannot run here. driver_api: whether it could if the driver API were enough for it."""

    why: str
    driver_api: bool = False


def is_enough(engine: str, request: RunRequest) -> bool:
    """Whether the engine does what the program needs, as far as that is known."""
    program = Path(request.program[0]).name
    if program == shown_gpus.PROGRAM:
        return True  # it asks what is leased, and uses none of it
    return engines.load(engine).RUNS_RUNTIME or request.needs_driver_api_alone or program in DRIVER_API


def refuse_without_runtime(engine: str, request: RunRequest) -> None:
    """LeaseError where the engine has the driver API alone and nobody said that this is enough: many a program would
    find no GPU that computes, and go on without a word on the processor."""
    if not is_enough(engine, request):
        raise LeaseError(
            f"the engine here ({engine}) runs kernels by the driver API alone, and {request.program[0]} may need the "
            "CUDA runtime (as PyTorch does), by which it would find no GPU; "
            "for a program that does not, or only copies, give --driver-api, for another --where server"
        )


def server_refusal(host: Host, request: RunRequest) -> str:
    """Why the program may not run on the servers themselves, '' where it may (or the servers decide)."""
    wish, pool_file = request.wish, read_pool(host.pool_conf)
    against = "" if wish.whole else part_refusal(pool_file, wish.count, wish.memory_mib)
    if not against and pool_file.native_jobs == "none":
        return "the pool's policy lets no programs onto its servers (native_jobs)"
    return against


def _here(host: Host, request: RunRequest) -> str | Unfit:
    """The engine by which the program runs here."""
    try:
        engine = engines.installed(host.engine_dir).engine
    except LeaseError as fault:
        return Unfit(str(fault))
    if is_enough(engine, request):
        return engine
    return Unfit(f"the engine here ({engine}) runs kernels by the driver API alone", driver_api=True)


def place(host: Host, request: RunRequest) -> Placement:
    """Where the program runs. LeaseError where it can run nowhere, or not where its user wants it."""
    if request.where == "client" or request.on_a_lease:
        refuse_without_runtime(engines.installed(host.engine_dir).engine, request)
        return Placement("client")
    against = server_refusal(host, request)
    if request.where == "server":
        if against:
            raise LeaseError(f"--where server: {against}")
        return Placement("server")
    program, here = request.program[0], _here(host, request)
    if isinstance(here, str):
        return Placement("client", f"{program} runs here, its GPUs by the engine {here}")
    if against:
        hint = "; for a program that needs no more give --driver-api" if here.driver_api else ""
        raise LeaseError(f"{program} can run neither here nor on the server: {here.why}; {against}{hint}")
    return Placement("server", f"{program} runs on the server itself: {here.why}")


@dataclass(frozen=True)
class There:
    """A program on the server itself: what Slurm is asked for, and how it runs."""

    submission: Submission
    how: step.How


def _image_there(host: Host, image: str, wish: LeaseWish, say: Callable[[str], None]) -> tuple[str, LeaseWish]:
    """The image as the servers know it, and the wish for those that may have it. LeaseError where none has."""
    any_gpu = LeaseRequest(1, GpuPart(1, 1), wish.names, wish.gpu_class)
    names = [node.name for node in ask.eligible(any_gpu, host.slurm.nodes(), host.slurm.default_partition())]
    known_by, may = images.find(host, image, names)
    say(f"image {image} is {known_by or 'looked for when the lease runs: no server could be asked now'}")
    return known_by or image, wish if may == names else replace(wish, servers=",".join(may))


def plan_there(host: Host, request: RunRequest, how: step.How, say: Callable[[str], None]) -> There:
    """The program on the server against the pool as it is. LeaseError where that cannot be. how: as asked for."""
    wish = request.wish
    if request.image is not None:
        image, wish = _image_there(host, request.image, wish, say)
        how = replace(how, image=image)
    submission = ask.against_pool(host, wish, "run", say, "server")
    refuse_lone_start(submission.request, how)
    return There(submission, replace(how, crowded=how.start == "gpu" and submission.request.crowded))


def command_by_engine(host: Host, request: RunRequest) -> list[str] | None:
    """The command line of the engine's own client, where the servers of the engine here give out GPUs by themselves;
    None of other engines. LeaseError for what that client does not know."""
    by_engine = engines.run_elsewhere(engines.installed(host.engine_dir).engine)
    if by_engine is None:
        return None
    request.check_by_engine()
    wish = request.wish
    share = Fraction(parse_part(wish.part).shards, SHARDS_PER_GPU) if wish.part else None
    named = tuple(wish.servers.split(",")) if wish.servers else ()
    return by_engine(request.program, engines.EngineGpus(wish.count, share, wish.memory_mib, named))
