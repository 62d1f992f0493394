"""Where a program of `toolkit run` runs: on this machine by an engine, or on the GPU server itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from toolkit.lease import SHARDS_PER_GPU, LeaseError, engines
from toolkit.lease.before.choice import Asked, Choice, decide
from toolkit.lease.before.imports import absent_here, certain_imports
from toolkit.lease.before.program_needs import Needs, PythonHas, ask_python, needs_of
from toolkit.lease.before.program_words import hides_engines, program_of, script_of
from toolkit.lease.before.sees import FRAMEWORKS, framework, refuse_none
from toolkit.lease.before.words import python_fault
from toolkit.lease.client import ask, images, shown_gpus, step
from toolkit.lease.client.run_request import RunRequest, refuse_lone_start
from toolkit.lease.fraction import GpuPart, parse_part
from toolkit.lease.jobs.submission import Submission
from toolkit.lease.lease_request import LeaseRequest, LeaseWish, Where
from toolkit.lease.machine.host import Host
from toolkit.lease.on_server import part_refusal
from toolkit.lease.pool_file import read_pool

#: Programs of the toolkit's own, which speak the driver API.
DRIVER_API = ("elastic-ai-copybench", "elastic-ai-train")


@dataclass(frozen=True)
class Placement:
    """told: what its user hears of the choice, "" where it is his own. engine: by which it runs here, "" where its
    lease says so or it runs on the server. choice: how it runs there, None where nothing is known of the servers.
    framework: that which sees its GPUs here, "" where nobody knows."""

    where: Where
    told: str = ""
    engine: str = ""
    choice: Choice | None = None
    framework: str = ""


class NotByThisPython(LeaseError):
    """The engine is enough for the program, and the program's Python here is not."""

    def __init__(self, why: str, hint: str) -> None:
        """why: with the place. hint: what to do."""
        super().__init__(f"{why}; {hint}")
        self.why = why


@dataclass(frozen=True)
class Unfit:
    """Why a program cannot run here. driver_api: whether it could if the driver API were enough for it."""

    why: str
    driver_api: bool = False


def needs(request: RunRequest) -> Needs:
    """What the program needs: as its user states it, else as it looks. Of the Python of an image nothing is known."""
    if request.needs_driver_api_alone or Path(request.program[0]).name in DRIVER_API:
        return Needs("driver-api")
    if Path(request.program[0]).name == shown_gpus.PROGRAM:
        return Needs("any")  # it asks what is leased, and uses none of it
    found = needs_of(request.program)
    return found if request.image is None else replace(found, python="")


def is_enough(engine: str, needed: Needs) -> bool:
    """Whether the engine does what the program needs, as far as that is known."""
    if needed.kind == "any":
        return True
    if needed.kind in FRAMEWORKS:
        return engines.runs(engine, needed.kind)
    if needed.kind == "driver-api":
        return engines.load(engine).RUNS_DRIVER_API
    return engines.load(engine).RUNS_RUNTIME


def unfit(engine: str, needed: Needs, program: str) -> Unfit:
    """Why the engine is not enough: with it the program would find no GPU, and many a one goes on without a word on the
    processor."""
    if needed.why:
        return Unfit(f"{needed.why}, for which the engine here ({engine}) is not enough")
    if by := engines.load(engine).RUNS_FRAMEWORKS:
        named = " and ".join(FRAMEWORKS[one] for one in by)
        return Unfit(f"the engine here ({engine}) runs programs of {named} alone, which {program} does not import")
    return Unfit(f"the engine here ({engine}) runs kernels by the driver API alone", driver_api=True)


def refuse_unfit(engine: str, request: RunRequest, needed: Needs) -> None:
    """LeaseError where the engine is not enough, and nobody said that it is."""
    if is_enough(engine, needed):
        return
    program = request.program[0]
    found = unfit(engine, needed, program)
    if found.driver_api:
        raise LeaseError(
            f"the engine here ({engine}) runs kernels by the driver API alone, and {program} may need the CUDA runtime "
            "(as PyTorch does), by which it would find no GPU; for a program that does not, or only copies, give "
            "--driver-api, for another --where server"
        )
    raise LeaseError(f"{found.why}; --where server runs {program} on the GPU server itself")


