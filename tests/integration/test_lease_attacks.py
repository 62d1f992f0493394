"""What one user does on a GPU server, on the lab: it drains no server, keeps no GPU, and outlives no lease."""

from __future__ import annotations

import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Lab

from tests.support.crowds import FLOODS
from tests.support.lease_lab import IMAGE, left, run_as, shell, until

DEVICES = "/dev/shm/elastic-ai-devices"
JOB = "srun --quiet -n1 --mpi=none --chdir=/ -p all -w gpu1 --mem=50 --time=5 --oversubscribe"
SERVER = "toolkit run --where server -l gpu1"
COPY = "toolkit run -l gpu1 -p 1/4 -- elastic-ai-copybench --json --bytes 1M"
#: Sits down on all ports of leases, listening on those of the range's first half.
SITS = """
import resource, socket, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
kept = {}
end = time.monotonic() + 300
while time.monotonic() < end:
    for port in set(range(21000, 24000)) - set(kept):
        try:
            one = socket.socket()
            one.bind(("0.0.0.0", port))
            if port < 22500:
                one.listen()
            kept[port] = one
        except OSError:
            one.close()
    if len(kept) == 3000:
        open("/dev/shm/sits", "w").close()
    time.sleep(0.01)
"""
#: Takes an open file from a socket of its own user's, keeps and maps it.
TAKES = """
import mmap, socket, time
server = socket.socket(socket.AF_UNIX)
server.bind("\\0alices")
server.listen()
_data, handles, _flags, _address = socket.recv_fds(server.accept()[0], 1, 1)
kept = mmap.mmap(handles[0], 4096)
print("keeps", len(handles), flush=True)
time.sleep(301)
"""
GIVES = f"""
import os, socket, time
handle = os.open("{DEVICES}", os.O_RDWR)
for _ in range(100):
    try:
        one = socket.socket(socket.AF_UNIX)
        one.connect("\\0alices")
        break
    except OSError:
        time.sleep(0.1)
socket.send_fds(one, [b"x"], [handle])
time.sleep(1)
"""


def state(lab: Lab) -> str:
    """Of gpu1, as Slurm has it."""
    return shell(lab, "head", "sinfo -h -n gpu1 -o %T | sort -u").split()[0]


@pytest.mark.usefixtures("nothing_left")
def test_a_job_without_a_gpu_on_all_ports_drains_no_server_and_starves_no_lease(pool: Lab) -> None:
    # While the lease runs its two ports are taken; the job gets them as it ends.
    code, out = run_as(pool, "alice", "toolkit lease request -n 1 -p 1/4 -l gpu1 --time 1h --json")
    assert code == 0, out
    lease = shell(pool, "head", "squeue -h -n elastic-ai-lease -o %A").split()[0]
    with ThreadPoolExecutor(1) as worker:
        sits = worker.submit(run_as, pool, "bob", f"{JOB} python3 -c {shlex.quote(SITS)}")
        until(lambda: int(shell(pool, "gpu1", "ss -Htln | wc -l")) > 1400, True)
        try:
            assert run_as(pool, "alice", f"toolkit lease release {lease}")[0] == 0
            until(lambda: shell(pool, "gpu1", "ls /run/elastic-ai/leases").strip(), "", 60)
            assert state(pool) in ("idle", "mixed", "allocated")
            # All of them; a port of which a connection has just ended (TIME_WAIT) can be had a minute later.
            until(lambda: shell(pool, "gpu1", "ls /dev/shm/sits 2>&1; true").strip(), "/dev/shm/sits", 90)
            code, out = run_as(pool, "alice", COPY)
            assert code == 0, out
        finally:
            shell(pool, "head", "scancel -u bob; true")
            shell(pool, "gpu1", "rm -f /dev/shm/sits")
        assert sits.result(60)[0] != 0
    told = shell(pool, "gpu1", "journalctl -o cat -t elastic-ai-lease --since -2min")
    assert "of the leases' ports, and is ended" in told, told
    until(lambda: state(pool), "idle", 60)


