"""torchrun on every host of a hostfile, from one command; the twin of the mpirun line.

    elastic-ai-torchrun [--hostfile FILE | -H ADDRESS:SLOTS,...] [--port PORT] PROGRAM [ARGUMENT ...]

PROGRAM and what follows is what python3 gets on each rank. Runs in the training container and reaches the other nodes'
containers by the training's ssh. On each host a "leash" starts torchrun and watches its standard input: when that ends,
because the launcher ended in whatever way, it kills all that torchrun has started.
"""

import argparse
import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
SSH_CONFIG = HERE.with_name("ssh_config")
HOSTFILE = HERE.with_name("hostfile")
GRACE_S = 3.0
MONITOR_S = 0.1  # how often torchrun looks whether its ranks have ended: by itself an older one looks every 5 s
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, SIOCGIFADDR = 1, 36, 0x8915
libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Ask the kernel for KILL when the parent ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def hosts_of(text: str) -> list[tuple[str, int]]:
    """Address and slots of each line `ADDRESS slots=N`, or of `ADDRESS:N,...`."""
    found = []
    for line in text.replace(",", "\n").splitlines():
        words = line.split("#")[0].replace(" slots=", ":").split(":")
        if words[0].strip():
            found.append((words[0].strip(), int(words[1]) if len(words) > 1 else 1))
    return found


def interface_of(address: str) -> str:
    """Network interface that has an IPv4 address, or ""."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # has none
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return ""


def descendants(root: int) -> list[int]:
    """Process ids of everything below `root` that still runs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_bytes().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_below() -> None:
    """End all that descends from this process, whatever it takes."""
    for number, seconds in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            left = descendants(os.getpid())
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.05 if number == signal.SIGKILL else 0.5)


def leash(job: dict) -> int:
    """One host's side: run torchrun until it ends or until standard input does."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    interface = interface_of(job["address"])
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if interface:
        environment.update(GLOO_SOCKET_IFNAME=interface)  # NCCL's is in each container's /etc/nccl.conf
    command = [sys.executable, str(HERE), "--agent", *job["torchrun"], "--no_python"]
    # A rank must not outlive its agent either.
    command += ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, *job["program"]]
    wake, ended = os.pipe()
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, preexec_fn=die_with_parent)
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ)
    waiting.register(wake, selectors.EVENT_READ)
    while process.poll() is None:
        for key, _ in waiting.select():
            if not os.read(key.fd, 4096):
                kill_below()
                return 143
    kill_below()
    return process.returncode % 256


def agent(arguments: list[str]) -> int:
    """torchrun itself."""
    run = importlib.import_module("torch.distributed.run")
    std = importlib.import_module("torch.distributed.elastic.multiprocessing.api").Std
    if std.from_str("0") is None:
        # torch before 2.0 looks for the flag 0 among a flag's members, and Python since 3.11 does not list it there
        original = std.from_str
        std.from_str = classmethod(lambda _, text: std.NONE if text == "0" else original(text))
    run.main(arguments)
    return 0


def launch(args: argparse.Namespace) -> int:
    """The launcher's side: one ssh for each host; the first that fails ends all."""
    hosts = hosts_of(args.hosts or Path(args.hostfile).read_text(encoding="utf-8"))
    if not hosts:
        sys.exit("no hosts to run on")
    running: list[subprocess.Popen] = []
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, lambda number, _: sys.exit(128 + number))
    result = 0
    try:
        for rank, (address, slots) in enumerate(hosts):
            torchrun = [f"--nnodes={len(hosts)}", f"--node_rank={rank}", f"--nproc_per_node={slots}"]
            torchrun += [f"--master_addr={hosts[0][0]}", f"--master_port={args.port}"]
            torchrun += [f"--monitor_interval={MONITOR_S}"]
            job = {"address": address, "torchrun": torchrun, "program": [args.program, *args.arguments]}
            # As hexadecimal digits, for a shell reads the line at the other end.
            remote = f"exec python3 {HERE} --leash {json.dumps(job).encode().hex()}"
            command = ["ssh", "-F", str(SSH_CONFIG), address, remote]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=die_with_parent))
        while running and not result:
            for process in [p for p in running if p.poll() is not None]:
                running.remove(process)
                result = result or process.returncode % 256
            time.sleep(0.05)
    finally:
        for process in running:
            process.stdin.close()  # the leashes kill their ranks and end
        for process in running:
            try:
                process.wait(3 * GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
    return result


def main() -> int:
    """Launcher; or leash or agent, where the launcher or the leash says so."""
    if sys.argv[1:2] == ["--agent"]:
        return agent(sys.argv[2:])
    if sys.argv[1:2] == ["--leash"]:
        return leash(json.loads(bytes.fromhex(sys.argv[2])))
    parser = argparse.ArgumentParser(prog="elastic-ai-torchrun", usage=(__doc__ or "").strip().splitlines()[2].strip())
    parser.add_argument("--hostfile", default=HOSTFILE)
    parser.add_argument("-H", dest="hosts", default="")
    parser.add_argument("--port", type=int, default=29500)
    known, rest = [], sys.argv[1:]
    while rest[:1] and rest[0] in ("--hostfile", "-H", "--port"):
        known, rest = known + rest[:2], rest[2:]
    args = parser.parse_args(known)
    if not rest:
        parser.error("a program is needed")
    args.program, args.arguments = rest[0], rest[1:]
    return launch(args)


if __name__ == "__main__":
    sys.exit(main())
