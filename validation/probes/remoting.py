"""What the probes of remoting share: the toolkit's own commands on a client, as its users have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from validation.probes.supervise import die_with_parent
from validation.probes.tool import Ran, last_line, run_tool

COMMAND = "toolkit"
RUN = (COMMAND, "run", "--no-kernels")  # what the probes start copies, and computes nothing
LEASE_TIME = "15m"  # a probe that is killed with power leaves a lease behind for so long at most
FREE_S = 20.0  # for what a lease before has given back
ENDING_S = 240.0  # for a lease that is ending: its server's steps and Epilog, on a busy or an emulated machine
WAIT_S = 120.0  # for free GPUs, and for one request
ASK_S = 60.0  # one question to Slurm
PACKETS = {
    "sent": ("hw_counters/sent_pkts", "counters/port_xmit_packets"),
    "received": ("hw_counters/rcvd_pkts", "counters/port_rcv_packets"),
}


class Unmet(Exception):
    """What a measurement needs is not there, or did not do what it must; one sentence."""


def said(ran: Ran) -> str:
    """The last thing that a command said, short."""
    return (last_line(ran.stderr) or last_line(ran.stdout) or f"exit status {ran.returncode}")[:300]


def ask(*words: str, timeout_s: float = WAIT_S) -> dict[str, Any]:
    """A command of the toolkit with --json; Unmet where it fails."""
    ran = run_tool([COMMAND, *words, "--json"], timeout_s)
    if ran.returncode:
        raise Unmet(f"{COMMAND} {words[0]}: {said(ran)}")
    try:
        found: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        raise Unmet(f"{COMMAND} {words[0]}: printed no JSON document") from None
    return found


def slurm_output(*command: str) -> str:
    """What a command of Slurm's printed, its times as seconds since 1970; Unmet where it fails."""
    ran = run_tool(command, ASK_S, {**os.environ, "SLURM_TIME_FORMAT": "%s"})
    if ran.returncode:
        raise Unmet(f"{command[0]}: {said(ran)}")
    return ran.stdout


def gpus_of(servers: Sequence[str]) -> list[dict[str, Any]]:
    """GPUs of these servers, as `toolkit gpus` knows them."""
    return [gpu for gpu in ask("gpus")["gpus"] if gpu["node"] in servers]


def pool_of(servers: Sequence[str]) -> list[dict[str, Any]]:
    """The same; Unmet where one has none or somebody uses one, which is waited for: what the measurement before has
    given back is free a moment later, or when its server has ended the lease."""
    began = time.monotonic()
    while True:
        gpus = gpus_of(servers)
        for server in servers:
            if not any(gpu["node"] == server for gpu in gpus):
                raise Unmet(f"{server} has no GPUs in the pool")
        used = next((gpu for gpu in gpus if gpu["free"] < 1), None)
        if used is None:
            return gpus
        waited_s = time.monotonic() - began
        if waited_s > (ENDING_S if waited_s > FREE_S and _is_given_back(used) else FREE_S):
            raise Unmet(f"{used['node']}: GPU {used['index']} is not free; the measurement needs the servers to itself")
        time.sleep(1.0)


def _is_given_back(gpu: dict[str, Any]) -> bool:
    """Whether all who use this GPU are leases that are ending."""
    ending = {lease["lease"] for lease in ask("lease", "list", "--all")["leases"] if lease["state"] == "ending"}
    return all(use["lease"] in ending for use in gpu["uses"])


@contextmanager
def leased(*words: str) -> Iterator[dict[str, Any]]:
    """A lease, given back whatever happens."""
    lease = ask("lease", "request", "--time", LEASE_TIME, *words)
    try:
        yield lease
    finally:
        release(int(lease["lease"]))


def release(lease: int) -> None:
    """Give a lease back; also after TERM, when no other tool is started any more."""
    subprocess.run([COMMAND, "lease", "release", str(lease)], capture_output=True, check=False, timeout=WAIT_S)


def port_packets(root: str = "/sys/class/infiniband") -> dict[str, int]:
    """Packets that all RDMA ports of this machine have sent and received so far; Unmet where it has none that counts.

    Soft-RoCE counts them as sent_pkts, adapters as port_xmit_packets.
    """
    found = {}
    for what, names in PACKETS.items():
        files = [file for port in Path(root).glob("*/ports/*") for file in (port / name for name in names)]
        counts = [int(file.read_text(encoding="ascii")) for file in files if file.is_file()]
        if not counts:
            raise Unmet(f"{root} has no port that counts its packets, and the pool's leases go by verbs")
        found[what] = sum(counts)
    return found


def attempt(name: str, *words: str) -> list[str]:
    """The command line of a program of remoting_attempts, as a lease's program."""
    return [sys.executable, "-m", "validation.probes.remoting_attempts", name, *words]


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """A command that runs beside others; it ends with the probe."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        preexec_fn=die_with_parent,
    )


def answer(ran: Ran, what: str) -> dict[str, Any]:
    """The JSON document that a program printed as its last line; Unmet where there is none."""
    for line in reversed(ran.stdout.splitlines()):
        if line.startswith("{"):
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            return found
    raise Unmet(f"{what}: {said(ran)}")


ENGINES = "/opt/elastic-ai/engine"


def engine(name: str = "") -> dict[str, str]:
    """Engine and release on this client, for the record: the site's first one, or the one of that name."""
    for folder in ("current", f"beside/{name}/current"):
        try:
            with open(f"{ENGINES}/{folder}/engine.json", encoding="utf-8") as handle:  # noqa: PTH123
                data = json.load(handle)
        except (OSError, ValueError):
            continue
        if name in ("", data.get("engine")):
            return {"engine": str(data.get("engine", "")), "engine_release": str(data.get("release", ""))}
    return {"engine": "", "engine_release": ""}
