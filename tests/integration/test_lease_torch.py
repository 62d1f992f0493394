"""PyTorch by a lease on the lab: its ordinary wheel on client1, kernels on a server's processor, bits of native."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import NODES, ROOT, Lab, toolkit

from tests.support import torch_env, torch_wire
from tests.support.lease_lab import SERVERS, json_in, run_as, shell, until
from tests.support.notebook_lab import CELL, FIRST, LOOPS, TRAINS, WAITS, cells, in_environment, served, with_jupyter
from tests.support.recap import recap
from tests.support.torch_env import TorchEnvError
from toolkit.lab.frameworks import TORCH

LONG = """import time, torch
x = torch.ones(2, device="cuda")
print("ready", x.sum().item(), flush=True)
for _ in range(400):
    time.sleep(0.1)
    x.add_(1).sum().item()
"""
#: Sums of 64 MiB in all, each rank's on a server of its own, and a copy between them.
#: Ranks share their output, and torch's launcher has it unbuffered: each line is written by one call.
SUMS = """import os, sys, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4 << 20, device="cuda")
for _ in range(4):
    dist.all_reduce(x)
there = x.to(f"cuda:{1 - rank}")
sys.stdout.write(f"line {rank} {x[0].item()} {x[-1].item()} {there.sum().item()}\\n")
said = sys.modules["elastic_ai_torch.start"].statistics()
sys.stdout.write(f"carried {said['bytes_down'] + said['bytes_up']}\\n")
dist.barrier()
dist.destroy_process_group()
"""
#: Sums without an end, until one fails.
ENDLESS = """import os, time, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1 << 18, device="cuda")
try:
    for number in range(10**9):
        dist.all_reduce(x)
        x.fill_(1)
        if number % 20 == 0:
            x.sum().item()
            last = time.monotonic()
            if number == 20:
                os.write(1, b"goes on\\n")
except RuntimeError as fault:
    os.write(1, f"silent for {time.monotonic() - last} then {str(fault).splitlines()[0]}\\n".encode())
    os._exit(3)
"""
#: On a server: nothing from there, nothing to there.
CUT = """nft -f - <<'END'
table inet cut {{
  chain from {{ type filter hook input priority -20; ip saddr {0} drop; }}
  chain to {{ type filter hook output priority -20; ip daddr {0} drop; }}
}}
END
"""
#: Comes to a port as another server of the lease would, without the servers' secret.
FORGE = """import socket, sys
try:
    one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
    one.sendall(bytes.fromhex(sys.argv[3]))
    print(one.recv(4096))
except OSError as fault:
    print("no answer:", fault)
