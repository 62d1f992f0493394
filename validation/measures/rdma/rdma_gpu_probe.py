"""RDMA bandwidth between the memory of a GPU here and of one at another node, with perftest that was built with CUDA.

Each end takes the GPU that is nearest to its fabric port: most PCI ports above both in common, then the same NUMA node,
then the first by address. The tool is told its ordinal (--use_cuda), and lists which address that is.
Where nvidia_peermem is not loaded, the memory is handed over as DMA-BUF, if this build can (--help has
--use_cuda_dmabuf). An end that has no such tool, GPU or way says so in `no_gpu` and uses host memory, so that the other
end comes to its end, too; nothing is measured then.

Facts beside those of rdma-bandwidth: gpu (ordinal), gpu_address, gpu_name, gpu_memory ("peermem", "dmabuf"), no_gpu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.measures.gpu.gpu_copies_probe import refusals
from validation.measures.rdma import rdma_perftest_probe
from validation.nvml import Nvml, NvmlError
from validation.probes import ProbeDoc, pcie, rdma
from validation.probes.cuda import Cuda, CudaError, Device
from validation.probes.tool import run_tool

SYSFS = Path("/sys")
PEERMEM = ("nvidia_peermem", "nv_peer_mem")  # modules by which adapters reach the memory of GPUs


@dataclass
class Asked(rdma_perftest_probe.Asked):
    """What is asked of either end."""

    kind = "rdma-gpu"
    test = "bw"
    anyway: bool = False  # use a GPU that somebody works on


def nearness(port: dict[str, Any] | None, gpu: dict[str, Any]) -> tuple[int, int, bool]:
    """How near a GPU is to a port, both as pcie.describe has them: the larger, the nearer."""
    if port is None or "above" not in port:
        return 0, 0, False
    above = [{one["address"] for one in card["above"]} for card in (port, gpu)]
    bridge = port["host_bridge"] == gpu["host_bridge"] != ""
    return len(above[0] & above[1]), int(bridge), port["numa"] is not None and port["numa"] == gpu["numa"]


def nearest(interface: str, addresses: Sequence[str], sysfs: Path = SYSFS) -> str:
    """The address of the GPU among these that is nearest to a port; "" where there is none."""
    port, cards = None, {}
    for card in pcie.collect([interface], sysfs):
        if card["what"] == "nic":
            port = card
        else:
            cards[card["address"]] = card
    there = sorted(address for address in addresses if address in cards)
    return max(there, key=lambda address: nearness(port, cards[address]), default="")


def way(help_text: str, sysfs: Path = SYSFS) -> str:
    """How an adapter comes to the memory of a GPU: "peermem", "dmabuf", or "" where it does not."""
    if any((sysfs / "module" / module).is_dir() for module in PEERMEM):
        return "peermem"
    return "dmabuf" if "--use_cuda_dmabuf" in help_text else ""


def choose(args: Asked, sysfs: Path = SYSFS) -> dict[str, Any]:
    """The GPU of this end and how its memory is handed over, or why there is none."""
    tool = rdma_perftest_probe.tool_of(args)
    ran = run_tool([tool, "--help"], timeout_s=rdma_perftest_probe.HELP_TIMEOUT_S)
    if "--use_cuda" not in (said := ran.stdout + ran.stderr):
        return {"no_gpu": f"its {tool} was built without CUDA (--help has no --use_cuda)"}
    if not (how := way(said, sysfs)):
        return {
            "no_gpu": f"neither is nvidia_peermem loaded nor does its {tool} know DMA-BUF (--help has no "
            "--use_cuda_dmabuf)"
        }
    try:
        with Nvml() as nvml:
            gpus, _ = nvml.answering()
            busy = {gpu.address: why for gpu in gpus for why in refusals([gpu], args.anyway).values()}
        cuda = Cuda()
        found = [Device(cuda, ordinal, "only looked at") for ordinal in range(cuda.count())]
    except (CudaError, NvmlError) as fault:
        return {"no_gpu": str(fault)}
    if cuda.emulated:
        return {"no_gpu": "its GPUs are emulated: no adapter reaches their memory"}
    address = nearest(args.interface, [one.address for one in found], sysfs)
    if not address:
        return {"no_gpu": "CUDA shows no GPU that is on the PCI buses"}
    if address in busy:
        return {"no_gpu": busy[address]}
    one = next(device for device in found if device.address == address)
    return {"gpu": one.ordinal, "gpu_address": address, "gpu_name": one.name, "gpu_memory": how}


def options(chosen: dict[str, Any]) -> list[str]:
    """What the tool is told of the GPU."""
    if "gpu" not in chosen:
        return []
    return [f"--use_cuda={chosen['gpu']}", *(["--use_cuda_dmabuf"] if chosen["gpu_memory"] == "dmabuf" else [])]


def measure(args: Asked) -> rdma.Session:
    """One run of the client."""
    try:
        device = rdma_perftest_probe.look(args)
    except rdma.Fault as fault:
        return rdma.failed(rdma_perftest_probe.tool_of(args), fault, rdma_perftest_probe.asked(args))
    chosen = choose(args)
    command = rdma_perftest_probe.command_for(args, device, args.peer)
    command[-1:-1] = options(chosen)
    return rdma.run_on(device, command, {**rdma_perftest_probe.asked(args), **chosen}, {})


def probe(args: Asked) -> ProbeDoc:
    """Measure and report perftest's output with what the device counted meanwhile."""
    return rdma.report(args.kind, rdma_perftest_probe.tool_of(args), lambda: measure(args))