def refuse_framework(engine: engines.Installed, needed: Needs) -> None:
    """LeaseError where the program's Python has not the framework that the engine is for, or a release of it that the
    engine does not know. Of a Python that is not known (in an image, by a manager of environments) the engine's own
    client says it."""
    if not engine.minors or not needed.python:
        return
    has = ask_python(needed.python)
    if engine.tensorflow:
        _refuse_tensorflow(engine, needed.python, has)
        return
    built = " or ".join(f"{minor}.*" for minor in engine.torch)
    if has.known and not has.torch:
        raise NotByThisPython(
            f"{needed.python} has no PyTorch, by which the engine torch gives the program its GPUs",
            f"install torch {built} there (its wheel for processors is enough), or run the program on its server by "
            "--where server",
        )
    if has.known and ".".join(has.torch.split("+")[0].split(".")[:2]) not in engine.torch:
        raise NotByThisPython(
            f"{needed.python} has PyTorch {has.torch}, and the engine here is built for {built}",
            "install one of these there, let the administrator build the engine for yours, or run the program by "
            "--where server",
        )


def _refuse_tensorflow(engine: engines.Installed, python: str, has: PythonHas) -> None:
    knows = " or ".join(f"{minor}.*" for minor in engine.tensorflow)
    if has.known and not has.tensorflow:
        raise NotByThisPython(
            f"{python} has no TensorFlow, by which the engine tensorflow gives the program its GPUs",
            f"install tensorflow {knows} there (its ordinary wheel), or run the program on its server by "
            "--where server",
        )
    if has.known and ".".join(has.tensorflow.split(".")[:2]) not in engine.tensorflow:
        raise NotByThisPython(
            f"{python} has TensorFlow {has.tensorflow}, and the engine here knows {knows}",
            "install that there, or run the program by --where server",
        )


def refuse_absent(request: RunRequest) -> None:
    """LeaseError where the program's Python is not here, or has not what the program imports."""
    fault = python_fault(request.program)
    if fault:
        raise NotByThisPython(fault, "install Python 3, or activate the environment that has it")
    python = program_of(request.program) if request.image is None else None
    lacking = absent_here(certain_imports(python), python.python) if python else []
    if python and lacking:
        first = lacking[0]
        names = ", ".join(dict.fromkeys(one.top for one in lacking))
        raise NotByThisPython(
            f"{python.python} has no {names} ({first.where})",
            "install it there, or activate the environment that has it",
        )


def refuse_on_lease(engine_dir: Path, request: RunRequest, engine: str) -> None:
    """LeaseError where the engine of a lease that is there is not enough for the program."""
    needed = needs(request)
    refuse_unfit(engine, request, needed)
    refuse_hidden(engine, request)
    refuse_none(framework(needed), None, os.environ, request.cpu_ok)
    if needed.torch or needed.tensorflow:
        refuse_framework(engines.installed(engine_dir, engine), needed)


def refuse_hidden(engine: str, request: RunRequest) -> None:
    """LeaseError where the program's Python is told to read nothing of its environment, by which it finds an engine of
    a framework: it would go on without a word on the processor."""
    option = hides_engines(request.program)
    if option and engines.load(engine).RUNS_FRAMEWORKS:
        raise LeaseError(
            f"{option} keeps {request.program[0]} from reading PYTHONPATH, by which it finds its GPUs "
            f"(engine {engine}); leave {option} out, or run the program by --where server"
        )


def refuse_missing(request: RunRequest) -> None:
    """LeaseError where the program is a file of this folder that is not there: neither place has it then. A folder of
    the server's, a copy and an image have files of their own, and a full path may be the server's."""
    elsewhere = request.folder or request.sync or request.image
    file = script_of(request.program)
    if file is not None and not elsewhere and not file.is_absolute() and not file.exists():
        raise LeaseError(f"{file}: no such file in {Path.cwd()}")


def server_refusal(host: Host, request: RunRequest) -> str:
    """Why the program may not run on the servers themselves, '' where it may (or the servers decide)."""
    wish, pool_file = request.wish, read_pool(host.pool_conf)
    against = "" if wish.whole else part_refusal(pool_file, wish.count, wish.memory_mib)
    if not against and pool_file.native_jobs == "none":
        return "the pool's policy lets no programs onto its servers (native_jobs)"
    return against


