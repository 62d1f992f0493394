"""The long training."""

from __future__ import annotations

from validation.kinds.record import Kind
from validation.measures.training import kinds as short
from validation.measures.training import long
from validation.model import Call, Job, Measurement, Topology

OWN = ("data", "checkpoints", "epochs", "seed", "checkpoint_steps")


def _job(m: Measurement, topology: Topology) -> Job:
    """The short training's job with another program. The steps of the prediction are the program's own."""
    asked = m.model_copy(update={"params": {**m.params, "warmup": 0, "steps": 0}})
    made = short.job(asked, topology)
    params = {**made.probe.params, **{key: m.params[key] for key in OWN if key in m.params}}
    return Job(node=made.node, probe=Call(probe=m.kind, params=params))


KINDS = (
    Kind(
        name="training-long",
        title="Long distributed training",
        measures="Trains a network to an accuracy, with checkpoints.",
        tool="the programs of the short training",
        more="explanation/measuring/training.md",
        job=_job,
        parse=long.parse,
        headline="images_per_s",
        by_daemon=True,
        once=True,
    ),
)
