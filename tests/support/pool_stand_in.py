"""Stands in for a pool on one machine: the commands that the remoting probes call, before engine servers on loopback.

What is not real is the scheduler and the sandbox; the engine, its protocol, limits and tokens are. Run as a program
(`toolkit` and `srun` of a test's PATH) it keeps its leases in the folder $POOL_STAND_IN.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from toolkit.lease import SHARDS_PER_GPU as SHARDS

HERE = Path(__file__).parent
MIB = 1 << 20
URGENT = "urgent"  # users of this class take GPUs back
FOLDER = Path(os.environ.get("POOL_STAND_IN", "/nonexistent"))


@contextmanager
def leases() -> Iterator[dict[str, Any]]:
    """All leases, to be changed by one program at a time."""
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = FOLDER / "leases.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        yield found
        path.write_text(json.dumps(found))


def gpus() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "gpus.json").read_text())["gpus"])


def node(gpu: int) -> str:
    """The server of a GPU: one has all of them, unless $STAND_IN_NODES names each one's."""
    return os.environ["STAND_IN_NODES"].split()[gpu] if "STAND_IN_NODES" in os.environ else "gpu1"


def free(found: dict[str, Any]) -> list[int]:
    """Shards of each GPU that nobody has."""
    left = [SHARDS] * len(gpus())
    for lease in found.values():
        for gpu in lease["gpus"] if lease["state"] == "running" else []:
            left[gpu] -= lease["shards"]
    return left


def request(words: dict[str, str], wait: bool = True) -> int:
    """A lease's number: running with a server of its own, or pending where there is no room and nobody waits.

    With $STAND_IN_QUEUES who waits is served in the order of asking, but those first who take GPUs back; else there is
    no queue, and who would wait is refused.
    """
    count, part = int(words.get("-n", 1)), Fraction(words.get("-p", "1"))
    shards, urgent = int(part * SHARDS), os.environ.get("SBATCH_ACCOUNT") == URGENT
    queued = wait and "STAND_IN_QUEUES" in os.environ
    asked = words["-l"].split(",") if "STAND_IN_NODES" in os.environ else ["gpu1"]
    lease: dict[str, Any] = {"state": "pending", "shards": shards, "gpus": [], "asked": asked, "queued": queued}
    lease |= {"rank": 0 if urgent else 1, "submitted": round(time.time())}
    with leases() as found:
        number = lease["lease"] = len(found) + 1
        found[str(number)] = lease
    try:
        if urgent:
            take_back(count, shards, words["-l"])
        while not granted(number, count, part):
            if not wait:
                return number
            if not queued:
                raise SystemExit("error: no room")
            time.sleep(0.05)
    except BaseException:
        with leases() as found:
            found[str(number)] |= {"queued": False}
        raise
    return number


def granted(number: int, count: int, part: Fraction) -> bool:
    """Whether the lease has its GPUs: they are free, and nobody who waits for one of them is before it."""
    with leases() as found:
        lease = found[str(number)]
        mine = [i for i in range(len(gpus())) if node(i) in lease["asked"]]
        room = [i for i in mine if free(found)[i] >= lease["shards"]]
        before = [one for one in found.values() if one["state"] == "pending" and one["queued"]]
        before = [one for one in before if (one["rank"], one["lease"]) < (lease["rank"], number)]
        if len(room) < count or any(set(one["asked"]) & set(lease["asked"]) for one in before):
            return False
        folder = FOLDER / f"lease-{number}"
        folder.mkdir()
        (folder / "token").write_text(secrets.token_hex(32) + "\n")
        limit = int(gpus()[0]["memory_bytes"] * part) // MIB * MIB
        lease |= {"state": "running", "gpus": room[:count], "limit": limit, "pids": [], "ports": []}
        lease["started"] = round(time.time())
        for name in dict.fromkeys(map(node, lease["gpus"])):
            pid, port = serve(folder, name, [i for i in lease["gpus"] if node(i) == name], limit)
            lease["pids"].append(pid)
            lease["ports"].append(port)
    return True


