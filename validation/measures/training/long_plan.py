"""The long training: one job of all GPU servers, to an accuracy, where it was asked for; in a lab a tiny one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from validation.measures.training.long_outcome import IMAGES
from validation.model import Measurement, Node
from validation.plan import training_choice
from validation.plan.offered import EPOCHS, IN_MEMORY, LIMIT_HOURS, TORCH
from validation.plan.request import Part, PlanError, Request, transport_of
from validation.plan.training_choice import Choice, Config
from validation.probes.train_tiny import FORMATS

RATE = {True: 600.0, False: 300.0}  # images/s of a GPU, and of a processor with a small network: of the estimate, too
TINY_IMAGES = 800
NUMBERS = {
    "epochs": "epochs of a long training",
    "checkpoint_steps": "steps between two checkpoints of a long training",
    "limit_hours": "hours after which a long training is ended",
    "alone": "1: the long training and nothing else of its suite",
}
WORDS = {"data": "folder with the pictures of a long training", "checkpoints": "folder for its checkpoints"}
UNASKED = (
    "the long test (tn.long, tn.longh) takes hours, and pictures: --data; by itself: toolkit validate --suite training "
    "--long"
)
TINY = tuple(f"tiny:{kind}" for kind in FORMATS)
NOWHERE = ""
"""For checkpoints that go with the ranks."""
REHEARSED, REHEARSED_EPOCHS = Config("small-resnet", 8, "fp32"), 6
"""Learns the tiny set far above chance, within seconds."""


def asked(request: Request) -> bool:
    """Whether this run has a long training."""
    return "data" in request.words


def alone(request: Request) -> bool:
    """Whether it has nothing else of its suite."""
    return asked(request) and bool(request.options.get("alone"))


def plan(request: Request, part: Part, head: Node, servers: Sequence[Node], across: bool) -> None:
    """All ranks of all GPU servers, or as many as were asked for. PlanError for what cannot be trained.

    Beside the short jobs it trains the first network of theirs on all GPUs.
    """
    choice = training_choice.read(request.words)
    several = [
        (option, values)
        for option, values in (
            ("--models", choice.models),
            ("--batch", choice.batches),
            ("--gpus", choice.gpus),
            ("--dtype", choice.precisions),
        )
        if len(values) > 1
    ]
    if several and alone(request):
        option, values = several[0]
        raise PlanError(f"{option} {','.join(map(str, values))}: a long training has one of it")
    config = choice.configs(servers)[0]
    each = min(n.slots for n in servers)
    chosen = training_choice.places(choice, servers, each)
    count = len(servers) if across else 1
    ranks, count = next(iter(chosen.items() if alone(request) else ()), (each * count, count))
    if count > 1 and not across:
        raise PlanError(f"--gpus {ranks}: the servers cannot train together; ask for at most {each}")
    hosts = servers[:count]
    data, checkpoints = _places(request, hosts)
    limit_s = 3600.0 * request.options.get("limit_hours", LIMIT_HOURS)
    every = {"checkpoint_steps": request.options["checkpoint_steps"]} if "checkpoint_steps" in request.options else {}
    made = _job(request, config, head, hosts, ranks, data, checkpoints, request.options.get("epochs", EPOCHS))
    part.rounds.append([made.model_copy(update={"params": {**made.params, **every}, "timeout_s": limit_s})])


def rehearse(request: Request, part: Part, choice: Choice, head: Node, servers: Sequence[Node], across: bool) -> None:
    """In a lab that was asked for none: the tiny set, of which nothing is kept. Else none, and none where the run is
    to be quick or another framework than torch trains.
    """
    lab = all(n.virtual for n in servers)
    if not lab or request.options.get("quick") or choice.framework != TORCH:
        part.leave_out(UNASKED, *request.serving("training-long"))
        return
    if not request.serving("training-long"):
        return
    hosts = servers if across else servers[:1]
    ranks = min(n.slots for n in servers) * len(hosts)
    part.leave_out("the long test in a rehearsal: a small network on a tiny set, which is made there")
    part.rounds.append([_job(request, REHEARSED, head, hosts, ranks, TINY[0], NOWHERE, REHEARSED_EPOCHS)])


def _job(
    request: Request,
    config: Config,
    head: Node,
    hosts: Sequence[Node],
    ranks: int,
    data: str,
    checkpoints: str,
    epochs: int,
) -> Measurement:
    gpus = training_choice.on_gpus(hosts)
    images = TINY_IMAGES if data in TINY else IMAGES
    estimated = round(30 + epochs * images / (RATE[gpus] * ranks), 1)
    return Measurement(
        id=f"training-long.{config.model}-b{config.batch}-{config.precision}.{ranks}",
        suite="training",
        kind="training-long",
        nodes=tuple(dict.fromkeys((head.name, *(n.name for n in hosts)))),
        params={
            "label": "inter" if len(hosts) > 1 else "intra" if ranks > 1 else "1",
            "ranks": ranks,
            "ranks_per_node": ranks // len(hosts),
            "hosts": tuple(n.name for n in hosts),
            "batch": config.batch,
            "transport": transport_of(request, hosts),
            "model": config.model,
            "precision": config.precision,
            "device": "gpu" if gpus else "cpu" if all(n.virtual for n in hosts) else "any",
            "data": data,
            "checkpoints": checkpoints,
            "epochs": epochs,
        },
        criteria=request.serving("training-long"),
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )


def _places(request: Request, hosts: Sequence[Node]) -> tuple[str, str]:
    """Folders of the pictures and of the checkpoints, in the training containers."""
    data, checkpoints = request.words["data"], request.words.get("checkpoints", "")
    data = TINY[0] if data == "tiny" else data
    if data not in TINY and not PurePosixPath(data).is_absolute():
        near = f", or {', '.join(('tiny', *TINY))} for a small set that is made there"
        raise PlanError(f"--data {data}: the whole path of a folder on the GPU servers is wanted{near}")
    if not checkpoints and all(n.virtual for n in hosts):
        checkpoints = IN_MEMORY
    if not PurePosixPath(checkpoints).is_absolute():
        raise PlanError(
            "--checkpoints: the whole path of a folder on the GPU servers is wanted, best one that all of them share, "
            "so that the loss of a server loses nothing; a volume of the training container (horovod_volumes)"
        )
    return data, checkpoints
