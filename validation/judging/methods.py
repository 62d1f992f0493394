"""How criteria are judged: every method by its name. Criteria are held against these names when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from validation.judging.acs import judge_acs
from validation.judging.adapters import judge_adapters
from validation.judging.asbuilt import judge_as_built, judge_converged
from validation.judging.baseline import judge_baseline
from validation.judging.burn_in import judge_burn_events, judge_burn_exact, judge_burn_rate
from validation.judging.case import Case
from validation.judging.collectives import judge_collectives
from validation.judging.collectives_path import judge_collectives_path
from validation.judging.collectives_ports import judge_collectives_ports
from validation.judging.collectives_variants import judge_isolated, judge_nvls, judge_rails
from validation.judging.compute import judge_compute
from validation.judging.counts import judge_counts
from validation.judging.dcgm import judge_dcgm
from validation.judging.exact_products import judge_exact_products
from validation.judging.gpu_agree import judge_gpu_agree
from validation.judging.gpu_container import judge_gpu_container
from validation.judging.gpu_copies import (
    judge_gpu_calls,
    judge_gpu_host,
    judge_gpu_local,
    judge_gpu_matrix,
    judge_gpu_memory,
)
from validation.judging.gpu_health import judge_gpu_health
from validation.judging.gpu_load import judge_gpu_affinity, judge_gpu_all
from validation.judging.gpu_pairs import (
    judge_gpu_pair_latency,
    judge_gpu_pairs,
    judge_gpu_remote,
    judge_gpu_uniform,
)
from validation.judging.gpu_watch import judge_gpu_watch
from validation.judging.gpudirect import judge_gpudirect
from validation.judging.gpulib import judge_gpulib
from validation.judging.hardware import judge_numa, judge_pcie
from validation.judging.ib_fabric import judge_ib_fabric
from validation.judging.inventory import judge_bom, judge_stack
from validation.judging.mtu import judge_mtu
from validation.judging.ncclenv import judge_library_env
from validation.judging.node_state import judge_ports, judge_state
from validation.judging.nvfabric import judge_nvfabric
from validation.judging.nvlink import judge_nvlink
from validation.judging.rdma import judge_rdma, judge_works
from validation.judging.rdma_gpu import judge_rdma_gpu
from validation.judging.rdma_ports import judge_lossless, judge_memlock, judge_rdma_port
from validation.judging.remoting_infer import judge_remote_infer
from validation.judging.remoting_model import judge_remote_model
from validation.judging.remoting_move import judge_remote_move
from validation.judging.remoting_neighbours import judge_remote_noise
from validation.judging.remoting_shares import judge_remote_shares
from validation.judging.remoting_train import judge_remote_batch, judge_remote_ratio
from validation.judging.remoting_worlds import judge_remote_layouts, judge_remote_scale
from validation.judging.scaling import judge_scaling
from validation.judging.secver import judge_security_floors
from validation.judging.soak_fabric import judge_soak_fabric
from validation.judging.spread import judge_spread
from validation.judging.switch_load import judge_all_to_all, judge_incast
from validation.judging.tcp_loss import judge_tcp_loss
from validation.judging.training import judge_hours, judge_rate
from validation.judging.training_long import judge_long
from validation.judging.training_path import judge_path
from validation.judging.training_turns import (
    judge_cores,
    judge_gpudirect_turns,
    judge_input,
    judge_layouts,
    judge_over_tcp,
    judge_twin,
    judge_worlds,
)
from validation.judging.training_watch import judge_training_watch
from validation.judging.tuning import judge_tuning
from validation.judging.values import judge_values
from validation.judging.xid import judge_xid
from validation.model import Judgement, VerdictDoc
from validation.rules.criterion import Criterion


@dataclass(frozen=True)
class Method:
    """From the results that serve a criterion to its judgements.

    `about`: what it does. `figures`: what it judges are figures that may come out otherwise the next time. `counts`:
    what the coverage counts, where that is not the criterion's scope.
    """

    judge: Callable[[Case, Criterion], Sequence[Judgement]]
    about: str
    figures: bool = False
    counts: str = ""


METHODS = {
    "value": Method(judge_values, "the median of the samples of `metric` against the bound", figures=True),
    "spread": Method(
        judge_values, "relative half-width of the 95 % interval of the median against the bound", figures=True
    ),
    "scaling": Method(judge_scaling, "measured(N) / (N x measured(1))", figures=True, counts="jobs"),
    "rdma": Method(
        judge_rdma,
        "RDMA figures of a pair by operation against the fabric profile's bounds",
        figures=True,
        counts="results",
    ),
    "rdma-gpu": Method(
        judge_rdma_gpu, "RDMA between the memory of GPUs of a pair's nodes, beside that of hosts", counts="results"
    ),
    "count": Method(judge_counts, "the largest sample, of which 0 is one too, against the bound"),
    "works": Method(judge_works, "every measurement of a pair of ports did what it should"),
    "rate": Method(
        judge_rate,
        "images/s over all steps against 0.95 of what is published of the machine, else of the peers",
        True,
        "jobs",
    ),
    "hours": Method(judge_hours, "what 90 epochs take at the measured rate", True, "jobs"),
    "long": Method(judge_long, "accuracy on the training data after the whole long test, by model", counts="jobs"),
    "path": Method(judge_path, "what MPI and NCCL say that they send with between nodes", counts="jobs"),
    "layouts": Method(judge_layouts, "one world on several nodes over the same on one, in turns", True, "jobs"),
    "worlds": Method(judge_worlds, "larger worlds over one rank, in turns", True, "jobs"),
    "twin": Method(judge_twin, "torchrun over mpirun, in turns", counts="jobs"),
    "over-tcp": Method(judge_over_tcp, "RDMA over TCP in turns, each proved by the logs", True, "jobs"),
    "gdr": Method(judge_gpudirect_turns, "with GPUDirect over without, in turns, proved by NCCL's log", True, "jobs"),
    "input": Method(judge_input, "images of files over synthetic ones, in turns", True, "jobs"),
    "cores": Method(judge_cores, "images/s over processors of each rank, and the knee", True, "jobs"),
    "collectives": Method(
        judge_collectives,
        "bus bandwidth of collective operations against published floors and what links and ports allow",
        figures=True,
        counts="jobs",
    ),
    "collectives-path": Method(
        judge_collectives_path, "what NCCL says that it sends with, inside a node and between nodes", counts="jobs"
    ),
    "collectives-ports": Method(
        judge_collectives_ports, "bytes that each node's ports carried during collective operations", counts="jobs"
    ),
    "nccl-nvls": Method(judge_nvls, "all-reduce with NVLS and without it, traced in NCCL's log", True, "jobs"),
    "nccl-isolated": Method(judge_isolated, "all-reduce over the network alone, proved by NCCL's log", True, "jobs"),
    "nccl-rails": Method(judge_rails, "all-reduce over each rail alone against the other rails", True, "rails"),
    "burn-fabric": Method(
        judge_soak_fabric, "sessions and link counters of a port's traffic beside the burn-in", counts="ports"
    ),
    "incast": Method(judge_incast, "what a port receives from several at once, and how they share it", True, "ports"),
    "all-to-all": Method(judge_all_to_all, "what each port receives when all send to all", True, "sets of ports"),
    "bom": Method(judge_bom, "facts against the inventory's bom"),
    "stack": Method(judge_stack, "facts against the inventory's stack, and between the nodes of a group"),
    "as-built": Method(judge_as_built, "the as-built checks of a node, as the plan lists them"),
    "converged": Method(judge_converged, "what site.yml in check mode would change on a node"),
    "pcie": Method(judge_pcie, "links of cards against what card and slot are rated at, as the node's sysfs says"),
    "numa": Method(judge_numa, "NUMA nodes of GPUs against those of fabric ports, as the node's sysfs says"),
    "adapters": Method(judge_adapters, "firmware and settings of a model's adapters, against each other"),
    "nvlink": Method(judge_nvlink, "NVLinks of each GPU that are up, as NVML says"),
    "nvfabric": Method(judge_nvfabric, "Fabric Manager, GPUs' registration and NVLink rates, as the node and NVML say"),
    "acs": Method(judge_acs, "Access Control Services of the ports above cards, as their configuration space says"),
    "gpulib": Method(judge_gpulib, "the driver's libraries, loaded by name, against the kernel module that is loaded"),
    "gpudirect": Method(judge_gpudirect, "kernel, its options and modules that GPUDirect RDMA needs"),
    "gpu-container": Method(judge_gpu_container, "GPUs in a container before and after a reload of systemd's units"),
    "mtu": Method(judge_mtu, "value, and on RDMA fabrics the active MTU of the ports"),
    "rdma-port": Method(judge_rdma_port, "what RDMA ports say of their state, twice, and their counters"),
    "lossless": Method(judge_lossless, "what RoCE ports say of their settings, and their counters"),
    "memlock": Method(judge_memlock, "how much memory a new session may lock"),
    "gpu-health": Method(judge_gpu_health, "what GPUs say of errors, repairs, throttling, link and modes, twice"),
    "security-floors": Method(judge_security_floors, "versions in the facts against the criterion's security floors"),
    "xid": Method(judge_xid, "Xids of the kernel log that came up between two readings"),
    "library-env": Method(judge_library_env, "what is set for NCCL and UCX, against settings that nobody should leave"),
    "tuning": Method(judge_tuning, "kernel, idle states, IOMMU and locked memory, against what role tuning set"),
    "state": Method(judge_state, "time zone, name servers, disks and other programs of each node, beside the others'"),
    "ports": Method(
        judge_ports, "addresses of each fabric port beside those of all nodes, and how often its link went"
    ),
    "tcp-loss": Method(judge_tcp_loss, "segments that TCP sent again, as a share of those that arrived"),
    "ib-fabric": Method(judge_ib_fabric, "what the InfiniBand fabric says of itself, before and after the load"),
    "compute": Method(
        judge_compute,
        "rates of each GPU against the others of its model and published ones",
        figures=True,
        counts="devices",
    ),
    "exact-products": Method(judge_exact_products, "digests of exact matrix products of each device", counts="devices"),
    "fleet": Method(judge_spread, "rates of each GPU against the median of its model in the run", True, "devices"),
    "gpu-host": Method(
        judge_gpu_host, "copies between host memory and each GPU against its PCI Express link", True, "directions"
    ),
    "gpu-local": Method(judge_gpu_local, "latency inside each GPU against the bound", True, "GPUs"),
    "gpu-calls": Method(
        judge_gpu_calls, "latency of a synchronisation and an empty kernel on each GPU", True, "latencies"
    ),
    "gpu-memory": Method(judge_gpu_memory, "copies inside each GPU against its data sheet", True, "GPUs"),
    "gpu-pairs": Method(judge_gpu_pairs, "copies of each pair of GPUs against the link between them", True, "pairs"),
    "gpu-pair-latency": Method(judge_gpu_pair_latency, "latency of each pair of GPUs", True, "pairs"),
    "gpu-uniform": Method(judge_gpu_uniform, "variation of alike GPUs and pairs over all nodes", True, "groups"),
    "gpu-agree": Method(judge_gpu_agree, "our copies beside those of NVIDIA's tools on the same node", True, "tools"),
    "gpu-affinity": Method(judge_gpu_affinity, "host memory of each GPU's NUMA node beside the farthest", True, "GPUs"),
    "gpu-all": Method(
        judge_gpu_all, "all GPUs of a node at once against the host ports above them", True, "directions"
    ),
    "gpu-remote": Method(judge_gpu_remote, "latency between GPUs of different servers beside that within", True),
    "dcgm": Method(judge_dcgm, "what DCGM's diagnostic says of each of its tests"),
    "burn-exact": Method(
        judge_burn_exact, "comparisons and digests of each device through a burn-in", counts="devices"
    ),
    "burn-events": Method(judge_burn_events, "errors that GPUs and kernel log count, before and after a burn-in"),
    "burn-rate": Method(
        judge_burn_rate, "rate of each device at the end of a burn-in over that at its begin", counts="devices"
    ),
    "remote-ratio": Method(
        judge_remote_ratio, "a training through the engine over the same natively, in turns, by batch", True, "jobs"
    ),
    "remote-batch": Method(
        judge_remote_batch, "whether that ratio falls from a batch size to a larger one, beyond noise", True, "jobs"
    ),
    "remote-shares": Method(
        judge_remote_shares, "trainings on parts of a GPU together over one on all of it, in turns", True, "jobs"
    ),
    "remote-layouts": Method(
        judge_remote_layouts, "a training on GPUs near and far through the engine over natively, in turns", True, "jobs"
    ),
    "remote-scale": Method(
        judge_remote_scale, "a training on more and more GPUs from one client over one GPU, in turns", counts="jobs"
    ),
    "remote-infer": Method(
        judge_remote_infer, "answers of a network natively and through the engine, by batch", counts="batches"
    ),
    "remote-model": Method(
        judge_remote_model, "the ratio predicted from counts and costs of calls over the measured one", counts="batches"
    ),
    "remote-noise": Method(
        judge_remote_noise, "a tenant's training beside a neighbour that does its worst over the same alone"
    ),
    "remote-move": Method(
        judge_remote_move,
        "what must not be where a GPU changes hands under a program that trains, and how long it took",
    ),
    "gpu-watch": Method(
        judge_gpu_watch, "what a sampler beside the measurement saw of each GPU's clocks, power and heat", counts="GPUs"
    ),
    "training-watch": Method(
        judge_training_watch, "what a sampler beside a training saw of each GPU's clocks, power and heat", counts="GPUs"
    ),
    "baseline": Method(
        judge_baseline, "figures of another criterion against what the same subject reached in earlier runs", True
    ),
    "gpu-matrix": Method(judge_gpu_matrix, "each cell of H and all GPUs of a node is there, its data verified"),
}


def figures_of(verdict: VerdictDoc, criteria: Mapping[str, Criterion]) -> Iterator[tuple[str, Judgement]]:
    """Criterion and judgement, of each quantity above zero that has a better side and a bound of the criterion's own:
    what one run can be held against another by.
    """
    for judged in verdict.criteria:
        entry = criteria.get(judged.id)
        if entry is None or entry.bound.since is not None or entry.direction not in ("higher", "lower"):
            continue
        if METHODS[entry.method].figures and entry.unit:
            yield from ((judged.id, one) for one in judged.judgements if one.value is not None and one.value > 0)
