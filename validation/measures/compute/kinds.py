"""What the GPUs of a node compute, and how fast: DeepBench's lists and exact products."""

from __future__ import annotations

from validation.kinds.record import Kind, OnEach, on_node
from validation.measures.compute import rates
from validation.measures.compute.gpu_rates import shapes
from validation.measures.training.training_short_probe import ENTER
from validation.model import Job, Measurement, Node, Param, Topology
from validation.probes.deepbench import LISTS

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
QUICK_PROBLEMS = 12  # of each list
LEAST_S, QUICK_S = 0.02, 0.01
BATCHES = 3
EXACT = 5  # products of each precision, cold, and as many hot


def _params(node: Node) -> dict[str, Param]:
    asked: dict[str, Param] = {"lists": LISTS, "precisions": PRECISIONS, "most": 0, "sustained": shapes()}
    asked |= {"least_s": LEAST_S, "batches": BATCHES, "exact": EXACT}
    # A virtual node sees its host's GPUs on the PCI buses; its few processors take fp32 alone
    return {**asked, "precisions": ("fp32",), "exact": 2, "device": "cpu"} if node.virtual else asked


def _job(m: Measurement, topology: Topology) -> Job:
    """In the node's training container; on one machine by itself with the torch that was found."""
    if topology.here is None:
        return on_node(m, enter=ENTER)
    unusable = {"device": "cpu"} if topology.here.gpu_trouble else {}
    return on_node(m, python=topology.here.torch_python, **unusable)


def _why_not(node: Node, topology: Topology) -> str:
    if topology.here is not None:
        return "" if topology.here.torch else "no torch was found, which computes on the GPUs"
    return "" if "gpu_servers" in node.groups else "no GPU server"


KINDS = (
    Kind(
        name="gpu-compute",
        title="GPU compute",
        measures="Runs DeepBench's matrix products, convolutions and recurrent layers, for training and for "
        "inference, on every GPU at once, and "
        "multiplies matrices whose result is known to the bit.",
        tool="torch of the training container, timed by CUDA events",
        more="explanation/measuring/gpu-compute.md",
        job=_job,
        parse=rates.parse,
        repeat_by="probe",
        on_each=OnEach(
            _params,
            estimated_s=320.0,
            quick={"most": QUICK_PROBLEMS, "least_s": QUICK_S, "exact": 2},
            quick_s=75.0,
            why_not=_why_not,
            virtual_s=20.0,
        ),
    ),
)
