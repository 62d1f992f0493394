"""Copies between the host memory H and all GPUs of this node, and between these, by the CUDA driver API alone.

For each GPU: from and to pinned and pageable host memory, both directions at once, inside the GPU; for each ordered
pair of GPUs: with peer access and without, one way at a time, and several at once (gpu_together.py). Copies are timed
by events of the GPU and by the clock, short ones of 1 MiB or more up to sixteen between two events, and their data are
verified. Latencies are those of 4 bytes on a stream, from the call until the stream is done, by the clock: about 1 us
of them is Python's. Beside them are those of a synchronisation with nothing to wait for and of an empty kernel. Each
GPU works for `warm_s` first, so that its clocks are up, and the process runs on the processors of the GPU's NUMA node,
where its host memory therefore is. What each GPU was doing during its turn is seen from beside (gpu_watch.py).

`stdout`: every single time, as JSON; parsers make the figures. A call that fails costs its own cell, and is said there.
A GPU that does not let itself be taken costs its own cells, too, and so does one that somebody works on, unless
`anyway`; the others are measured. Nothing stays on a GPU, for all of it is the process's.
"""

from __future__ import annotations

import json
from typing import Any

from validation.nvml import Gpu, NoNvml, Nvml, NvmlError
from validation.probes import ProbeDoc, nvlinks
from validation.probes.cuda import HELD, Cuda, CudaError, NoDriver
from validation.probes.gpu_bench import Asked, Bench
from validation.probes.gpu_host import beside, hidden, refusal
from validation.probes.gpu_spoilt import Spoilt, again
from validation.probes.gpu_watch import Sampler
from validation.probes.tool import Ran, document

__all__ = ["Asked", "bench", "links", "probe", "refusals"]


def refusals(gpus: list[Gpu], anyway: bool) -> dict[str, str]:
    """Why GPUs are not to be measured, by UUID."""
    said = {} if anyway else {gpu.uuid: refusal(gpu) for gpu in gpus}
    return {uuid: why for uuid, why in said.items() if why}


def bench(nvml: Nvml, asked: Asked) -> tuple[Bench, list[Gpu], list[str]]:
    """All that can be taken, the GPUs that answer NVML, and what is wrong with those that do not.

    CudaError, with all reasons, where none can be.
    """
    gpus, silent = nvml.answering()
    refused = refusals(gpus, asked.anyway)
    if gpus and len(refused) == len(gpus):
        raise CudaError("; ".join([*refused.values(), *silent]), HELD)
    others = {gpu.uuid: beside(gpu) for gpu in gpus}  # before this process is there itself
    cuda = Cuda()
    mig = any((gpu.said("MigMode") or [0])[0] for gpu in gpus)
    if why := hidden(cuda.count(), len(gpus), asked.gpus, mig):
        raise CudaError(why)
    return Bench(cuda, asked, refused, others), gpus, silent


def links() -> tuple[list[dict[str, Any]] | None, str]:
    """NVLinks of the GPUs as NvGpu, or why nobody knows."""
    try:
        return nvlinks.collect()["gpus"], ""
    except (NvmlError, AttributeError) as fault:  # a binding without one of the structures
        return None, str(fault)


def probe(args: Asked) -> ProbeDoc:
    """All copies of this node's GPUs."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        ran, facts = Ran(["gpu-copies"], 0, "", ""), {"driver": "", "emulated": False, "gpus": 0}
        try:
            with Nvml() as nvml:
                facts |= {"driver": nvml.driver(), "emulated": nvml.emulated}
                taken, gpus, silent = bench(nvml, args)
                try:
                    with Sampler() as sampler:
                        sampler.now()
                        report = taken.run({gpu.uuid: gpu for gpu in gpus}, sampler.now)
                    report |= {"watch": sampler.document(), "silent": silent}
                finally:
                    taken.close()
        except Spoilt as fault:
            return again("gpu-copies", args, fault)
        except (CudaError, NvmlError) as fault:
            if args.gpus == 0 and isinstance(fault, (NoDriver, NoNvml)):  # nobody says that there is one
                return ran._replace(stdout=json.dumps({"devices": [], "why": str(fault)})), facts, None
            return ran, facts, str(fault)
        known, unread = links()
        report |= {"nvlink": known, "nvlink_unread": unread}
        facts["gpus"] = len(report["devices"])
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("gpu-copies", "probes", measure, lambda ran: _version(ran.stdout))


def _version(stdout: str) -> str:
    """The driver API's version, "12.4"; "" where nothing was measured."""
    cuda = json.loads(stdout).get("cuda", 0) if stdout else 0
    return f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "none"