"""
RANKS = "python -m torch.distributed.run --nproc-per-node 2"
MIB = 1 << 20
#: Bytes that came to the client and left it, all interfaces but loopback.
CARRIED = "sed -e '1,2d' -e 's/:/ /' /proc/net/dev"
TRAIN = "python /home/alice/resnet.py --steps 3 --depth 26"


@pytest.fixture(scope="module")
def torch_lab(pool: Lab) -> Iterator[Lab]:
    """The lab with the engine for PyTorch beside the reference engine."""
    try:
        python = torch_env.python()
    except TorchEnvError as fault:
        pytest.skip(str(fault))
    up = toolkit("lab", "up", "--name", pool.name, "--inventory", pool.inventory, "--torch", python, timeout_s=1800)
    assert up.returncode == 0, up.stderr
    done = pool.playbook(name="playbooks/remoting.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    again = pool.playbook("--tags", "remoting,acceptance")
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(NODES, 0)
    for program in (ROOT / "examples/resnet.py", ROOT / "examples/gpt.py", ROOT / "tests/torch_programs/parallel.py"):
        pool.ssh("client1", f"cat > /home/alice/{program.name} <<'END'\n{program.read_text()}\nEND\n")
    yield pool
    # What is not the site's own, and would be found after its teardown.
    for node in NODES:
        pool.ssh(node, "rm /" + " /".join(TORCH.commands))
    programs = ("resnet.py", "gpt.py", "parallel.py", "sums.py", "long.py")
    pool.ssh("client1", f"rm -f {' '.join(f'/home/alice/{name}' for name in programs)}")


def losses(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("loss ")]


@pytest.mark.usefixtures("nothing_left")
def test_an_unchanged_program_trains_with_the_bits_of_native(torch_lab: Lab) -> None:
    code, native = run_as(torch_lab, "alice", f"env OMP_NUM_THREADS=1 {TRAIN}")
    assert code == 0, native
    code, remote = run_as(torch_lab, "alice", f"toolkit run -- {TRAIN}")
    assert code == 0, remote
    assert "python runs here, its GPUs by the engine torch: resnet.py:" in remote
    assert "device cuda" in remote
    assert "device cpu" in native
    assert len(losses(native)) == 3
    assert losses(remote) == losses(native)


@pytest.mark.usefixtures("nothing_left")
def test_two_users_train_with_a_third_each_beside_a_program_on_two_servers(torch_lab: Lab) -> None:
    """Each with the bits of native: gloo's for DDP and FSDP over the servers."""
    torch_lab.ssh("client1", "install -m 644 /home/alice/gpt.py /var/tmp/gpt.py")
    train = "python /var/tmp/gpt.py --steps 4"
    ranks = f"{RANKS} --local-ranks-filter 0 /home/alice/parallel.py"
    code, native = run_as(torch_lab, "alice", f"env OMP_NUM_THREADS=1 {train}")
    assert code == 0, native
    code, gloo = run_as(torch_lab, "alice", f"env BACKEND=gloo {ranks}")
    assert code == 0, gloo
    with ThreadPoolExecutor(3) as worker:
        thirds = [worker.submit(run_as, torch_lab, u, f"toolkit run -p 1/3 -- {train}") for u in ("alice", "bob")]
        code, both = worker.submit(run_as, torch_lab, "alice", f"toolkit run -n 2 -p 1/3 --apart -- {ranks}").result()
    assert code == 0, both
    assert len(lines(gloo)) > 30
    assert lines(both) == lines(gloo)
    for third in thirds:
        code, out = third.result()
        assert code == 0, out
        assert len(losses(out)) == 4
        assert losses(out) == losses(native)
    torch_lab.ssh("client1", "rm /var/tmp/gpt.py")


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("line ")]


def carried(lab: Lab) -> int:
    rows = [line.split() for line in lab.ssh("client1", CARRIED).splitlines()]
    return sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo")


@pytest.mark.parametrize("gpus", ["-n 2 --apart", "-n 2"])
@pytest.mark.usefixtures("nothing_left")
def test_sums_and_copies_between_gpus_do_not_pass_the_client(torch_lab: Lab, gpus: str) -> None:
    """Of two servers, and of one."""
    torch_lab.ssh("client1", f"cat > /home/alice/sums.py <<'END'\n{SUMS}\nEND\n")
    before = carried(torch_lab)
    code, out = run_as(torch_lab, "alice", f"toolkit run {gpus} -- {RANKS} /home/alice/sums.py")
    passed = carried(torch_lab) - before
    assert code == 0, out
    assert sorted(line for line in out.splitlines() if line.startswith("line ")) == [
        f"line {rank} 16.0 16.0 {16.0 * (4 << 20)}" for rank in (0, 1)
    ], out
    by_engine = [int(line.split()[1]) for line in out.splitlines() if line.startswith("carried ")]
    assert len(by_engine) == 2
    assert max(by_engine) < MIB, out
    # Whoever sent it, the site's own exporters and logs included. By the client it would be 320: two ranks' four sums
    # of 16 each way, and their copies.
    assert passed < 64 * MIB, f"{passed / MIB:.0f} MiB"


