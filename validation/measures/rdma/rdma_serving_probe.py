"""The serving end of an RDMA measurement. Its facts are half of the proof: what this end's device counted.

Tools that meet over TCP are ready when they listen (the kernel's socket table). With rdma_cm there is no TCP socket:
then the kernel's list of connection ids (`rdma resource show cm_id`) tells, and where there is no such list, that the
tool holds /dev/infiniband/rdma_cm open and has had time to listen there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.measures.rdma import (
    rdma_bandwidth_probe,
    rdma_first_light_probe,
    rdma_gpu_probe,
    rdma_latency_probe,
    rdma_perftest_probe,
    rdma_ucx_probe,
)
from validation.probes import rdma
from validation.probes.tool import finish_tool, run_tool, start_tool

ENDS: dict[str, type[rdma.Ends]] = {
    "rdma-bandwidth": rdma_bandwidth_probe.Asked,
    "rdma-first-light": rdma_first_light_probe.Asked,
    "rdma-gpu": rdma_gpu_probe.Asked,
    "rdma-latency": rdma_latency_probe.Asked,
    "rdma-ucx": rdma_ucx_probe.Asked,
}
LISTEN_TIMEOUT_S = 15.0  # until a tool listens; an emulated machine takes seconds to load libraries
CM_SETTLE_S = 1.0  # from opening rdma_cm to listening, where nothing tells; under emulation it takes up to 0.5 s
CM_DEVICE = "/dev/infiniband/rdma_cm"
Listens = Callable[..., bool]  # (process id, address or None, port)


def _plan(args: rdma.Ends) -> tuple[rdma.Device, list[str], dict[str, str], dict[str, Any]]:
    """Device, command, environment and facts of the server; rdma.Fault where there can be none."""
    if isinstance(args, rdma_first_light_probe.Asked):
        device, facts = rdma_first_light_probe.look(args)
        return device, rdma_first_light_probe.command_for(args, device, None, facts["active_mtu"]), {}, facts
    if isinstance(args, rdma_ucx_probe.Asked):
        device = rdma.look(args.interface, args.address, args.transport)
        return device, rdma_ucx_probe.command_for(args, device, None), rdma_ucx_probe.environment(args, device), {}
    assert isinstance(args, rdma_perftest_probe.Asked)
    device = rdma_perftest_probe.look(args)
    if isinstance(args, rdma_gpu_probe.Asked):
        chosen = rdma_gpu_probe.choose(args)
        return (
            device,
            [*rdma_perftest_probe.command_for(args, device, None), *rdma_gpu_probe.options(chosen)],
            {},
            chosen,
        )
    return device, rdma_perftest_probe.command_for(args, device, None), {}, {}


def cm_listens(pid: int, since: float) -> bool:
    """True when process `pid` listens through rdma_cm. `since`: monotonic time at which it was started."""
    ran = run_tool(["rdma", "resource", "show", "cm_id"], timeout_s=5)
    if ran.returncode == 0 and ran.stdout.strip():
        return any(re.search(rf"\bstate LISTEN\b.*\bpid {pid}\b", line) for line in ran.stdout.splitlines())
    opened = any(_target(link) == CM_DEVICE for link in Path(f"/proc/{pid}/fd").glob("*"))
    return opened and time.monotonic() - since > CM_SETTLE_S


def _target(link: Path) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  # Path.readlink would try to follow what is no path
    except OSError:
        return ""


def _wait(args: rdma.Ends, process: subprocess.Popen[bytes], listens: Listens) -> bool:
    """True as soon as the tool listens."""
    began = time.monotonic()
    while process.poll() is None and time.monotonic() < began + LISTEN_TIMEOUT_S:
        by_cm = isinstance(args, rdma_perftest_probe.Asked) and args.cm == "rdma_cm"
        if cm_listens(process.pid, began) if by_cm else listens(process.pid, None, args.port):
            return True
        time.sleep(0.1 if by_cm else 0.02)
    return False


def serve(tool: str, args: rdma.Ends, listens: Listens) -> rdma.Session:
    """Serve one measurement; prints that it is ready as soon as the tool listens."""
    facts: dict[str, Any] = {"bind": args.address, "port": args.port}
    try:
        device, command, env, more = _plan(args)
    except rdma.Fault as fault:
        return rdma.failed(tool, fault, facts)
    before = rdma.counters(device)
    try:
        process = start_tool(command, {**(env or os.environ), "LC_ALL": "C"})
    except FileNotFoundError:
        return rdma.failed(tool, rdma.Fault("tool-missing", f"{command[0]} is not installed on this node"), facts)
    ready = _wait(args, process, listens)
    if ready:
        print(json.dumps({"ready": True}), flush=True)
    elif process.poll() is None:
        process.kill()
    session = rdma.ended(device, before, finish_tool(command, process), {**facts, **more})
    if not ready and (session.error is None or session.ran.returncode == -signal.SIGKILL):
        words = f"{command[0]} does not listen on port {args.port}"
        return session._replace(error=words, facts={**session.facts, "fault": "tool"})
    return session