@pytest.mark.usefixtures("nothing_left")
def test_a_gpu_that_was_passed_on_does_not_outlive_its_job(pool: Lab) -> None:
    with ThreadPoolExecutor(1) as worker:
        takes = worker.submit(run_as, pool, "alice", f"{JOB} python3 -c {shlex.quote(TAKES)}")
        try:
            gives = run_as(pool, "alice", f"{JOB} --gres=gpu:1 python3 -c {shlex.quote(GIVES)}")
            assert gives[0] == 0, gives
            code, out = takes.result(60)
        finally:
            shell(pool, "head", "scancel -u alice; true")
    assert "keeps 1" in out, out
    assert code != 0
    until(lambda: pool.processes("gpu1", "time.sleep.301"), "")
    told = shell(pool, "gpu1", "journalctl -o cat -t elastic-ai-lease --since -2min")
    assert f"has {DEVICES}" in told, told
    until(lambda: state(pool), "idle", 60)


#: Ten containers at once by the helper that sudo lets everybody run.
TEN = """
echo '{}' > /dev/shm/none-$$
for number in 1 2 3 4 5 6 7 8 9 10; do
    sudo -n /usr/lib/elastic-ai/lease-server/bin/container run --job=$SLURM_JOB_ID --image=elastic-ai-test:1 \
        --folder=/ --environment=/dev/shm/none-$$ -- sleep 3146 &
done
wait
"""
#: Containers of leases; that of the training is there all the time.
OURS = "docker ps -aq --filter label=elastic-ai-lease"
LIMITS = "{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}}"


@pytest.mark.usefixtures("nothing_left")
def test_containers_end_with_their_lease_and_have_its_limits(pool: Lab) -> None:
    shell(pool, "gpu1", IMAGE)
    try:
        for pause_s in (0.3, 2.0):
            with ThreadPoolExecutor(1) as worker:
                ten = worker.submit(run_as, pool, "alice", f"{SERVER} -- sh -c {shlex.quote(TEN)}")
                until(lambda: "sudo" in pool.processes("gpu1", "^sudo -n /usr/lib/elastic-ai"), True, 60)
                time.sleep(pause_s)
                shell(pool, "head", "scancel -u alice")
                ten.result(180)  # docker has ten to begin and to end
            until(lambda: left(pool), {}, 60)
            until(lambda: shell(pool, "gpu1", OURS), "", 90)  # the sweep comes twice a minute
            assert pool.processes("gpu1", "^sleep 3146") == ""
        until(lambda: state(pool), "idle", 60)
        with ThreadPoolExecutor(1) as worker:
            one = worker.submit(run_as, pool, "alice", f"{SERVER} --image elastic-ai-test:1 --folder / -- sleep 3147")
            until(lambda: pool.processes("gpu1", "^sleep 3147").count("sleep"), 1, 60)
            told = shell(pool, "gpu1", f"docker inspect -f '{LIMITS}' $({OURS})").split()
            shell(pool, "head", "scancel -u alice")
            one.result(180)
        pids, memory, swap, cpus = map(int, told)
        assert (pids, memory, swap) == (4096, swap, memory)
        assert min(memory, cpus) > 0
    finally:
        shell(pool, "gpu1", "docker image rm -f elastic-ai-test:1; rm -f /dev/shm/none-*")


@pytest.mark.usefixtures("nothing_left")
def test_a_stranger_on_the_owners_machine_keeps_nobody_out(pool: Lab) -> None:
    """He has the owner's address, and connects as fast as he can to both ports of the lease."""
    assert run_as(pool, "alice", "toolkit lease request -n 1 -p 1/4 -l gpu1 --time 1h --json")[0] == 0
    lease = shell(pool, "head", "squeue -h -n elastic-ai-lease -o %A").split()[0]
    told = json.loads(shell(pool, "gpu1", f"cat /run/elastic-ai/leases/{lease}/instance.json"))
    unit = f"elastic-ai-lease@{lease}.service"
    words = f"python3 -c {shlex.quote(FLOODS.replace('127.0.0.1', told['address']))}"
    flood = "".join(f"{words} {told[port]} x & {words} {told[port]} '' & " for port in ("port", "agent_port"))
    with ThreadPoolExecutor(1) as worker:
        floods = worker.submit(run_as, pool, "bob", f"timeout 25 sh -c {shlex.quote(f'{flood}wait')}")
        until(lambda: pool.processes("client1", "^python3 -c").count("import socket"), 4)
        for _ in range(3):
            code, out = run_as(pool, "alice", f"toolkit run --lease {lease} -- elastic-ai-copybench --json --bytes 1M")
            assert code == 0, out
        shell(pool, "client1", "pkill -u bob -x timeout; true")
        floods.result(60)
    lines = int(shell(pool, "gpu1", f"journalctl -o cat -u {unit} | wc -l"))
    assert lines < 1000, lines
    assert run_as(pool, "alice", f"toolkit lease release {lease}")[0] == 0