@pytest.mark.rest  # the kernel gives up after half a minute
@pytest.mark.usefixtures("nothing_left")
def test_a_cut_between_two_servers_ends_a_sum_within_the_keep_alive(torch_lab: Lab) -> None:
    torch_lab.ssh("client1", f"cat > /home/alice/long.py <<'END'\n{ENDLESS}\nEND\n")
    start = f"runuser -u alice -- toolkit run -n 2 -p 0.5 --apart -- {RANKS} /home/alice/long.py; echo; echo exit $?"
    torch_lab.ssh("client1", f"(cd /; {start}) < /dev/null > /root/long.log 2>&1 &")

    def log() -> str:
        return torch_lab.ssh("client1", "cat /root/long.log")

    until(lambda: "goes on" in log(), True, 120)
    other = json.loads(torch_lab.ssh("gpu2", "cat /run/elastic-ai/leases/*/instance.json"))["address"]
    shell(torch_lab, "gpu1", CUT.format(other))
    try:
        until(lambda: "\nexit " in log(), True, 120)
    finally:
        torch_lab.ssh("gpu1", "nft delete table inet cut")
    said = [line for line in log().splitlines() if line.startswith("silent for")]
    assert said, log()
    assert all("a rank has ended or cannot be reached" in line for line in said)
    assert all(float(line.split()[2]) < 45 for line in said), said
    torch_lab.ssh("client1", "rm /root/long.log")


@pytest.mark.usefixtures("nothing_left")
def test_no_client_and_no_other_program_of_a_server_passes_for_a_server_of_a_lease(torch_lab: Lab) -> None:
    """Its engines' ports, from everywhere, with everything but the servers' secret."""
    code, out = run_as(torch_lab, "alice", "toolkit lease request --engine torch -n 2 -p 0.5 --apart --time 0.2h")
    assert code == 0, out
    lease = out.split("lease ")[1].split(":")[0].split()[0]
    record, secret = (f"cat /run/elastic-ai/leases/*/{name}" for name in ("instance.json", "peer-token"))
    servers = {node: json.loads(torch_lab.ssh(node, record)) for node in SERVERS}
    peers = servers["gpu1"]["peers"]
    assert peers == servers["gpu2"]["peers"] == [{k: servers[node][k] for k in ("address", "port")} for node in SERVERS]
    assert torch_lab.ssh("gpu1", secret) == torch_lab.ssh("gpu2", secret)
    for node, user in (("gpu1", "bob"), ("gpu2", "alice")):
        assert run_as(torch_lab, user, f"bash -c '{secret}'", node)[0] != 0
    hello = torch_wire.hello("x" * 64, magic=b"EAIPEER\n").hex()
    tries = [("head", "bob", "no answer"), ("client1", "alice", "does not know this token")]
    for node, address in ((node, servers[node]["address"]) for node in SERVERS):
        other = next(one for one in SERVERS if one != node)
        for where, user, wanted in (*tries, (other, "bob", "does not know this token")):
            torch_lab.ssh(where, f"cat > /var/tmp/forge.py <<'END'\n{FORGE}\nEND\n")
            forge = f"python3 /var/tmp/forge.py {address} {servers[node]['port']} {hello}"
            said = run_as(torch_lab, user, forge, where)[1]
            torch_lab.ssh(where, "rm /var/tmp/forge.py")
            assert wanted in said, (where, node)
    code, out = run_as(torch_lab, "alice", f"toolkit lease release {lease}")
    assert code == 0, out


