"""Training on one machine by itself, with its own torch: on its GPUs, where it has none on a processor."""

from __future__ import annotations

from validation.measures.training import turns_plan
from validation.measures.training.facts import Cores
from validation.model import Found, Measurement
from validation.plan.request import Part, Request
from validation.plan.training_choice import BATCH, ON_GPUS, SMALL_BATCH, Config

WARMUP, STEPS = 10, 100  # Dell whitepaper 2019, section 4.1.1
ON_PROCESSOR = (Config("small", SMALL_BATCH, "fp32"), Config("small-resnet", SMALL_BATCH, "fp32"))
JOB_S, GPU_JOB_S = 15.0, 60.0  # only estimates of the plan
ONE, ALL = ("tn.short", "tn.rate", "tn.hours", "tn.intra"), ("tn.short", "tn.rate", "tn.hours", "tn.intra", "tn.comm")
REPORTED = ("tn.rate",)  # of a processor: what stands for no GPU is held against nothing


def plan(request: Request, found: Found) -> Part:
    """ResNet-50 on one GPU and on all of them; without GPUs two small networks on one processor, reported only."""
    part, kinds = Part(), ("training-short", "training-turns", "collectives")
    every = tuple(c for kind in kinds for c in request.serving(kind))
    if not found.torch:
        part.leave_out("training: no torch was found", *every)
        part.excused = True
        return part
    on_gpus = found.gpus > 0 and not found.gpu_trouble and not found.emulated
    if found.gpus and not on_gpus:
        why = found.gpu_trouble or "they are emulated"
        part.leave_out(f"training on the GPUs: {why}; a processor trains instead, and stands for none")
    planned: list[Measurement] = []
    if on_gpus:
        config = Config(ON_GPUS[0], BATCH, ON_GPUS[1])
        planned.append(_job(request, config, "1", 1, ONE, True))
        planned += [_job(request, config, "intra", found.gpus, ALL, True)] if found.gpus > 1 else []
    else:
        planned += [_job(request, config, "1", 1, REPORTED, False) for config in ON_PROCESSOR]
    if not request.options.get("quick"):
        planned.append(_input(request, config if on_gpus else ON_PROCESSOR[0], max(1, found.gpus * on_gpus), on_gpus))
    part.rounds = [[m] for m in planned if m.criteria]
    served = {c for m in planned for c in m.criteria}
    part.leave_out(
        "one machine by itself: what takes a second one"
        + (", and what is not asked for with --quick" if request.options.get("quick") else "")
        + ("" if on_gpus else "; a processor's rate is reported, and its scaling and spread are not judged"),
        *(c for c in every if c not in served),
    )
    return part


def _job(
    request: Request, config: Config, label: str, ranks: int, criteria: tuple[str, ...], on_gpus: bool
) -> Measurement:
    estimated = GPU_JOB_S if on_gpus else JOB_S
    node = request.topology.nodes[0].name
    return Measurement(
        id=f"training-short.{config.prefix}{label}",
        suite="training",
        kind="training-short",
        nodes=(node,),
        params={
            "label": label,
            "ranks": ranks,
            "ranks_per_node": ranks,
            "hosts": (node,),
            "warmup": request.options.get("warmup", WARMUP),
            "steps": request.options.get("steps", STEPS),
            "batch": config.batch,
            "transport": "tcp",
            "model": config.model,
            "precision": config.precision,
            "device": "gpu" if on_gpus else "cpu",
        },
        criteria=tuple(c for c in criteria if c in request.serving("training-short")),
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )


def _input(request: Request, config: Config, ranks: int, on_gpus: bool) -> Measurement:
    """Images of files beside synthetic ones; of a processor the curve over processors alone."""
    wanted = turns_plan.CRITERIA["input"] if on_gpus else ("tn.cores",)
    cores = turns_plan.CORES if on_gpus else turns_plan.VIRTUAL_CORES
    made = _job(request, config, "input", ranks, (), on_gpus)
    ways = ("synthetic", "real", *(str(Cores(n)) for n in cores))
    steps = max(1, int(str(made.params["steps"])) // turns_plan.TURNS)
    estimated = made.estimated_s * len(ways)
    return made.model_copy(
        update={
            "id": f"{turns_plan.KIND}.{config.prefix}input",
            "kind": turns_plan.KIND,
            "params": {**made.params, "steps": steps, "ways": ways, "turns": turns_plan.TURNS},
            "criteria": tuple(c for c in wanted if c in request.serving(turns_plan.KIND)),
            "estimated_s": estimated,
            "timeout_s": 10 * estimated + 120,
        }
    )
