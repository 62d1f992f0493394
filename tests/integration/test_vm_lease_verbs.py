"""Whole leases over verbs on two virtual machines with Soft-RoCE: Slurm, a lease's unit, real libibverbs.

Programs run on gpu2 with a lease of gpu1's GPUs. Machines and GPUs are emulated: how fast anything is says nothing.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import NEEDS_VMS, Lab, call, toolkit

from tests.support import torch_env
from tests.support.lease_lab import json_in, left, run_as, shell, until
from tests.support.torch_env import TorchEnvError
from tests.support.torch_verbs import PROGRAM, UP

NAME = "itleaseverbs"
SERVER, CLIENT = "gpu1", "gpu2"
RUN = f"toolkit run -l {SERVER} --where client"
COPIED, LARGEST_PACKET = 4 << 20, 4096  # bytes
STEPS = 6
STILL_S = 8  # an adapter would be asked again for 4 s, and nobody's answer is waited for longer than 25 s
LOST = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
pytestmark = [pytest.mark.rest, NEEDS_VMS]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Machines with a pool whose leases go by verbs, and with PyTorch where it is here; down again afterwards."""
    inventory = tmp_path_factory.mktemp("inventory") / NAME
    try:
        torch = ("--torch", torch_env.python())
    except TorchEnvError:
        torch = ()
    up = toolkit("lab", "up", "--nodes", "vm", "--name", NAME, "--inventory", inventory, *torch, timeout_s=1800)
    assert up.returncode == 0, up.stderr
    try:
        options = ("--tags", "base,fabric,gpu,remoting,pool,acceptance")
        done = toolkit("deploy", "-i", inventory, "--", *options, timeout_s=3600)
        assert done.returncode == 0, done.stderr[-6000:]
        yield Lab(NAME, inventory)
    finally:
        toolkit("lab", "down", "--name", NAME)


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """After the test nothing of any lease is left."""
    yield
    until(lambda: left(lab), {}, 120)


def packets(lab: Lab) -> int:
    """Sent by the client's RDMA port."""
    return int(shell(lab, CLIENT, "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"))


def run(lab: Lab, words: str) -> tuple[Any, str]:
    """The program's document, and all that was said."""
    code, out = run_as(lab, "alice", f"{RUN} {words}", CLIENT)
    assert code == 0, out
    return json_in(out), out


def test_copies_of_a_lease_go_by_the_rdma_port(lab: Lab) -> None:
    before = packets(lab)
    bench, _ = run(lab, f"-n 1 -p 1/2 -- elastic-ai-copybench --json --bytes {COPIED} --latency-count 5")
    sent = packets(lab) - before
    print(json.dumps({"packets": sent, "bench": bench}))
    assert bench["verified"] is True
    assert sent >= COPIED / LARGEST_PACKET


def test_training_on_two_thirds_has_the_losses_of_the_devices_themselves(lab: Lab) -> None:
    train = f"elastic-ai-train --steps {STEPS} --batch 16 --json"
    before = packets(lab)
    remote, _ = run(lab, f"-n 2 -p 1/3 -- {train}")
    sent = packets(lab) - before
    native = json_in(shell(lab, SERVER, f"CUDA_VISIBLE_DEVICES=0,1 {train}"))
    print(json.dumps({"packets": sent, "native": native["losses"], "remote": remote["losses"]}))
    assert len(remote["losses"]) == STEPS
    assert (remote["losses"], remote["weights_sha256"]) == (native["losses"], native["weights_sha256"])
    assert sent > STEPS