def take_back(count: int, shards: int, server: str) -> None:
    """Programs on the server are told that somebody else wants their GPUs, until there is room."""
    until, told = time.monotonic() + 60, set()
    while time.monotonic() < until:
        with leases() as found:
            room = [i for i, left in enumerate(free(found)) if left >= shards and node(i) == server]
            running = [one for one in found.values() if one["state"] == "running" and "program" in one]
        if len(room) >= count:
            return
        for one in running:
            if any(node(gpu) == server for gpu in one["gpus"]) and one["lease"] not in told:
                told.add(one["lease"])
                os.kill(one["program"], signal.Signals[os.environ.get("STAND_IN_TELLS", "SIGTERM")])
        time.sleep(0.05)


def serve(folder: Path, name: str, mine: list[int], limit: int) -> tuple[int, int]:
    """Process and port of an engine server with these GPUs."""
    port = folder / f"port-{name}"
    command = [os.environ["STAND_IN_SERVER"], "--port-file", str(port), "--report-fd", "2"]
    command += ["--token-file", str(folder / "token"), "--allow", "127.0.0.1"]
    if "STAND_IN_UNLIMITED" not in os.environ:
        command += ["--memory-limit", str(limit), "--context-bytes", str(gpus()[0].get("context_bytes", 0))]
    devices = {"LD_LIBRARY_PATH": os.environ["STAND_IN_DEVICES"]}
    devices["CUDA_VISIBLE_DEVICES"] = ",".join(gpus()[i]["uuid"] for i in mine)
    with (folder / f"events-{name}").open("w") as events:
        server = subprocess.Popen(
            command, env={**os.environ, **devices}, stderr=events, stdout=events, start_new_session=True
        )
    while not port.exists():
        time.sleep(0.01)
    return server.pid, int(port.read_text())


def release(number: str) -> None:
    with leases() as found:
        lease = found[number]
        if lease["state"] == "running":
            for pid in lease["pids"]:
                os.kill(pid, signal.SIGTERM)
        lease |= {"state": "ended", "ended": round(time.time())}


def refuse(words: str) -> NoReturn:
    """As `toolkit run` does."""
    print(f"error: {words}", file=sys.stderr)
    raise SystemExit(75)


def run_on(number: str, program: list[str]) -> int:
    with leases() as found:
        lease = found[number]
    if lease["state"] != "running":
        refuse(f"lease {number} has ended: it was released")
    environment = client(lease, FOLDER / f"lease-{number}/token")
    with subprocess.Popen(program, env={**os.environ, **environment}) as process:
        with leases() as found:
            found[number]["program"] = process.pid
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    return code if code >= 0 else 128 - code


def addresses(lease: dict[str, Any]) -> list[str]:
    """Of a lease's engine servers."""
    return [f"127.0.0.1:{port}" for port in lease["ports"]]


def natively(number: str, program: list[str]) -> int:
    """The program on the server itself, which is this machine; the lease goes with it."""
    try:
        with leases() as found:
            lease = found[number]
        environment = client(lease, FOLDER / f"lease-{number}/token")
        environment |= {"LD_LIBRARY_PATH": os.environ["STAND_IN_DEVICES"]}
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus()[i]["uuid"] for i in lease["gpus"])}
        code = subprocess.run(program, env={**os.environ, **environment}, check=False).returncode
        return code if code >= 0 else 128 - code
    finally:
        release(number)


def client(lease: dict[str, Any], token: Path) -> dict[str, str]:
    """Environment of a lease's programs."""
    parts = [
        {"uuid": gpus()[i]["uuid"], "emulated": True, "memory_bytes": lease["limit"], "context_bytes": 0}
        | {"server": node(i), "server_index": i}
        for i in lease["gpus"]
    ]
    return {
        "LD_LIBRARY_PATH": os.environ["STAND_IN_LIBRARY"],
        "ELASTIC_AI_SERVERS": ",".join(addresses(lease)),
        "ELASTIC_AI_TOKEN_FILE": str(token),
        "ELASTIC_AI_GPUS": json.dumps(parts),
        "ELASTIC_AI_LEASE": str(lease["lease"]),
    }


