"""One training on this machine's first GPU, natively and through an engine over a link made here, in turns.

A kind remoting-train of one machine by itself: no pool and no lease. Server, link and relay are started here and end
with the probe; the GPU is the first that CUDA shows. With a load (remoting_program) the engine is torch, and where GPUs
are emulated its server and the native program compute on one processor. `stdout`: as that of remoting_train. `facts`:
those of remoting_train, and `link`: gbps, delay_us (each way), rate_by, delay_by.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from validation.measures.remoting import remoting_train_probe
from validation.nvml import Nvml, NvmlError
from validation.probes import PROGRAM_FOLDER, ProbeDoc, remoting, remoting_program
from validation.probes.gpu_host import HELD_BYTES, in_use
from validation.probes.remoting_program import PROGRAM
from validation.probes.shaped_link import FAR, LOOPBACK, NEAR, Link, NoLink, child, join, new_network, relayed
from validation.probes.tool import Ran, document, run_tool

ROOT = Path(__file__).resolve().parents[3]
START_S = 90.0  # a driver that is not kept loaded starts all GPUs of a node for its first program
#: The program beside these probes, installed or not.
TRAIN = (
    sys.executable, "-I", "-c",
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('toolkit.lease.programs.train', run_name='__main__', alter_sys=True)",
    str(ROOT),
)  # fmt: skip


@dataclass
class Asked(remoting_train_probe.Jobs):
    """What is asked of this probe. `server`: the name of this machine."""

    engine: str  # folder with the reference engine's programs, the relay among them
    gbps: float  # of the link, 10^9 bit/s; 0: no limit
    delay_us: float  # each way
    rate_by: Literal["tbf", "relay", ""]
    delay_by: Literal["netem", "relay", ""]
    anyway: bool = False  # also where somebody works on a GPU
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train
    torch_engine: str = ""  # folder with the programs of the engine torch
    python: str = ""  # whose PyTorch both that server and the program have


def token() -> str:
    """A file that only this process has, with a new token: its path for the processes that this one starts."""
    file = os.memfd_create("token")
    os.write(file, secrets.token_hex(24).encode() + b"\n")
    return f"/proc/{os.getpid()}/fd/{file}"


def server_words(args: Asked, emulated: bool) -> list[str]:
    """The engine's server for one GPU."""
    if not args.load:
        return [f"{args.engine}/bin/elastic-ai-refserver"]
    device = ["cpu", "--devices", "1", "--threads", "1"] if emulated else ["cuda"]
    return [args.python, "-I", f"{args.torch_engine}/bin/elastic-ai-torchserver", "--device", *device]


def commands(args: Asked, uuid: str, emulated: bool, reached: str, secret: str) -> dict[str, list[str]]:
    """How the PyTorch program is started each way, without its steps and batches."""
    program = [
        args.python,
        str(PROGRAM_FOLDER / f"{remoting_program.tool_of(args.load)}.py"),
        *args.load,
        "--gpus",
        "1",
    ]
    bare = ["env", "-u", "PYTHONPATH", *(["OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"] if emulated else [])]
    leased = [
        f"ELASTIC_AI_TORCH_SERVERS={reached}",
        f"ELASTIC_AI_TOKEN_FILE={secret}",
        "ELASTIC_AI_TORCH_ONLY_LEASED=1",
    ]
    if emulated:
        leased.append("ELASTIC_AI_GPUS=" + json.dumps([{"uuid": uuid, "emulated": True}]))
    return {
        "native": [*bare, *program, *(["--processor", uuid] if emulated else [])],
        "remote": ["env", *leased, f"PYTHONPATH={args.torch_engine}/python", *program],
    }


