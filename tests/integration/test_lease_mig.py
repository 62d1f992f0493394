"""Parts as MIG instances on the lab: gpu2's emulated GPUs are divided, and leases there get instances."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from conftest import Lab

from tests.support.lease_lab import json_in, run_as, shell

GPUS, CONF = "/etc/elastic-ai-emulated/gpus.json", "/etc/elastic-ai/remoting/server.json"
DIVIDE = f"""
set -e
cp -p {GPUS} /root/gpus.json; cp -p {CONF} /root/server.json
python3 - <<'EOF'
import json
gpus = json.load(open("{GPUS}")); conf = json.load(open("{CONF}"))
for gpu in gpus["gpus"]: gpu["mig"] = "1,1,2,3"
conf["enforcement"] = "mig"
json.dump(gpus, open("{GPUS}", "w")); json.dump(conf, open("{CONF}", "w"))
EOF
"""


#: As site.yml tells the clients of it.
POOL = "/etc/elastic-ai/remoting/pool.json"
TELL = f"""
set -e
cp -p {POOL} /root/pool.json
python3 - <<'EOF'
import json
pool = json.load(open("{POOL}"))
pool["servers"]["gpu2"]["enforcement"] = "mig"
json.dump(pool, open("{POOL}", "w"))
EOF
"""


@pytest.fixture
def divided(pool: Lab) -> Iterator[Lab]:
    """gpu2's GPUs have instances of 1, 1, 2 and 3 slices of seven."""
    shell(pool, "gpu2", DIVIDE)
    shell(pool, "client1", TELL)
    yield pool
    shell(pool, "client1", f"mv /root/pool.json {POOL}")
    shell(pool, "gpu2", f"mv /root/gpus.json {GPUS}; mv /root/server.json {CONF}")


@pytest.mark.usefixtures("nothing_left")
def test_a_part_is_an_instance_and_what_no_instance_is_is_refused(divided: Lab) -> None:
    code, out = run_as(divided, "alice", "toolkit run -p 2/7 -l gpu2 -- elastic-ai-copybench --json --bytes 1M")
    assert code == 0, out
    bench = json_in(out)
    assert [(d["name"], d["memory_bytes"]) for d in bench["devices"]] == [("Emulated V100-SXM2-32GB MIG 2g", 64 << 20)]
    assert bench["verified"] is True
    assert "2/7 of a GPU is a MIG instance of 64 MiB and 22 SMs" in out
    listed = json.loads(divided.ssh("gpu2", "/usr/lib/elastic-ai/lease-server/bin/inventory"))["gpus"]
    assert [[one["slices"] for one in gpu["mig"]] for gpu in listed] == [[1, 1, 2, 3]] * 4
    code, out = run_as(divided, "alice", "toolkit run --no-kernels -p 1/4 -l gpu2 -- true")
    assert code != 0
    assert "has no MIG instance of 1/4 (there are: 1/7, 2/7, 3/7)" in out
    looks = (
        "import ctypes as c; d, n = c.CDLL('libcuda.so.1'), c.c_int(); d.cuInit(0); d.cuDeviceGetCount(c.byref(n)); "
    )
    looks += "m = c.c_size_t(); d.cuDeviceTotalMem_v2(c.byref(m), 0); print('sees', n.value, m.value >> 20)"
    code, out = run_as(
        divided, "alice", f"toolkit run --where server -p 2/7 -l gpu2 -- python3 -c {shlex.quote(looks)}"
    )
    assert (code, "sees 1 64" in out, "nothing but its environment" in out) == (0, True, True), out
