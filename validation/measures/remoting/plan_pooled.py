"""The jobs of two departments that are run siloed and pooled: what each asks for, when, and what it computes.

Department A has its burst at first, department B its own a while later, when A's would be over on twice as many GPUs.
Most jobs take a whole GPU, some half of one. Each step takes at least `pace_ms`, as of a program that waits for its
data: GPUs without a pool are used for 5 to 20 % of their time (denneman.utilisation). Where a site has the engine
torch, three of the eight trainings are of networks of the documents by PyTorch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from validation.measures.remoting import plan_torch
from validation.measures.remoting.remoting_pooled_probe import ARRANGEMENTS, INFER, TRAIN, Job
from validation.model import Measurement, Node, Param
from validation.plan.request import Part, Request

GPUS = 2  # of each server that take part, of a server with one GPU that one
CRITERION = "rm.pooled"
START_S = 8.0  # a lease, and the program before its first step


class Sizes(NamedTuple):
    """How much each job does. later_s: after A's burst B's begins. inputs, hidden: of the small network."""

    later_s: float
    steps: int
    pace_ms: int
    inputs: int
    hidden: int
    torch_steps: int
    torch_batch: int
    torch_every: int


REAL = Sizes(40.0, 1000, 20, 1024, 8192, 401, 32, 10)
VIRTUAL = Sizes(12.0, 80, 50, 64, 32, 41, 2, 4)
#: Department, whether its burst is the later one, part of a GPU, small network's work, images of a step; and the
#: network that PyTorch trains in its place, "" for none.
DECLARED = (
    ("A", False, "1", TRAIN, 32, ""),
    ("A", False, "1", TRAIN, 64, "resnet50"),
    ("A", False, "1", TRAIN, 32, ""),
    ("A", False, "1", TRAIN, 64, "vgg16"),
    ("A", False, "1/2", TRAIN, 8, ""),
    ("A", False, "1/2", INFER, 1, ""),
    ("B", True, "1", TRAIN, 32, "resnet50"),
    ("B", True, "1", TRAIN, 64, ""),
    ("B", True, "1/2", TRAIN, 8, ""),
    ("B", True, "1/2", INFER, 1, ""),
)


def jobs(virtual: bool, torch: bool) -> list[Job]:
    """All of them, by their names."""
    sizes, networks = (VIRTUAL, plan_torch.VIRTUAL) if virtual else (REAL, plan_torch.REAL)
    made: list[Job] = []
    for department, later, part, work, batch, network in DECLARED:
        name = f"{department}{1 + sum(job.department == department for job in made)}"
        more: dict[str, Any] = {"program": work, "batch": batch, "steps": sizes.steps}
        more |= {"inputs": sizes.inputs, "hidden": sizes.hidden}
        if torch and network:
            size = networks[network]
            more = {"program": network, "batch": sizes.torch_batch, "steps": sizes.torch_steps}
            more |= {"side_px": size.side, "thin": size.thin, "every": sizes.torch_every}
        at_s = sizes.later_s if later else 0.0
        made.append(Job(name, department, at_s, part, pace_ms=sizes.pace_ms, **more))
    return made


def add(request: Request, part: Part, client: Node, servers: list[Node]) -> None:
    """From one client, on the first two servers; left out where there is only one."""
    criteria = request.serving("remoting-pooled")
    if not criteria:
        return
    if len(servers) < 2:
        part.leave_out("remoting: no siloed and pooled jobs: there is only one GPU server", CRITERION)
        return
    nodes = (client, *servers[:2])
    planned = jobs(any(node.virtual for node in nodes), all(node.torch_engine for node in nodes))
    gpus = max(1, min(GPUS, *(node.gpus or node.slots for node in servers[:2])))
    params: dict[str, Param] = {
        "servers": tuple(node.name for node in servers[:2]),
        "gpus": gpus,
        "jobs": tuple(job.words for job in planned),
    }
    # the longer arrangement has each department's jobs one after the other on its own GPUs
    each_s = [START_S + job.steps * job.pace_ms / 1000 for job in planned if job.department == "A"]
    estimated = START_S + len(ARRANGEMENTS) * sum(each_s) / gpus
    measurement = Measurement(
        id=f"remoting-pooled.{client.name}",
        suite="remoting",
        kind="remoting-pooled",
        nodes=tuple(node.name for node in nodes),
        params=params,
        criteria=criteria,
        estimated_s=round(estimated, 1),
        timeout_s=round(5 * estimated + 240, 1),
    )
    part.rounds.append([measurement])