@pytest.mark.usefixtures("nothing_left")
def test_two_parts_and_leases_of_both_engines_at_a_time(torch_lab: Lab) -> None:
    code, out = run_as(torch_lab, "alice", "toolkit lease request --engine torch -n 2 -p 0.5 --time 0.2h")
    assert code == 0, out
    lease = out.split("lease ")[1].split(":")[0].split()[0]
    code, out = run_as(torch_lab, "bob", "toolkit run -- elastic-ai-copybench --json --bytes 1M --latency-count 5")
    assert code == 0, out
    count = "import torch; print('devices', torch.cuda.device_count(), torch.ones(2, device='cuda:1').sum().item())"
    code, out = run_as(torch_lab, "alice", f'toolkit run --lease {lease} -- python -c "{count}"')
    assert (code, "devices 2 2.0" in out) == (0, True), out
    code, out = run_as(torch_lab, "alice", f"toolkit run --lease {lease} -- elastic-ai-copybench")
    assert code == 2, "of a lease of the engine torch it would see nothing"
    code, out = run_as(torch_lab, "alice", f"toolkit lease release {lease}")
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("python3 /home/alice/resnet.py", "/usr/bin/python3 has no PyTorch"),
        ("--engine reference -- python /home/alice/resnet.py", "for which the engine here (reference) is not enough"),
        (
            "--engine lupine -- python /home/alice/resnet.py",
            "the engine lupine is not installed here (it has reference and torch)",
        ),
        ("--where client -- python -c 'import jax'", "for which no engine here is enough (reference, torch)"),
    ],
)
def test_what_cannot_run_is_told_before_anything_is_leased(torch_lab: Lab, words: str, said: str) -> None:
    code, out = run_as(torch_lab, "alice", f"toolkit run {words}")
    assert code == 2, out
    assert said in out
    assert len(out.splitlines()) == 1


@pytest.mark.usefixtures("nothing_left")
def test_a_server_that_dies_is_an_error_of_the_program(torch_lab: Lab) -> None:
    torch_lab.ssh("client1", f"cat > /home/alice/long.py <<'END'\n{LONG}\nEND\n")
    start = "runuser -u alice -- toolkit run -- python /home/alice/long.py; echo ended"
    torch_lab.ssh("client1", f"(cd /; {start}) < /dev/null > /root/long.log 2>&1 &")

    def log() -> str:
        return torch_lab.ssh("client1", "cat /root/long.log")

    until(lambda: "ready" in log(), True, 120)
    for node in SERVERS:
        torch_lab.ssh(node, "pkill -9 -f [e]lastic-ai-torchserver || true")
    until(lambda: "ended" in log(), True, 60)
    assert "Error" in log()
    assert "has ended" in log(), "toolkit run says why"
    torch_lab.ssh("client1", "rm /root/long.log")


@pytest.mark.usefixtures("nothing_left")
def test_a_lease_computes_with_more_than_its_part_until_somebody_else_comes(torch_lab: Lab) -> None:
    def quota(lease: int) -> str:
        unit = f"elastic-ai-lease@{lease}.service"
        return shell(torch_lab, "gpu1", f"systemctl show --property=CPUQuotaPerSecUSec --value {unit}").strip()

    request = "toolkit lease request --engine torch -l gpu1 --time 5m --json"
    code, out = run_as(torch_lab, "alice", f"{request} -p 1/4 --up-to 1")
    assert code == 0, out
    assert "it computes with up to 1 of each GPU while nobody else has it" in out
    alices = json_in(out)["lease"]
    until(lambda: quota(alices), "1s")  # a lease that is just ending is somebody else too
    code, out = run_as(torch_lab, "bob", f"{request} -n 4 -p 3/4")  # so that one of them is on alice's GPU
    assert code == 0, out
    assert quota(alices) == "250ms"
    assert run_as(torch_lab, "bob", f"toolkit lease release {json_in(out)['lease']}")[0] == 0
    until(lambda: quota(alices), "1s")
    assert run_as(torch_lab, "alice", f"toolkit lease release {alices}")[0] == 0