def test_a_server_that_does_not_answer_for_seconds_ends_no_training(lab: Lab) -> None:
    """A machine whose processors are others' meanwhile: its Soft-RoCE acknowledges nothing, and goes on afterwards."""
    train = "elastic-ai-train --gpus 1 --steps 1000 --batch 8 --inputs 64 --hidden 32 --json"
    start = f"cd /; runuser -u alice -- {RUN} -n 1 -- {train}"
    shell(lab, CLIENT, f"({start}; echo exit $?) > /tmp/late.log 2>&1 < /dev/null & sleep 1")
    before = packets(lab)
    until(lambda: packets(lab) > before + 200, True, 120)
    (machine,) = call(["pgrep", "-f", f"^qemu-system.* -name eai-{lab.name}-{SERVER} "]).stdout.split()
    os.kill(int(machine), signal.SIGSTOP)
    try:
        time.sleep(STILL_S)
    finally:
        os.kill(int(machine), signal.SIGCONT)
    until(lambda: "exit " in shell(lab, CLIENT, "cat /tmp/late.log"), True, 300)
    said = shell(lab, CLIENT, "cat /tmp/late.log")
    print(said)
    assert "exit 0" in said
    native = json_in(shell(lab, SERVER, f"CUDA_VISIBLE_DEVICES=0 {train} 2>/dev/null"))
    remote = json_in(next(line for line in said.splitlines() if line.startswith("{")))
    assert (remote["losses"], remote["weights_sha256"]) == (native["losses"], native["weights_sha256"])


def test_pytorch_trains_by_a_lease_over_the_rdma_port_with_the_bits_of_its_own_machine(lab: Lab) -> None:
    if not lab.ssh(CLIENT, "command -v python || true"):
        pytest.skip("no Python with PyTorch was given to this lab")
    program = base64.b64encode(PROGRAM.encode()).decode()
    shell(lab, CLIENT, f"echo {program} | base64 -d > /home/alice/verbs.py")
    code, native = run_as(lab, "alice", "env OMP_NUM_THREADS=1 python /home/alice/verbs.py", CLIENT)
    assert code == 0, native
    before, began = packets(lab), time.monotonic()
    code, remote = run_as(lab, "alice", f"{RUN} -n 1 -- python /home/alice/verbs.py", CLIENT)
    sent = packets(lab) - before
    print(f"{time.monotonic() - began:.0f} s, {sent} packets\n{remote}")
    assert code == 0, remote
    assert "device cuda" in remote
    same, tcp = json.loads(next(line for line in remote.splitlines() if line.startswith("[")))
    assert same
    losses = [line for line in remote.splitlines() if line.startswith("loss ")]
    assert losses == [line for line in native.splitlines() if line.startswith("loss ")]
    assert len(losses) == 6
    assert sent >= 2 * UP / LARGEST_PACKET, "each byte was in a packet of the port"
    assert tcp < 2_000


def test_a_client_without_an_rdma_port_is_told_and_gets_no_tcp(lab: Lab) -> None:
    code, out = run_as(lab, "alice", f"{RUN} -n 1 -p 1/2 -- elastic-ai-copybench --json --bytes 1M --latency-count 5")
    print(out)
    assert code != 0
    assert "verbs to the server" in out
    assert "verified" not in out


def test_a_connection_cut_in_the_middle_ends_the_program_and_its_lease(lab: Lab) -> None:
    """RDMA's packets are dropped at the server while the program trains; TCP beside it lives on."""
    start = f"cd /; runuser -u alice -- {RUN} -n 1 -p 1/2 -- elastic-ai-train --steps 100000 --batch 16"
    shell(lab, CLIENT, f"({start}; echo exit $?) > /tmp/cut.log 2>&1 < /dev/null & sleep 1")
    before = packets(lab)
    until(lambda: packets(lab) > before + 200, True, 120)
    assert toolkit("lab", "fault", "set", "--name", NAME, SERVER, "firewall-4791").returncode == 0
    began = time.monotonic()
    try:
        until(lambda: "exit " in shell(lab, CLIENT, "cat /tmp/cut.log"), True, 120)
        seconds = time.monotonic() - began
        said = shell(lab, CLIENT, "cat /tmp/cut.log")
        print(f"{seconds:.1f} s, ssh included\n{said}")
        assert f"CUDA error {LOST}" in said or "is lost" in said
        assert "exit 0" not in said
    finally:
        toolkit("lab", "fault", "clear", "--name", NAME, SERVER)
