"""The engine by verbs between two virtual machines with Soft-RoCE: real libibverbs, the port's own counters.

The server runs in the sandbox of a lease's unit. The machines are emulated: that bytes arrive, by which port, and what
happens when an end dies holds on any machine; how fast does not.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import NEEDS_VMS, ROOT, Lab, machines, toolkit

from tests.support import torch_env
from tests.support.engine_run import MIB, PRELUDE, TOKEN, UUIDS
from tests.support.engine_verbs import TCP_BYTES
from tests.support.torch_verbs import PROGRAM, UP
from toolkit.engine import build, host_modules
from toolkit.lab import lab as labs
from toolkit.lease.machine import unit

NAME = "itverbs"
HEADER = "" if "verbs" in build.transports() else "libibverbs-dev"
LACKS = build.missing_tools() or host_modules.lacks_compiler() or HEADER
pytestmark = [
    pytest.mark.rest,
    NEEDS_VMS,
    pytest.mark.skipif(bool(LACKS), reason=f"this machine lacks {LACKS}"),
]
SERVER, CLIENT = "gpu1", "gpu2"
HOME, PORT, UNIT = "/opt/engine-verbs", 23001, "engine-verbs"
COPIED = 16 * MIB
SMALLEST_PACKET, LARGEST_PACKET = 256, 4096  # payload of RoCE
STEPS = 6
PORT_COUNTS = """
from pathlib import Path
def port_counts():
    folder = next(Path("/sys/class/infiniband").glob("*")) / "ports/1/hw_counters"
    return [int((folder / name).read_text()) for name in ("sent_pkts", "rcvd_pkts")]
"""
COPIES = f"""
start(); n = {COPIED}; p = alloc(n); data = os.urandom(n); back = ctypes.create_string_buffer(n)
a = port_counts(); tcp = tcp_bytes(); began = time.monotonic()
cuda.cuMemcpyHtoD_v2(p, data, c_size_t(n)); there = time.monotonic(); b = port_counts()
cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n)); done = time.monotonic(); c = port_counts()
calls = [time.monotonic()]
for _ in range(50): info(); calls.append(time.monotonic())
j = ctypes.create_string_buffer(99999); cuda.elasticAiServerInfo(j, c_size_t(99999))
said(dict(same=back.raw == data, tcp=sum(tcp_bytes()) - sum(tcp), there=[y - x for x, y in zip(a, b)],
          back=[y - x for x, y in zip(b, c)], there_s=there - began, back_s=done - there,
          call_ms=1000 * sorted(y - x for x, y in zip(calls, calls[1:]))[25], server=json.loads(j.value)[0]))
"""


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What both machines get: the engine, emulated devices, and the program that trains."""
    build.compile_engine(folder, build.default_release())
    build.compile_devices(folder / "devices")
    for path in (p for p in folder.rglob("*") if p.is_file()):
        yield str(path.relative_to(folder)), path.read_bytes()
    code = ["toolkit/__init__.py", "toolkit/errors.py", "toolkit/exits.py", "toolkit/lease/programs/kernels/train.ptx"]
    code += ["validation/__init__.py", "validation/base/__init__.py", "validation/base/errors.py"]
    code += [str(p.relative_to(ROOT)) for p in (ROOT / "toolkit/lease").rglob("*.py")]
    for name in code:
        yield name, (ROOT / name).read_bytes()
    gpus = [dict(uuid=u, name="Emulated V100", memory_bytes=64 * MIB, pci_bus_id="00000000:1A:00.0") for u in UUIDS[:1]]
    yield "gpus.json", json.dumps({"gpus": [gpu | {"sm_count": 80} for gpu in gpus]}).encode()
    yield "token", f"{TOKEN}\n".encode()


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in _files(folder):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


