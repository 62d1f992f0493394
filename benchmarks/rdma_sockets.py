"""Does an unmodified TCP program run over RDMA? rsockets' preload and SMC-R between two nodes, proved by counters.

    .venv/bin/python benchmarks/rdma_sockets.py -i INVENTORY [--nodes gpu1 gpu2] [--timeout-s 60]

Two programs: iperf3, and a server of the shape that remoting engines have (accept, fork, the child serves). Each is
tried plain, under librdmacm's rsockets preload, and as AF_SMC sockets. The verdict is never "it worked": it is whether
the RDMA device's packet counter moved by what was transferred. Prints one JSON document. The second node serves.
Needs root on the nodes, python3 and iperf3 there, and for SMC-R a C compiler here. What was changed on the nodes (a
module, an SMC identifier, two files) is taken back.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from toolkit.inventory import read_inventory
from validation.execute.ssh import common_arguments
from validation.model import Node

HERE = Path(__file__).resolve().parent
FOLDER = "/run/elastic-ai-rdma-sockets"
RSOCKETS = "/usr/lib/*/rsocket/librspreload.so*"
PORT = 18600
TRANSFER_BYTES = 4 << 20
#: A transfer of N bytes moves at least N / (4096 + headers) RDMA packets; half of that is proof enough.
PROOF_PACKETS = TRANSFER_BYTES // 4096 // 2
EID = "ELASTIC-AI"

# Server: accepts, forks, the child hashes what it gets and answers. Client: sends, checks the answer. Nothing of RDMA.
PROGRAM = """
import hashlib, os, socket, sys
role, address, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
if role == "server":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port)); s.listen(1)
    c, _ = s.accept()
    if os.fork() == 0:
        left, h = size, hashlib.sha256()
        while left:
            data = c.recv(min(left, 65536))
            if not data: os._exit(3)
            h.update(data); left -= len(data)
        c.sendall(h.digest()); c.close(); os._exit(0)
    c.close()
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
data = os.urandom(65536) * (size // 65536)
s.connect((address, port)); s.sendall(data)
got = b""
while len(got) < 32:
    part = s.recv(32 - len(got))
    if not part: sys.exit("the server closed")
    got += part
sys.exit(0 if got == hashlib.sha256(data).digest() else "the data came out different")
"""

# Adds or removes an enterprise identifier, which SMC-Rv2 needs to agree on: linux/smc.h, generic netlink.
EID_PROGRAM = """
import socket, struct, sys
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
s.bind((0, 0))
def ask(kind, command, payload, version=1):
    body = struct.pack("=BBH", command, version, 0) + payload
    s.send(struct.pack("=IHHII", 16 + len(body), kind, 5, 1, 0) + body)
    return s.recv(65536)
def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\\0" * (-len(data) % 4)
reply = ask(16, 3, attribute(2, b"SMC_GEN_NETLINK\\0"))
at, family = 20, None
while at < len(reply):
    size, kind = struct.unpack_from("=HH", reply, at)
    if kind == 1: family = struct.unpack_from("=H", reply, at + 4)[0]; break
    at += (size + 3) & ~3
if family is None: sys.exit("the kernel has no SMC netlink family")
eid = sys.argv[2].ljust(32)[:32].encode() + b"\\0"
answer = ask(family, {"add": 10, "remove": 11}[sys.argv[1]], attribute(1, eid))
error = -struct.unpack_from("=i", answer, 16)[0]
sys.exit(f"netlink error {error}" if error else 0)
"""


class Remote:
    """A node, reached by ssh as the validation reaches it."""

    def __init__(self, node: Node) -> None:
        """Find address, key and fabric port in the inventory's words."""
        self.name, self.port = node.name, node.ports[0]
        self.base = ["ssh", "-T", "-o", "BatchMode=yes", *common_arguments(node.ssh), node.ssh.host]

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command there; its output is piped."""
        assignments = [f"{key}={value}" for key, value in (env or {}).items()]
        line = shlex.join(["env", *assignments, *words] if assignments else list(words))
        return subprocess.Popen([*self.base, line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str, check: bool = True, stdin: str | None = None) -> str:
        """Output of a command there; SystemExit with its complaint when it fails and `check` is set."""
        done = subprocess.run(
            [*self.base, shlex.join(words)], input=stdin, capture_output=True, text=True, check=False, timeout=120
        )
        if check and done.returncode != 0:
            raise SystemExit(f"{self.name}: {shlex.join(words)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def glob(self, pattern: str) -> list[str]:
        """Paths there that match a pattern of ours."""
        return self.run("sh", "-c", f"ls -d {pattern} 2>/dev/null || true").split()

    def rdma_packets(self) -> dict[str, int]:
        """Packets sent and received by the RDMA device of the fabric port, by the device's own counters."""
        found: dict[str, int] = {}
        ndevs = self.glob("/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*")
        text = self.run("grep", "-sHx", self.port.interface, *ndevs, check=False) if ndevs else ""
        folders = {line.split("/gid_attrs/")[0] for line in text.splitlines()}
        for folder in folders:
            for key in ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts", "counters/port_xmit_packets"):
                value = self.run("cat", f"{folder}/{key}", check=False).strip()
                if value.isdigit():
                    found[key] = found.get(key, 0) + int(value)
        return found


def attempt(server: Remote, client: Remote, program: str, env: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """One transfer; what the programs said, how long it took, and what the RDMA devices counted meanwhile."""
    address = server.port.address
    if program == "iperf3":
        serve = ["timeout", f"{timeout_s:g}", "iperf3", "-s", "-1", "-B", address, "-p", str(PORT)]
        ask = ["iperf3", "-J", "-c", address, "-p", str(PORT), "-n", str(TRANSFER_BYTES)]
    else:
        script = ["python3", f"{FOLDER}/fork.py"]
        words = [address, str(PORT), str(TRANSFER_BYTES)]
        serve = ["timeout", f"{timeout_s:g}", *script, "server", *words]
        ask = [*script, "client", *words]
    before = client.rdma_packets()
    serving = server.start(*serve, env=env)
    time.sleep(6)  # rsockets listen where no socket table shows it; emulated nodes take seconds to start Python
    began = time.monotonic()
    asking = client.start("timeout", f"{timeout_s:g}", *ask, env=env)
    said, complaint = asking.communicate()
    seconds = time.monotonic() - began
    _, server_complaint = serving.communicate()
    after = client.rdma_packets()
    moved = sum(after[key] - before.get(key, 0) for key in after)
    worked = asking.returncode == 0 and serving.returncode == 0
    figures: dict[str, Any] = {
        "worked": worked,
        "seconds": round(seconds, 1),
        "rdma_packets": moved,
        "verdict": "failed",
    }
    if worked:
        figures["verdict"] = "over RDMA" if moved >= PROOF_PACKETS else "over TCP: the RDMA device carried nothing"
    else:
        codes = f"client {asking.returncode}, server {serving.returncode}"  # 124 is timeout's own
        lines = (complaint + server_complaint).strip().splitlines() or said.strip().splitlines()[-1:]
        figures["why"] = f"{codes}: {lines[-1] if lines else 'no word'}"
    return figures


def prepare_smc(nodes: list[Remote]) -> str | None:
    """Load smc, agree on an identifier and install the preload; None when ready, else why SMC-R can't be tried."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "smc_preload.so"
        try:
            command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "smc_preload.c"), "-ldl"]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as fault:
            return f"no C compiler here ({fault})"
        for node in nodes:
            node.run("modprobe", "--all", "smc", "smc_diag", check=False)
            if not node.glob("/sys/module/smc"):
                return f"{node.name}: the kernel has no SMC module"
            subprocess.run([*node.base, f"cat > {FOLDER}/smc.so"], input=library.read_bytes(), check=True)
            node.run("python3", f"{FOLDER}/eid.py", "add", EID)
    return None


def main() -> None:
    """Try every way with every program and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("--nodes", nargs=2, metavar=("CLIENT", "SERVER"), default=["gpu1", "gpu2"])
    parser.add_argument("--timeout-s", type=float, default=60)
    options = parser.parse_args()
    topology = read_inventory(options.inventory)
    client, server = (Remote(topology.node(name)) for name in options.nodes)
    nodes = [client, server]
    found: dict[str, Any] = {
        "client": client.name,
        "server": server.name,
        "virtual": topology.node(client.name).virtual,
        "kernel": client.run("uname", "-r").strip(),
        "transfer_bytes": TRANSFER_BYTES,
        "ways": {},
    }
    try:
        for node in nodes:
            node.run("mkdir", "-p", FOLDER)
            node.run("tee", f"{FOLDER}/fork.py", stdin=PROGRAM)
            node.run("tee", f"{FOLDER}/eid.py", stdin=EID_PROGRAM)
        preload = client.glob(RSOCKETS)
        smc_fault = prepare_smc(nodes)
        ways: dict[str, dict[str, str] | str] = {
            "tcp": {},
            "rsockets": {"LD_PRELOAD": preload[0], "RDMAV_FORK_SAFE": "1"} if preload else "no rsockets preload there",
            "smc": smc_fault or {"LD_PRELOAD": f"{FOLDER}/smc.so"},
        }
        for way, env in ways.items():
            for program in ("iperf3", "fork"):
                if isinstance(env, str):
                    figures: dict[str, Any] = {"verdict": f"not measured: {env}"}
                else:
                    figures = attempt(server, client, program, env, options.timeout_s)
                found["ways"][f"{way} {program}"] = figures
                print(f"{way} {program}: {figures['verdict']} {figures.get('why', '')}", file=sys.stderr)
    finally:
        for node in nodes:
            node.run("python3", f"{FOLDER}/eid.py", "remove", EID, check=False)
            node.run("modprobe", "--remove", "smc_diag", "smc", check=False)
            node.run("rm", "-rf", FOLDER, check=False)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
