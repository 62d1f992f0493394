"""The emulated GPUs and the reference engine on a lab that nothing was provisioned on: from the client over the fabric
to two servers, with verified data, and what a cut network leaves behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator

import pytest
import yaml
from conftest import Lab

from toolkit.engine import build
from toolkit.lab import lab as labs
from toolkit.lab.devices import GPU_CONTEXT_BYTES
from toolkit.lab.network import BUCKET_S
from toolkit.lab.spec import LabSpec
from toolkit.lease.programs import copybench

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
]
HOME = "root/opt/engine-test"
NVML = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1"); assert nvml.nvmlInit_v2() == 0
n = ctypes.c_uint(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)); out = []
for i in range(n.value):
    h = ctypes.c_void_p(); nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(h)); t = ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetUUID(h, t, 96); m = (ctypes.c_ulonglong * 3)(); nvml.nvmlDeviceGetMemoryInfo(h, m)
    out.append([t.value.decode(), m[0], m[2]])
print(json.dumps(out))
"""
HOLD = """
import ctypes, sys, time
sys.path.insert(0, "/opt/engine-test")
from copybench import Cuda, CudaError
cuda = Cuda(); cuda.cuInit(0); c = ctypes.c_void_p(); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)
cuda.cuCtxSetCurrent(c); p = ctypes.c_uint64(); cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64 << 20))
print("holds", flush=True); sys.stdin.readline(); began = time.monotonic()
try: cuda.cuCtxSynchronize()
except CudaError as e: print(e.code, time.monotonic() - began, flush=True)
"""


@pytest.fixture(scope="module")
def spec(lab: Lab) -> Iterator[LabSpec]:
    """The lab with addresses on the fabric, and the engine of its inventory beside the copy benchmark on every node."""
    found = labs.load(lab.name)
    variables = yaml.safe_load((lab.inventory / "hosts.yml").read_text())["all"]["vars"]
    for node in found.nodes:
        home = found.node_dir(node) / HOME
        home.mkdir(parents=True)
        with tarfile.open(variables["remoting_engine_artifact"]) as tar:
            tar.extractall(home)  # our own
        shutil.copy(copybench.__file__, home)
        for name, text in {"nvml.py": NVML, "hold.py": HOLD, "token": "a-token-of-the-engine-test\n"}.items():
            (home / name).write_text(text)
        address = found.fabric_address(node)
        lab.ssh(node.name, f"ip addr add {address}/24 dev fab0; ip link set fab0 mtu 9000 up")
    yield found
    for node in found.nodes:
        clean = "pkill -x elastic-ai-refs; ip addr flush dev fab0; ip link set fab0 down; rm -r /opt/engine-test"
        lab.ssh(node.name, clean)


def serve(lab: Lab, spec: LabSpec, name: str, port: int) -> None:
    """A server on that node for client1's fabric address."""
    client = spec.fabric_address(spec.node("client1"))
    address = spec.fabric_address(spec.node(name))
    command = f"/opt/engine-test/bin/elastic-ai-refserver --bind {address} --port {port} --allow {client}"
    options = "--token-file /opt/engine-test/token --memory-limit 134217728"
    lab.ssh(name, f"setsid {command} {options} </dev/null >/dev/null 2>&1 &")


def environment(spec: LabSpec, port: int, *servers: str) -> str:
    """Words before a client's command."""
    places = ",".join(f"{spec.fabric_address(spec.node(s))}:{port}" for s in servers)
    settings = f"ELASTIC_AI_SERVERS={places} ELASTIC_AI_TOKEN_FILE=/opt/engine-test/token"
    return f"env LD_LIBRARY_PATH=/opt/engine-test/lib {settings}"


def inventory_of(lab: Lab, node: str) -> list[tuple[str, int, int]]:
    """uuid, bytes and used bytes of each GPU."""
    return [tuple(g) for g in json.loads(lab.ssh(node, "python3 /opt/engine-test/nvml.py"))]


def test_every_gpu_server_has_its_own_devices(lab: Lab, spec: LabSpec):
    seen = {n: inventory_of(lab, n) for n in ("gpu1", "gpu2")}
    assert [len(g) for g in seen.values()] == [4, 4]
    assert len({uuid for gpus in seen.values() for uuid, *_ in gpus}) == 8
    assert all((size, used) == (256 << 20, 0) for gpus in seen.values() for _, size, used in gpus)
    for node in ("head", "client1"):
        assert "libcuda" not in lab.ssh(node, "ldconfig -p")


def test_copies_over_the_fabric_are_right_and_near_to_the_link(lab: Lab, spec: LabSpec):
    for name in ("gpu1", "gpu2"):
        serve(lab, spec, name, 7001)
    time.sleep(1)
    program = "python3 /opt/engine-test/copybench.py --bytes 16M --repeat 2 --latency-count 5 --json"
    document = json.loads(lab.ssh("client1", f"{environment(spec, 7001, 'gpu1', 'gpu2')} {program}"))
    assert document["verified"]
    assert document["emulated"]
    assert len(document["pairs"]) == 80
    assert [d["memory_bytes"] for d in document["devices"]] == [128 << 20] * 8
    # That the shaped link of 1 Gbit/s carries them: 0.125 GB/s, but for the tokens that its bucket had saved.
    over_link = [p for p in document["pairs"] if "H" in (p["source"], p["target"])]
    saved = BUCKET_S * 0.125e9 / (16 << 20)
    assert max(max(p["bandwidth_gb_s"]) for p in over_link) < 0.13 / (1 - saved)


def test_another_machine_is_turned_away(lab: Lab, spec: LabSpec):
    serve(lab, spec, "gpu1", 7002)
    time.sleep(1)
    program = f"{environment(spec, 7002, 'gpu1')} python3 /opt/engine-test/copybench.py --bytes 1M --repeat 1"
    assert "46" in lab.ssh("gpu2", f"{program} 2>&1; test $? = 2")
    assert "all data were right" in lab.ssh("client1", program)


def test_a_cut_network_ends_both_sides(lab: Lab, spec: LabSpec):
    serve(lab, spec, "gpu2", 7003)
    time.sleep(1)
    node = spec.node("client1")
    words = ["ssh", "-i", str(spec.dir / "id_ed25519"), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", f"root@{spec.management_address(node)}"]
    words += [f"{environment(spec, 7003, 'gpu2')} python3 /opt/engine-test/hold.py"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "holds\n"
        assert sum(used for *_, used in inventory_of(lab, "gpu2")) == (64 << 20) + GPU_CONTEXT_BYTES
        lab.ssh("gpu2", "ip link set fab0 down")
        try:
            holder.stdin.write("\n")
            holder.stdin.flush()
            code, seconds = holder.stdout.readline().split()
            assert code == "46"
            assert float(seconds) < 40
            until = time.monotonic() + 40
            while any(used for *_, used in inventory_of(lab, "gpu2")):
                assert time.monotonic() < until, "the server's child still holds memory"
                time.sleep(1)
        finally:
            lab.ssh("gpu2", "ip link set fab0 up")