@dataclass(frozen=True)
class Pair:
    """A server on one machine, programs on another."""

    lab: Lab

    def ssh(self, node: str, command: str, stdin: bytes = b"", timeout_s: float = 300) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a shell's command."""
        spec = labs.load(self.lab.name)
        words = [*map(str, labs.ssh_words(spec, spec.node(node))), command]
        done = subprocess.run(words, input=stdin, capture_output=True, timeout=timeout_s, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def does(self, node: str, command: str, stdin: bytes = b"") -> str:
        """stdout of a command that succeeds."""
        code, out, err = self.ssh(node, command, stdin)
        assert code == 0, err
        return out

    def address(self, node: str) -> str:
        """Of its RDMA port."""
        return json.loads(self.does(node, "ip -j -4 addr show dev fab0"))[0]["addr_info"][0]["local"]

    def serve(self, transport: str, engine: str = "") -> None:
        """Start the server anew, sandboxed as a lease's unit is: the reference engine's, or another one."""
        self.ssh(SERVER, f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}")
        given = [*unit._SANDBOX, "DynamicUser=yes", f"RuntimeDirectory={UNIT}", f"LoadCredential=token:{HOME}/token"]
        given += [f"IPAddressAllow={self.address(CLIENT)}", f"LimitMEMLOCK={unit.MEMLOCK}"]
        given += [f"DeviceAllow={path} rw" for path in self.does(SERVER, "ls /dev/infiniband/uverbs*").split()]
        given += [f"Environment=LD_LIBRARY_PATH={HOME}/devices ELASTIC_AI_EMULATED_GPUS={HOME}/gpus.json"]
        given += [f"Environment=ELASTIC_AI_EMULATED_STATE=/run/{UNIT}/state"]
        given += [f"Environment=HOME=/run/{UNIT}"] if engine else []
        words = " ".join(f"--property='{value}'" for value in given)
        server = (
            f"{engine or HOME + '/bin/elastic-ai-refserver'} --bind {self.address(SERVER)} --port {PORT} --report-fd 1"
        )
        server += f" --allow {self.address(CLIENT)} --token-file /run/credentials/{UNIT}.service/token"
        server += f" --port-file /run/{UNIT}/port --transport {transport}"
        self.does(SERVER, f"systemd-run --quiet --unit={UNIT} {words} {server}")
        self.does(SERVER, f"for i in $(seq 600); do [ -e /run/{UNIT}/port ] && exit 0; sleep 0.2; done; exit 1")

    def events(self) -> list[dict[str, Any]]:
        """What the server has reported, over all its starts."""
        said = self.does(SERVER, f"journalctl -u {UNIT} -o cat --no-pager")
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def environment(self, transport: str) -> str:
        """Of a program on the client, as words before a command."""
        given = {"LD_LIBRARY_PATH": f"{HOME}/lib", "PYTHONPATH": HOME, "ELASTIC_AI_TOKEN_FILE": f"{HOME}/token"}
        given |= {"ELASTIC_AI_SERVERS": f"{self.address(SERVER)}:{PORT}", "ELASTIC_AI_TRANSPORT": transport}
        return "env " + " ".join(f"{name}={value}" for name, value in given.items())

    def run(self, script: str, transport: str = "verbs") -> tuple[Any, str]:
        """What a script on the client says, and its stderr."""
        text = (PRELUDE + TCP_BYTES + PORT_COUNTS + script).encode()
        code, out, err = self.ssh(CLIENT, f"{self.environment(transport)} python3 -", text)
        assert code == 0, err
        return json.loads(out.splitlines()[-1]), err


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two machines with RDMA ports and the engine on both."""
    with machines(NAME, tmp_path_factory.mktemp("inventory") / NAME) as lab:
        yield installed(lab, tmp_path_factory.mktemp("engine"))


def installed(lab: Lab, folder: Path) -> Pair:
    """The engine on both machines, and its server with both transports."""
    pair, packed = Pair(lab), _packed(folder)
    for node in (SERVER, CLIENT):
        pair.does(node, f"mkdir -p {HOME} && tar -xzf - -C {HOME}", packed)
    pair.serve("tcp,verbs")
    return pair


def test_copies_go_by_the_rdma_port_and_nothing_of_them_by_tcp(pair: Pair) -> None:
    said, err = pair.run(COPIES)
    print(json.dumps(said))
    assert (said["same"], err) == (True, "")
    assert said["server"]["transport"] == "verbs"
    for sent, received in (said["there"], reversed(said["back"])):
        assert sent >= COPIED / LARGEST_PACKET, "each byte was in a packet of the port"
        assert received < sent, "acknowledgements"
    assert said["tcp"] < 100_000
    assert said["server"]["verbs"]["device"] in pair.does(SERVER, "ls /sys/class/infiniband")
    by_tcp, _ = pair.run(COPIES, "tcp")
    print(json.dumps(by_tcp))
    assert by_tcp["same"]
    assert by_tcp["server"]["transport"] == "tcp"
    assert (by_tcp["there"], by_tcp["back"]) == ([0, 0], [0, 0]), "TCP where it is asked for"
    assert by_tcp["tcp"] > 2 * COPIED


def test_training_has_the_losses_of_the_devices_themselves(pair: Pair) -> None:
    train = f"python3 -m toolkit.lease.programs.train --steps {STEPS} --batch 16 --json"
    here = f"env LD_LIBRARY_PATH={HOME}/devices PYTHONPATH={HOME} ELASTIC_AI_EMULATED_GPUS={HOME}/gpus.json"
    native = json.loads(pair.does(SERVER, f"{here} ELASTIC_AI_EMULATED_STATE=/tmp/engine-verbs-state {train}"))
    counts = "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"
    before = int(pair.does(CLIENT, counts))
    remote = json.loads(pair.does(CLIENT, f"{pair.environment('verbs')} {train}"))
    packets = int(pair.does(CLIENT, counts)) - before
    print(json.dumps({"packets": packets, "native": native["losses"], "remote": remote["losses"]}))
    assert len(native["losses"]) == STEPS
    assert (remote["losses"], remote["weights_sha256"]) == (native["losses"], native["weights_sha256"])
    assert packets > STEPS


def test_a_killed_client_takes_its_child_and_a_killed_child_its_client(pair: Pair) -> None:
    script = "start(); p = alloc(1 << 20); said(os.getpid()); sys.stdout.flush(); time.sleep(60)"
    spec = labs.load(pair.lab.name)
    words = [*map(str, labs.ssh_words(spec, spec.node(CLIENT))), f"{pair.environment('verbs')} python3 -"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin
        assert client.stdout
        client.stdin.write(PRELUDE + script)
        client.stdin.close()
        pid = int(client.stdout.readline())
        child = [e["pid"] for e in pair.events() if e["event"] == "client"][-1]
        pair.does(CLIENT, f"kill -9 {pid}")
        began = time.monotonic()
        pair.does(SERVER, f"for i in $(seq 100); do [ -d /proc/{child} ] || exit 0; sleep 0.1; done; exit 1")
        print(f"child gone within {time.monotonic() - began:.1f} s, ssh included")
        client.wait(60)
    death = """
start(); p = alloc(1 << 20); said(1); sys.stdout.flush(); began = time.monotonic()
while not (failed := code(cuda.cuCtxSynchronize)) and time.monotonic() < began + 60: time.sleep(.05)
again = time.monotonic(); said([failed, code(info), time.monotonic() - again])
"""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as c:
        assert c.stdin
        assert c.stdout
        c.stdin.write(PRELUDE + death)
        c.stdin.close()
        c.stdout.readline()
        child = [e["pid"] for e in pair.events() if e["event"] == "client"][-1]
        pair.does(SERVER, f"kill -9 {child}")
        failed, later, seconds = json.loads(c.stdout.readline())
        assert c.stderr
        assert (failed, later) == (46, 46)
        assert seconds < 1
        assert c.stderr.read().count("is lost") == 1


def test_a_port_that_packets_do_not_reach_is_one_sentence_and_never_tcp(pair: Pair) -> None:
    where = ("--name", pair.lab.name, SERVER)
    assert toolkit("lab", "fault", "set", *where, "firewall-4791").returncode == 0
    try:
        said, err = pair.run("said(code(cuda.cuInit, 0))")
        print(err)
        assert said == 46
        assert "is UDP port 4791 open between the two machines?" in err
        assert len(err.splitlines()) == 1
        assert pair.run("said(code(cuda.cuInit, 0))", "tcp")[0] == 0, "TCP would have been there"
    finally:
        toolkit("lab", "fault", "clear", *where)


def test_an_address_without_rdma_is_refused_at_both_ends(pair: Pair) -> None:
    """Of the management port: no RDMA device has it."""
    mgmt = json.loads(pair.does(SERVER, "ip -j -4 addr show dev mgmt0"))[0]["addr_info"][0]["local"]
    start = f"{HOME}/bin/elastic-ai-refserver --bind {mgmt} --allow {mgmt} --token-file {HOME}/token"
    code, _, err = pair.ssh(SERVER, f"{start} --transport verbs")
    assert (code, f"no RDMA port has the address {mgmt} for RoCE v2" in err) == (1, True)
    pair.serve("tcp")
    said, err = pair.run("said(code(cuda.cuInit, 0))")
    assert (said, "offers tcp alone" in err) == (46, True)


@dataclass(frozen=True)
class TorchPair:
    """The same machines with PyTorch; python: on both, the one that has it."""

    pair: Pair
    python: str


@pytest.fixture(scope="module")
def torch_pair(pair: Pair) -> TorchPair:
    """PyTorch and its engine come to the machines while they run; its server offers both transports."""
    where = ("--name", pair.lab.name, "--inventory", pair.lab.inventory)
    up = toolkit("lab", "up", "--nodes", "vm", *where, "--torch", torch_env.python(), timeout_s=1800)
    assert up.returncode == 0, up.stderr
    named = yaml.safe_load((pair.lab.inventory / "hosts.yml").read_text())["all"]["vars"]
    engine = Path(named["remoting_engine_torch_artifact"]).read_bytes()
    for node in (SERVER, CLIENT):
        pair.does(node, f"mkdir -p {HOME}/torch && tar -xzf - -C {HOME}/torch", engine)
    both = TorchPair(pair, named["remoting_server_torch_python"])
    pair.serve("tcp,verbs", f"{both.python} {HOME}/torch/bin/elastic-ai-torchserver --device cpu --threads 1")
    return both


def by_torch(both: TorchPair, program: str, transport: str) -> tuple[int, str, str]:
    """How a PyTorch program on the client ends; without a transport it computes there."""
    given = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if transport:
        given |= {"PYTHONPATH": f"{HOME}/torch/python", "ELASTIC_AI_TRANSPORT": transport}
        given |= {"ELASTIC_AI_TORCH_SERVERS": f"{both.pair.address(SERVER)}:{PORT}"}
        given |= {"ELASTIC_AI_TOKEN_FILE": f"{HOME}/token"}
    words = "env " + " ".join(f"{name}={value}" for name, value in given.items())
    return both.pair.ssh(CLIENT, f"{words} {both.python} -", program.encode(), timeout_s=900)


def test_a_pytorch_program_goes_by_the_rdma_port_with_the_bits_of_its_own_machine(torch_pair: TorchPair) -> None:
    counts = PORT_COUNTS + "print(*port_counts())"
    ends = {}
    for transport in ("", "verbs", "tcp"):
        before = [int(n) for n in torch_pair.pair.does(CLIENT, "python3 -", counts.encode()).split()]
        code, out, err = by_torch(torch_pair, PROGRAM, transport)
        after = [int(n) for n in torch_pair.pair.does(CLIENT, "python3 -", counts.encode()).split()]
        assert code == 0, err
        *lines, last = out.splitlines()
        packets = [y - x for x, y in zip(before, after, strict=True)]
        ends[transport] = (json.loads(last), [line for line in lines if line.startswith("loss")], packets)
        assert f"device {'cuda' if transport else 'cpu'}" in lines
        print(json.dumps({"transport": transport, "same, tcp bytes": json.loads(last), "packets": packets}))
    (same, tcp), losses, (sent, received) = ends["verbs"]
    assert same
    assert losses == ends[""][1] == ends["tcp"][1]
    assert len(losses) == 6
    assert min(sent, received) >= 2 * UP / LARGEST_PACKET, "each byte was in a packet of the port"
    assert tcp < 2_000
    assert ends["tcp"][2] == [0, 0], "TCP where it is asked for"
    assert ends["tcp"][0][1] > 4 * UP


def test_pytorch_without_the_other_ends_packets_is_told_and_gets_no_tcp(torch_pair: TorchPair) -> None:
    where = ("--name", torch_pair.pair.lab.name, SERVER)
    touch = "import torch; print(torch.ones(3, device='cuda').sum().item())"
    assert toolkit("lab", "fault", "set", *where, "firewall-4791").returncode == 0
    try:
        code, out, err = by_torch(torch_pair, touch, "verbs")
        print(err)
        assert (code, out) == (1, "")
        assert "is UDP port 4791 open between the two machines?" in err.splitlines()[-1]
        assert by_torch(torch_pair, touch, "tcp")[:2] == (0, "3.0\n"), "TCP would have been there"
    finally:
        toolkit("lab", "fault", "clear", *where)
