"""What a job trains, and by what, as its plan says: what jobs are compared by, and how they are named."""

from __future__ import annotations

from validation.model import Measurement
from validation.probes.train_networks import NETWORKS, SMALL
from validation.probes.train_trouble import NO_MPIRUN as NO_MPIRUN

TENSORFLOW = "tensorflow"


def title_of(model: str) -> str:
    """What reports call a network; "" of one that the training program does not know."""
    return NETWORKS[model].title if model in NETWORKS else ""


def config_of(m: Measurement) -> tuple[str, ...]:
    """What a job trains, and by what: network, batch, precision, framework ("" for what the image has). Jobs of one
    scale against each other, others do not.
    """
    older = (("model", SMALL), ("batch", ""), ("precision", "fp32"), ("framework", ""))
    return tuple(str(m.params.get(key, value)) for key, value in older)


def words_of(m: Measurement) -> str:
    """`ResNet-50, batch 128, fp16`, with `, TensorFlow` where that trains; "" of torch's small network, which older
    releases train.
    """
    model, framework = config_of(m)[0], config_of(m)[3]
    if model not in NETWORKS or (model == SMALL and framework != TENSORFLOW):
        return ""
    return f"{NETWORKS[model].title}, {conditions_of(m)}"


def conditions_of(m: Measurement) -> str:
    """`batch 128, fp16`, with `, TensorFlow` where that trains."""
    _, batch, precision, framework = config_of(m)
    return f"batch {batch}, {precision}" + (", TensorFlow" if framework == TENSORFLOW else "")