def environment(number: str, folder: Path) -> None:
    """With STAND_IN_OPEN as of an engine that asks for no token and holds each program by itself."""
    with leases() as found:
        lease = found[number]
    folder.mkdir(mode=0o700)
    token = folder / "tokens"
    token.write_text((FOLDER / f"lease-{number}/token").read_text())
    is_open = "STAND_IN_OPEN" in os.environ
    said = {"environment": client(lease, token), "servers": addresses(lease)}
    said |= {"secret": "" if is_open else str(token), "holds_memory_of": "program" if is_open else "lease"}
    print(json.dumps(said))


def toolkit(words: list[str]) -> int:
    before, program = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = dict(itertools.pairwise(before))
    if words[0] == "gpus":
        with leases() as found:
            left, running = free(found), [one for one in found.values() if one["state"] == "running"]
        shown = [
            {
                "node": node(i),
                "emulated": True,
                "index": i,
                "free": left[i] / SHARDS,
                "memory_mib": gpu["memory_bytes"] // MIB,
            }
            | {"reserved_mib": 0, "context_bytes": gpu.get("context_bytes", 0)}
            | {"uses": [{"lease": one["lease"]} for one in running if i in one["gpus"]]}
            for i, gpu in enumerate(gpus())
        ]
        print(json.dumps({"gpus": shown}))
        return 0
    if words[:2] == ["lease", "list"]:
        with leases() as found:
            print(json.dumps({"leases": [{key: one[key] for key in ("lease", "state")} for one in found.values()]}))
        return 0
    if words[:2] == ["lease", "release"]:
        release(words[2])
        return 0
    if words[:2] == ["lease", "env"]:
        environment(words[2], Path(words[3]))
        return 0
    if words[:2] == ["lease", "show"]:
        with leases() as found:
            print(json.dumps({"lease": int(words[2]), "state": found[words[2]]["state"]}))
        return 0
    if words[:2] == ["lease", "request"]:
        number = request(options, wait="--no-wait" not in words)
        print(json.dumps({"lease": number, "state": "running"}))
        return 0
    if "--lease" in before:
        return run_on(options["--lease"], program)
    number = request(options)
    print(f"lease {number}: {options.get('-l')}", file=sys.stderr, flush=True)
    if options.get("--where") == "server":
        return natively(str(number), program)
    try:
        return run_on(str(number), program)
    finally:
        release(str(number))


def install(folder: Path, built: Path) -> dict[str, str]:
    """The programs in folder/bin, beside folder/gpus.json, and the environment in which they work."""
    (folder / "bin").mkdir()
    shutil.copytree(built / "devices", folder / "devices")  # where every user can load them
    # gpu2 is a machine that has no way here; else the program runs on the server itself.
    srun = (
        'case "$*" in *"-w gpu2 "*) elsewhere="unshare --net";; esac\n'
        'while [ "$1" != python3 ] && [ "$1" != setpriv ] && [ "$1" != env ]; do shift; done\n'
        'export LD_LIBRARY_PATH="$STAND_IN_DEVICES" PATH=/usr/sbin:/usr/bin:/sbin:/bin\nexec $elsewhere "$@"'
    )
    owner = '[ "$(id -u)" = 0 ] || { echo "error: the lease is not yours" >&2; exit 75; }'
    programs = {
        "toolkit": f'{owner}\nexec {sys.executable} {HERE / "pool_stand_in.py"} "$@"',
        "srun": srun,
        "elastic-ai-copybench": f'exec {sys.executable} -m toolkit.lease.programs.copybench "$@"',
        "elastic-ai-train": f'exec {sys.executable} -m toolkit.lease.programs.train "$@"',
    }
    for name, line in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(HERE.parents[1]),
        "POOL_STAND_IN": str(folder),
        "STAND_IN_SERVER": str(built / "bin/elastic-ai-refserver"),
        "STAND_IN_DEVICES": str(folder / "devices"),
        "STAND_IN_LIBRARY": str(built / "lib"),
    }


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # the lease is given back, as by toolkit run
    sys.exit(toolkit(sys.argv[1:]))