@contextmanager
def serving(args: Asked, link: Link, secret: str, emulated: bool) -> Iterator[tuple[str, int]]:
    """Address and port at which the engine's server is reached over the link; NoLink where it is not."""
    read, write = os.pipe()
    words = [*server_words(args, emulated), "--token-file", secret, "--report-fd", str(write)]
    words += ["--bind", "0.0.0.0", "--allow", NEAR] if link.spaces else ["--allow", LOOPBACK]  # noqa: S104 - its own
    not_its_own = ("ELASTIC_AI_SERVERS", "ELASTIC_AI_TORCH")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(not_its_own)}
    try:
        with child(words, link.spaces, pass_fds=[write], env=environment) as server:
            os.close(write)
            write = -1
            port = _listening(read, server.pid)
            if link.spaces:
                join(server.pid, link)
            there = FAR if link.spaces else LOOPBACK
            with relayed(f"{args.engine}/bin/elastic-ai-relay", there, port, link) as reached:
                yield reached
    finally:
        for one in (read, write):
            if one >= 0:
                os.close(one)


def _listening(events: int, pid: int) -> int:
    """The port that the server reports."""
    said, until = b"", time.monotonic() + START_S
    while b"\n" not in said:
        ready, _, _ = select.select([events], [], [], max(0.0, until - time.monotonic()))
        more = os.read(events, 4096) if ready else b""
        if not more:
            raise NoLink(f"the engine's server, process {pid}, did not start")
        said += more
    event = json.loads(said.splitlines()[0])
    if event.get("event") != "listening":
        raise NoLink(f"the engine's server did not start: {event}")
    return int(event["port"])


def train(args: Asked, uuid: str, emulated: bool) -> Ran:
    """All jobs; Unmet with its turn where one did not train."""
    engine = Path(args.engine)
    link = Link(args.gbps, args.delay_us, args.rate_by, args.delay_by)
    secret = token()
    if link.spaces:
        new_network()  # for this process and all that it starts
    with serving(args, link, secret, emulated) as (address, port):
        if args.load:
            each = commands(args, uuid, emulated, f"{address}:{port}", secret)
            return Ran(each["remote"], 0, remoting_train_probe.loads_in_turns(args, each, ()), "")
        native = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        ways = {
            "native": native,
            "remote": {
                **native,
                "LD_LIBRARY_PATH": str(engine / "lib"),
                "ELASTIC_AI_SERVERS": f"{address}:{port}",
                "ELASTIC_AI_TOKEN_FILE": secret,
            },
        }
        options = remoting_train_probe.options_of(args, remoting_train_probe.COSTS)

        def one(way: str, batch: str, left: float) -> Ran:
            return run_tool([*TRAIN, *options, "--batch", batch], left, ways[way])

        return Ran([*TRAIN, *options], 0, remoting_train_probe.in_turns(args, one), "")


def release(engine: str) -> dict[str, str]:
    """Engine and release of that folder; Unmet where it has none."""
    try:
        told = json.loads((Path(engine) / "engine.json").read_text())
        return {"engine": str(told["engine"]), "engine_release": str(told["release"])}
    except (OSError, ValueError, KeyError):
        raise remoting.Unmet(f"{engine}: the engine's programs are not there any more; begin a new run") from None


def probe(args: Asked) -> ProbeDoc:
    """Losses, seconds of each step, and what its calls cost, of every job."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server}
        facts["link"] = {key: getattr(args, key) for key in ("gbps", "delay_us", "rate_by", "delay_by")}
        try:
            facts |= release(args.torch_engine if args.load else args.engine)
            with Nvml() as nvml:
                facts["emulated"] = nvml.emulated
                uuid = nvml.gpus()[0].uuid
            if not args.anyway and (refused := in_use(HELD_BYTES)):
                raise remoting.Unmet(refused)
            return train(args, uuid, nvml.emulated), facts, None
        except (remoting.Unmet, NoLink, NvmlError) as fault:
            return Ran([PROGRAM], 0, "", ""), facts, str(fault)

    def version(_: Ran) -> str:
        try:
            return release(args.torch_engine if args.load else args.engine)["engine_release"]
        except remoting.Unmet:
            return ""

    return document("remoting-train", remoting_program.tool_of(args.load), measure, version)