def _by_hand(host: Host, request: RunRequest, needed: Needs) -> engines.Installed:
    """The engine that the user names. LeaseError where it is not here, or the program would find no GPU by it for all
    that can be seen of it."""
    chosen = engines.installed(host.engine_dir, request.wish.engine)
    adapter = engines.load(chosen.engine)
    if needed.kind in (*FRAMEWORKS, "driver-api") and not is_enough(chosen.engine, needed):
        refuse_unfit(chosen.engine, request, needed)
    imports = {name for name, there in (("torch", needed.torch), ("tensorflow", needed.tensorflow)) if there}
    if needed.kind == "runtime" and not adapter.RUNS_RUNTIME and not imports & set(adapter.RUNS_FRAMEWORKS):
        refuse_unfit(chosen.engine, request, needed)
    refuse_framework(chosen, needed)
    return chosen


def _here(host: Host, request: RunRequest, needed: Needs) -> engines.Installed | Unfit:
    """The engine by which the program runs here: of several that for PyTorch before those for everything."""
    try:
        if request.wish.engine:
            return _by_hand(host, request, needed)
        there = engines.all_installed(host.engine_dir)
        if not there:
            return Unfit("no remoting engine is installed here")
    except LeaseError as fault:
        if request.wish.engine:
            raise
        return Unfit(str(fault))
    fit = [one for one in there if is_enough(one.engine, needed)]
    fit.sort(key=lambda one: needed.kind in FRAMEWORKS and needed.kind not in engines.load(one.engine).RUNS_FRAMEWORKS)
    faults = []
    for one in fit:
        try:
            refuse_framework(one, needed)
        except LeaseError as fault:
            faults.append(fault)
        else:
            return one
    if faults:
        raise faults[0]
    others = [unfit(one.engine, needed, request.program[0]) for one in there]
    if len(there) > 1 and needed.why:
        return Unfit(f"{needed.why}, for which no engine here is enough ({', '.join(one.engine for one in there)})")
    found = next((one for one in others if one.driver_api), others[0])
    by = {name: [one.engine for one in there if engines.runs(one.engine, name)] for name in FRAMEWORKS}
    by = {name: having for name, having in by.items() if having}
    if found.driver_api and by:
        # A prompt, a notebook, a program that imports by names: nothing tells, and its user may know.
        named, which = " or ".join(FRAMEWORKS[name] for name in by), " or ".join(having[0] for having in by.values())
        unseen = f"nothing shows that it imports {named}"
        return replace(found, why=f"{unseen} (if it does: --engine {which}), and {found.why}")
    return found


def place(host: Host, request: RunRequest) -> Placement:
    """Where the program runs. LeaseError where it can run nowhere, or not where its user wants it."""
    if request.on_a_lease:
        return Placement("client")
    if request.where == "server":
        if request.wish.engine:
            raise LeaseError("--engine is for programs that run here; on the server (--where server) there is none")
        against = server_refusal(host, request)
        if against:
            raise LeaseError(f"--where server: {against}")
        return Placement("server", choice=choose_there(host, request, needs(request)))
    needed = needs(request)
    program = request.program[0]
    try:
        here = _here(host, request, needed)
        if isinstance(here, engines.Installed):
            refuse_absent(request)
    except NotByThisPython as fault:
        return _there_instead(host, request, needed, fault)
    if isinstance(here, engines.Installed):
        refuse_hidden(here.engine, request)
        refuse_none(framework(needed), request.wish.count, os.environ, request.cpu_ok)
        why = f": {needed.why}" if needed.why else ""
        told = f"{program} runs here, its GPUs by the engine {here.engine}{why}"
        told = told if request.where == "auto" else ""
        return Placement("client", told, here.engine, framework=framework(needed))
    if request.where == "client":
        for one in engines.all_installed(host.engine_dir)[:1]:
            if not needed.why:
                refuse_unfit(one.engine, request, needed)
        raise LeaseError(f"{here.why}; --where server runs {program} on the GPU server itself")
    against = server_refusal(host, request)
    if against:
        hint = "; for a program that needs no more give --driver-api" if here.driver_api else ""
        raise LeaseError(f"{program} can run neither here nor on the server: {here.why}; {against}{hint}")
    why = here.why if request.image is not None or shutil.which(program) else "this machine has no such program"
    choice = choose_there(host, request, needed)
    return Placement("server", f"{program} runs on the server itself: {why}", choice=choice)


