"""The short training job, by itself and in several ways in turns."""

from __future__ import annotations

from typing import Any

from validation.kinds.record import FIRST, Kind, names, network
from validation.measures.training import parse as training_parse
from validation.measures.training import tf_cnn_benchmarks, turns
from validation.model import Call, Found, Job, Measurement, Topology

ASKED = ("model", "precision", "device", "framework", "data")
"""What a plan asks for of a training; that of an older release has not all of it."""


def _here(m: Measurement, found: Found) -> Job:
    params: dict[str, Any] = {
        **{key: m.params[key] for key in ("ranks", "warmup", "steps", "batch")},
        **{key: m.params[key] for key in ASKED if key in m.params},
        "hosts": [f"localhost:{m.params['ranks_per_node']}"],
        "networks": [],
        "enter": "",
        "launcher": "torchrun",
        "python": found.torch_python,
        "time_limit_s": max(1, int(m.timeout_s) - 5),
        **_turns(m),
    }
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params=params))


def _turns(m: Measurement) -> dict[str, Any]:
    return {"ways": list(names(m, "ways")), "turns": m.params["turns"]} if "ways" in m.params else {}


def job(m: Measurement, topology: Topology) -> Job:
    """Launched on the first node of the measurement, which must stand in the fabric to talk to the ranks there.

    One machine by itself has neither training container nor launcher: torch's own, with the torch that was found.
    """
    if topology.here is not None:
        return _here(m, topology.here)
    hosts = [topology.node(name) for name in names(m, "hosts")]
    launcher = topology.node(m.nodes[0])
    if not launcher.ports:
        launcher = hosts[0]
    params: dict[str, Any] = {
        **{key: m.params[key] for key in ("ranks", "warmup", "steps", "batch")},
        **{key: m.params[key] for key in ASKED if key in m.params},
        "hosts": [f"{host.ports[0].address}:{m.params['ranks_per_node']}" for host in hosts],
        "transport": str(m.params.get("transport", "tcp")),
        "ends": [f"{host.ports[0].interface}@{host.ports[0].address}" for host in hosts],
        "networks": list(dict.fromkeys(network(node) for node in (launcher, *hosts))),
        "shared_cores": any(node.virtual for node in hosts),
        # mpirun ends its ranks in good order some seconds before the supervisor would kill it
        "time_limit_s": max(1, int(m.timeout_s) - 5),
        **_turns(m),
    }
    return Job(node=launcher.name, probe=Call(probe=m.kind, params=params))


def _tf_job(m: Measurement, topology: Topology) -> Job:
    """Launched as a training is; with the operator's program."""
    base = job(m, topology)
    given = {key: value for key, value in base.probe.params.items() if key != "framework"}
    return Job(node=base.node, probe=Call(probe=m.kind, params={**given, "program": m.params["program"]}))


KINDS = (
    Kind(
        name="training-short",
        title="Short distributed training",
        measures="Trains a network for 100 steps on one rank, on one node and across nodes, and measures images per "
        "second.",
        tool="Horovod by mpirun or torch by torchrun, in the training container",
        more="explanation/measuring/training.md",
        job=job,
        parse=training_parse.parse,
        headline="images_per_s",
        by_daemon=True,
    ),
    Kind(
        name="tf-cnn-benchmarks",
        title="tf_cnn_benchmarks",
        measures="Trains with the program of the published figures, where the operator provides it.",
        tool="tf_cnn_benchmarks in the training container",
        more="explanation/measuring/training.md",
        job=_tf_job,
        parse=tf_cnn_benchmarks.parse,
        headline="images_per_s",
        by_daemon=True,
    ),
    Kind(
        name="training-turns",
        title="Short training in several ways, in turns",
        measures="Runs the short training in two or more ways by turns, so that the time of day does not decide.",
        tool="the programs of the short training",
        more="explanation/measuring/training.md",
        job=job,
        parse=turns.parse,
        headline=FIRST,
        by_daemon=True,
    ),
)
