"""What TensorFlow trains where remoting is measured by the engine tensorflow: a load as that of tf_cnn_benchmarks, the
second framework of rm.ratio. Two networks of the documents with their sizes and batches on GPUs; on processors small.
"""

from __future__ import annotations

from validation.measures.remoting import plan_torch
from validation.measures.remoting.plan_torch import Size
from validation.measures.remoting.remoting_train_probe import VERBS
from validation.model import Measurement, Node
from validation.plan.request import Request

FRAMEWORK = "tensorflow"
REAL = {"alexnet": plan_torch.REAL["alexnet"], "resnet50": plan_torch.REAL["resnet50"]}
VIRTUAL = {"alexnet": Size(63, 8, ("4", "16")), "resnet50": Size(32, 8, ("2", "8"))}
#: On a rehearsal's further servers: what it proves there is that they compute the same.
SMALL = "alexnet"
#: TensorFlow traces a network's step anew for each batch size: ResNet-50's took 7 to 15 s on a busy processor.
TRACES_S = 10.0


def trainings(request: Request, client: Node, server: Node, first: bool) -> list[Measurement]:
    """Natively and through the engine; first: the pool's first server."""
    if not (client.tensorflow_engine and server.tensorflow_engine) or server.remoting_transport == VERBS:
        return []  # TensorFlow's own connections are TCP, and a pool of verbs gives none
    virtual = client.virtual or server.virtual
    _, every, _ = plan_torch.TRAIN_VIRTUAL if virtual else plan_torch.TRAIN_REAL
    made = []
    for name, size in (VIRTUAL if virtual else REAL).items():
        if first or not virtual or name == SMALL:
            load = plan_torch.sized(name, size, every, ("--framework", FRAMEWORK))
            label = f"{name}.{FRAMEWORK}"
            made.append(plan_torch.training(request, client, server, load, size.batches, label, TRACES_S))
    return [m for m in made if m.criteria]