def _there_instead(host: Host, request: RunRequest, needed: Needs, fault: NotByThisPython) -> Placement:
    """On the server, where it is known to be able to run the program that this machine's Python cannot."""
    if request.where != "auto" or request.wish.engine or server_refusal(host, request):
        raise fault
    program = request.program[0]
    try:
        choice = choose_there(host, request, needed)
    except LeaseError as there:
        raise LeaseError(f"{program} can run neither here nor on the server: {fault.why}; {there}") from None
    if choice is None:
        raise fault
    return Placement("server", f"{program} runs on the server itself: {fault.why}", choice=choice)


def _eligible(host: Host, wish: LeaseWish) -> list[str]:
    """Servers that the user's choice leaves."""
    any_gpu = LeaseRequest(1, GpuPart(1, 1), wish.names, wish.gpu_class)
    return [node.name for node in ask.eligible_here(host, any_gpu, host.slurm.nodes())]


def choose_there(host: Host, request: RunRequest, needed: Needs) -> Choice | None:
    """How the program runs on the server, by what the servers were found to have; None where nothing is known of them.
    LeaseError where none can run it."""
    pool_file = read_pool(host.pool_conf)
    if not any(server.offers for server in pool_file.servers.values()):
        return None
    mine = request.folder is None and (request.sync is None or Path(request.sync).resolve() == Path.cwd())
    asked = Asked(
        request.program, request.image or "", mine, request.sync is not None, needed.torch, needed.tensorflow,
        request.cpu_ok,
    )  # fmt: skip
    servers = {name: pool_file.server(name) for name in _eligible(host, request.wish)}
    return decide(asked, servers, pool_file.default_image)


@dataclass(frozen=True)
class There:
    """A program on the server itself: what Slurm is asked for, how it runs, its words there, and what sees its GPUs."""

    submission: Submission
    how: step.How
    program: tuple[str, ...]
    framework: str = ""


def _image_there(host: Host, image: str, wish: LeaseWish, say: Callable[[str], None]) -> tuple[str, LeaseWish]:
    """The image as the servers know it, and the wish for those that may have it. LeaseError where none has."""
    names = _eligible(host, wish)
    known_by, may = images.find(host, image, names)
    say(f"image {image} is {known_by or 'looked for when the lease runs: no server could be asked now'}")
    return known_by or image, wish if may == names else replace(wish, servers=",".join(may))


def _as_chosen(
    host: Host, choice: Choice, how: step.How, wish: LeaseWish, say: Callable[[str], None]
) -> tuple[step.How, LeaseWish]:
    """What was decided, and its lines."""
    for line in choice.lines:
        say(line)
    if set(choice.servers) != set(_eligible(host, wish)):
        wish = replace(wish, servers=",".join(choice.servers))
    if choice.copy is not None:
        how = replace(how, synced=choice.copy.folder, left_out=choice.copy.left_out)
    return replace(how, image=choice.identity), wish


def plan_there(
    host: Host, request: RunRequest, how: step.How, say: Callable[[str], None], choice: Choice | None = None
) -> There:
    """The program on the server against the pool as it is. LeaseError where that cannot be. how: as asked for; choice:
    what was decided of it."""
    wish, program = request.wish, request.program
    if choice is not None:
        how, wish = _as_chosen(host, choice, how, wish, say)
        program = choice.program
    image = request.image or (choice.image if choice and not choice.identity else "")
    if image:
        image, wish = _image_there(host, image, wish, say)
        how = replace(how, image=image)
    submission = ask.against_pool(host, wish, "run", say, "server")
    refuse_lone_start(submission.request, how)
    how = replace(how, crowded=how.start == "gpu" and submission.request.crowded)
    return There(submission, how, program, choice.framework if choice else "")


def command_by_engine(host: Host, request: RunRequest) -> list[str] | None:
    """The command line of the engine's own client, where the servers of the engine here give out GPUs by themselves;
    None of other engines. LeaseError for what that client does not know."""
    by_engine = engines.run_elsewhere(engines.installed(host.engine_dir, request.wish.engine).engine)
    if by_engine is None:
        return None
    request.check_by_engine()
    wish = request.wish
    share = Fraction(parse_part(wish.part).shards, SHARDS_PER_GPU) if wish.part else None
    named = tuple(wish.servers.split(",")) if wish.servers else ()
    return by_engine(request.program, engines.EngineGpus(wish.count, share, wish.memory_mib, named))
