"""What holds a lease's containers to its lease: processes, memory and processors, of each and of all together.

Each container is held by Docker. All of a lease together are held by a slice of systemd's, where Docker leaves control
groups to systemd (its default with cgroup v2); elsewhere each by itself alone.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from toolkit.lease import LeaseError
from toolkit.lease.instance_record import Instance

#: Processes and threads for each GPU of the lease.
TASKS = 4096
MIB = 1 << 20
#: Where the driver keeps what it has compiled, and which part of its memory a container may have for that.
CACHE, CACHE_PART, MOST_CACHE_MIB = "/run/elastic-ai-cache", 8, 1024
Docker = Callable[..., "subprocess.CompletedProcess[str]"]


def slice_of(job: str) -> str:
    """The slice of a lease's containers."""
    return f"elastic_ai_lease-{job}.slice"


def _memory_mib(instance: Instance, cpus: int) -> int:
    """The job's memory; where Slurm told none, the share of the server's that its processors are."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    share = whole * cpus // max(os.cpu_count() or 1, 1)
    return instance.job_memory_mib or max(share, 64)


def _systemctl(*words: str) -> bool:
    try:
        done = subprocess.run(["systemctl", *words], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _together(job: str, memory_mib: int, tasks: int, cpus: int, docker: Docker) -> list[str]:
    """docker's option for the slice; none where Docker makes control groups itself. LeaseError where the slice cannot
    be made: then nothing would hold them."""
    if docker("info", "--format", "{{.CgroupDriver}}").stdout.strip() != "systemd":
        return []
    limits = (f"MemoryMax={memory_mib}M", "MemorySwapMax=0", f"TasksMax={tasks}", f"CPUQuota={100 * cpus}%")
    name = slice_of(job)
    if not (_systemctl("set-property", "--runtime", name, *limits) and _systemctl("start", name)):
        raise LeaseError(f"systemd does not make {name}, which holds the containers of the lease to its memory")
    return [f"--cgroup-parent={name}"]


def words(instance: Instance, docker: Docker) -> tuple[list[str], dict[str, str]]:
    """docker's options, and variables for the driver. Who asks from outside of the lease's job has no more of them than
    the job."""
    here = sorted(os.sched_getaffinity(0))
    cpus = min(instance.job_cpus or len(here), os.cpu_count() or 1)
    memory_mib, tasks = _memory_mib(instance, cpus), TASKS * len(instance.devices)
    found = [f"--memory={memory_mib}m", f"--memory-swap={memory_mib}m", f"--pids-limit={tasks}", f"--cpus={cpus}"]
    found += [f"--cpuset-cpus={','.join(map(str, here))}"] if len(here) <= cpus else []
    cache_mib = min(memory_mib // CACHE_PART, MOST_CACHE_MIB)
    found += ["--ulimit=core=0", f"--tmpfs={CACHE}:rw,nosuid,nodev,size={cache_mib}m,mode=1777"]
    found += _together(instance.job, memory_mib, tasks, cpus, docker)
    return found, {"CUDA_CACHE_PATH": f"{CACHE}/ComputeCache", "CUDA_CACHE_MAXSIZE": str(cache_mib * MIB * 3 // 4)}


def remove(job: str) -> None:
    """The slice, with whatever is still in it, and its limits."""
    name = slice_of(job)
    if _systemctl("is-active", "--quiet", name):
        _systemctl("stop", name)
        _systemctl("revert", name)
