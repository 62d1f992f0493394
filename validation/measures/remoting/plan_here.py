"""Remoting on one machine by itself: a training natively and through the engine, over links made there; the reference
engine's small network and, where the machine has a PyTorch and the engine for it, ResNet-50."""

from __future__ import annotations

from validation.measures.remoting import plan_torch
from validation.measures.remoting.train import MadeLink
from validation.model import Found, Measurement, Param
from validation.plan.request import Part, Request

KIND = "remoting-train"
CRITERIA = ("rm.ratio", "rm.model", "rm.same")
RATES_GBPS = (1.0, 10.0, 25.0)
"""25 Gbit/s is what copies of a process reach on common servers; a link faster than the programs at its ends shows
nothing of itself."""
DELAYS_US = (0.0, 50.0, 500.0)
"""Each way: neighbours in a rack, a hall with slow switches, another building. VMware advises 50 us at most."""
QUICK = ((10.0, 0.0), (10.0, 500.0))
#: Numbers of an image, width, steps, turns, batches; of suite remoting in a pool, with fewer turns for ten links.
Sizes = tuple[int, int, int, int, tuple[str, ...]]
REAL: Sizes = (1024, 8192, 40, 2, ("8", "32", "128"))
EMULATED: Sizes = (256, 32, 24, 2, ("8", "32", "128"))
JOB_S = 6.0  # only an estimate of the plan


def plan(request: Request, found: Found) -> Part:
    """One measurement for each link, one after the other: each has the GPU to itself, and processors."""
    part = Part()
    every = tuple(c.id for c in request.criteria if c.suite == "remoting")
    served = tuple(c for c in CRITERIA if c in request.serving(KIND))
    why = _lacking(found)
    if why or not served:
        part.leave_out(f"remoting on one machine: {why or 'none of its criteria is asked for'}", *every)
        part.excused = True
        return part
    if found.link_trouble:
        part.leave_out(
            "links between network namespaces, whose rate is the kernel's; a relay on loopback makes rate and delay "
            f"instead, which takes processor time: {found.link_trouble}"
        )
    each = links(found, bool(request.options.get("quick")))
    part.rounds = [[_one(request, found, link, served)] for link in each]
    by_torch = tuple(c for c in served if c not in plan_torch.NOT_BY_TORCH)
    if found.torch_engine and by_torch:
        part.rounds += [[_by_torch(request, found, link, by_torch)] for link in each]
    elif by_torch:
        part.leave_out(f"networks by PyTorch over these links: {found.torch_engine_trouble or 'it was not looked for'}")
    part.leave_out(
        "one machine by itself: what takes a pool, its leases and a second machine",
        *(c for c in every if c not in served),
    )
    return part


def _lacking(found: Found) -> str:
    if not found.gpus:
        return "it has no GPU"
    if found.gpu_trouble:
        return found.gpu_trouble
    return "" if found.engine else f"no engine: {found.engine_trouble or 'it was not looked for'}"


def links(found: Found, quick: bool = False) -> list[MadeLink]:
    """The loopback as it is, and each rate with each delay."""
    rate_by = "relay" if found.link_trouble else "tbf"
    delay_by = "relay" if found.link_trouble else found.delay_by
    each = QUICK if quick else tuple((rate, delay) for rate in RATES_GBPS for delay in DELAYS_US)
    shaped = [{"gbps": r, "delay_us": d, "rate_by": rate_by, "delay_by": delay_by if d else ""} for r, d in each]
    bare = {"gbps": 0.0, "delay_us": 0.0, "rate_by": "", "delay_by": ""}
    return [MadeLink.model_validate(one) for one in (bare, *shaped)]


def _one(request: Request, found: Found, link: MadeLink, criteria: tuple[str, ...]) -> Measurement:
    quick = bool(request.options.get("quick"))
    inputs, hidden, steps, turns, batches = EMULATED if found.emulated else REAL
    batches = (batches[0], batches[-1]) if quick else batches
    turns = 1 if quick else turns
    node = request.topology.nodes[0].name
    params: dict[str, Param] = {"server": node, "batches": batches, "turns": turns, "steps": steps}
    params |= {"inputs": inputs, "hidden": hidden, "engine": found.engine, **link.model_dump()}
    if request.options.get("anyway"):
        params["anyway"] = True
    estimated = 2 * turns * len(batches) * JOB_S
    return _measured(node, link.name, params, criteria, estimated)


def _by_torch(request: Request, found: Found, link: MadeLink, criteria: tuple[str, ...]) -> Measurement:
    """The documents' network with their batches; on processors a small one."""
    quick = bool(request.options.get("quick"))
    size = (plan_torch.VIRTUAL if found.emulated else plan_torch.REAL)[plan_torch.MAIN]
    steps, every, turns = plan_torch.TRAIN_VIRTUAL if found.emulated else plan_torch.TRAIN_REAL
    batches, turns = ((size.batches[0], size.batches[-1]), 1) if quick else (size.batches, turns)
    node = request.topology.nodes[0].name
    params: dict[str, Param] = {"server": node, "batches": batches, "turns": turns, "steps": steps}
    params |= plan_torch.sized(plan_torch.MAIN, size, every)
    params |= {"engine": found.engine, "torch_engine": found.torch_engine, "python": found.torch_python}
    params |= link.model_dump()
    if request.options.get("anyway"):
        params["anyway"] = True
    estimated = 2 * turns * (plan_torch.PROCESS_S + len(batches) * 0.1 * steps)
    return _measured(node, f"{link.name}.{plan_torch.MAIN}", params, criteria, estimated)


def _measured(
    node: str, label: str, params: dict[str, Param], criteria: tuple[str, ...], estimated: float
) -> Measurement:
    return Measurement(
        id=f"{KIND}.{node}.{label}",
        suite="remoting",
        kind=KIND,
        nodes=(node,),
        params=params,
        criteria=criteria,
        estimated_s=round(estimated, 1),
        timeout_s=round(5 * estimated + 240, 1),
    )