@pytest.mark.usefixtures("nothing_left")
def test_the_first_run_of_a_newcomer_needs_nothing_but_its_python(torch_lab: Lab) -> None:
    """From any folder, with an environment that has PyTorch: the GPUs come by the engine, and one sentence where it
    would see none."""
    shell(torch_lab, "client1", f"install -d -o alice /tmp/a/folder; cat > /tmp/a/folder/train.py <<'END'\n{FIRST}END")
    began = time.monotonic()
    code, out = in_environment(torch_lab, "cd /tmp/a/folder && toolkit run train.py")
    print(f"first run by the engine torch: {time.monotonic() - began:.1f} s")
    assert (code, "sees 1 3.0" in out.splitlines()) == (0, True), out
    told = [line for line in out[: out.index("sees 1 3.0")].splitlines() if ": waits for " not in line]
    assert told[0].startswith("python3 runs here, its GPUs by the engine torch: train.py:1 imports torch"), out
    assert told[1].startswith("lease ") and told[1].endswith("; PyTorch sees 1 GPU"), out  # noqa: PT018 - one line
    assert len([line for line in told if "emulated GPU" not in line and "its PyTorch computes" not in line]) <= 4, out
    code, out = run_as(torch_lab, "alice", "sh -c 'cd /tmp/a/folder && toolkit run train.py'")
    assert (code, "sees 1 3.0" in out.splitlines()) == (0, True), out
    assert out.startswith("python runs here, its GPUs by the engine torch"), "python3 is the system's, without PyTorch"
    before = shell(torch_lab, "head", "scontrol show config | grep -i ^NEXT_JOB_ID")
    code, out = in_environment(torch_lab, "cd /tmp/a/folder && CUDA_VISIBLE_DEVICES= toolkit run train.py")
    assert (code, "PyTorch would see no GPU" in out, len(out.splitlines())) == (2, True, 1), out
    assert shell(torch_lab, "head", "scontrol show config | grep -i ^NEXT_JOB_ID") == before, "a job was submitted"
    shell(torch_lab, "client1", "rm -r /tmp/a")


@pytest.fixture(scope="module")
def jupyter(torch_lab: Lab) -> Iterator[Lab]:
    """The lab, where alice has a notebook server."""
    with with_jupyter(torch_lab):
        yield torch_lab


@pytest.mark.usefixtures("nothing_left")
def test_notebooks_here_have_gpus_by_the_engine_until_their_lease_ends(jupyter: Lab) -> None:
    lease, url = served(jupyter, "-p 1/2 --folder /home/alice")
    said = cells(
        jupyter, url, ("cell", CELL, "cells 42"), ("cell", TRAINS, "trained to"), ("cell", LOOPS, "loops"),
        ("interrupt", "KeyboardInterrupt"), ("restart",), ("cell", TRAINS, "trained to"),
    )  # fmt: skip
    assert "on client1" in said[0]
    assert "trained to 3.28" in said[1]
    assert "KeyboardInterrupt" in said[3]
    assert "trained to 3.28" in said[5], "the GPU is there again"
    assert url in run_as(jupyter, "alice", f"toolkit logs {lease}")[1]
    code, out = run_as(jupyter, "bob", f"toolkit logs {lease}")
    assert (code, url in out) == (2, False), out
    with ThreadPoolExecutor(1) as worker:
        words = f"lease {lease} has ended"
        waits = worker.submit(cells, jupyter, url, ("cell", TRAINS + WAITS, "trained to"), ("wait", words))
        until(
            lambda: jupyter.ssh("client1", "ls /home/alice/waits 2>/dev/null || true").strip(), "/home/alice/waits", 90
        )
        assert run_as(jupyter, "alice", f"toolkit lease release {lease}")[0] == 0
        assert words in waits.result()[1]


@pytest.mark.usefixtures("nothing_left")
def test_notebooks_on_the_server_have_its_gpus_and_are_nobody_elses(jupyter: Lab) -> None:
    lease, url = served(jupyter, "-l gpu1 --where server --folder /home/alice")
    (said,) = cells(jupyter, url, ("cell", CELL, "cells 42"))
    assert "on gpu1" in said
    assert said.count("GPU-") == 1, said
    port = url.split(":")[2].split("/")[0]
    get = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/api/contents?token=0', timeout=9)"
    assert "403" in run_as(jupyter, "bob", f'python3 -c "{get}"')[1]
    assert url.split("token=")[1] not in jupyter.ssh("gpu1", "ps -eo args")
    assert run_as(jupyter, "alice", f"toolkit lease release {lease}")[0] == 0
    until(lambda: jupyter.processes("gpu1", "ipykernel_launcher"), "")
