"""Programs of `toolkit run` on the GPU server itself, on the lab: real Slurm, agents and device files."""

from __future__ import annotations

import shlex
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Lab

from tests.support.lease_lab import IMAGE, run_as, shell, until

DEVICES = "/dev/shm/elastic-ai-devices"
#: Devices that a program sees, with their UUIDs.
SEES = """
import ctypes as c
d, n, u = c.CDLL("libcuda.so.1"), c.c_int(), (c.c_ubyte * 16)()
print(d.cuInit(0), d.cuDeviceGetCount(c.byref(n)), n.value)
"""
HERE = "toolkit run --where server"


def steps(pool: Lab) -> str:
    """Jobs of leases, on the controller."""
    return shell(pool, "head", "squeue -h -n elastic-ai-lease -o '%A %T'; true").strip()


@pytest.mark.usefixtures("nothing_left")
def test_a_program_on_the_server_has_its_gpus_and_no_others(pool: Lab) -> None:
    code, out = run_as(pool, "alice", f"{HERE} -n 2 -- python3 -c {shlex.quote(SEES)}")
    assert (code, "0 0 2" in out.splitlines()) == (0, True), out
    code, out = run_as(pool, "alice", "toolkit run -n 2 -- sh -c 'hostname; exit 7'")
    assert (
        code,
        "sh runs on the server itself: the engine here (reference) runs kernels by the driver API alone" in out,
    ) == (7, True), out
    assert [line for line in out.splitlines() if line.startswith("gpu")], out


@pytest.mark.usefixtures("nothing_left")
def test_input_output_and_signals_are_the_programs(pool: Lab) -> None:
    command = f"head -c 3000000 /dev/zero | {HERE} -n 1 -- sh -c 'cat; echo no >&2' 2>/dev/null | sha256sum"
    _code, out = run_as(pool, "alice", f"sh -c {shlex.quote(command)}")
    assert out.split()[0] == shell(pool, "head", "head -c 3000000 /dev/zero | sha256sum").split()[0]
    assert run_as(pool, "alice", f"{HERE} -n 1 -- sh -c 'kill -9 $$'")[0] == 137
    code, out = run_as(pool, "alice", f"{HERE} -n 1 -- no-such-program")
    assert (code, "has no program no-such-program" in out) == (2, True), out


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("number", "code"), [("INT", 130), ("TERM", 143), ("KILL", 137)])
def test_an_interrupted_program_leaves_nothing_on_the_server(pool: Lab, number: str, code: int) -> None:
    with ThreadPoolExecutor(1) as worker:
        running = worker.submit(run_as, pool, "alice", f"{HERE} -n 1 -l gpu1 -- sh -c 'sleep 3141 & sleep 3142'")
        until(lambda: pool.processes("gpu1", "^sleep 314").count("sleep"), 2, 60)
        time.sleep(1)
        shell(pool, "client1", f"pkill -{number} -u alice -f '^/usr/bin/python3 /usr/bin/toolkit run'")
        ended, out = running.result(60)
    assert ended == code, out
    until(lambda: pool.processes("gpu1", "^sleep 314"), "")
    until(lambda: steps(pool), "", 30)


@pytest.mark.usefixtures("nothing_left")
def test_what_is_not_for_a_program_on_the_server_is_one_sentence(pool: Lab) -> None:
    for words, said in (
        ("--where server -p 1/2 -- true", "no server can hold a program there to a part"),
        ("-p 1/2 -- true", "can run neither here nor on the server"),
        ("--where client -- true", "by which it would find no GPU"),
        ("--where server -n 9 -- true", "the pool has 8 GPUs"),
        ("--where server --image no-such:1 -- true", "has no image no-such:1"),
        ("--where server -n 8 -- no-such-program", "cannot run on gpu1, gpu2: the server has no program no-such"),
        ("--where server -t -- true", "no terminal here"),
    ):
        code, out = run_as(pool, "alice", f"toolkit run {words}")
        assert (code, said in out) == (2, True), out
    code, out = run_as(pool, "alice", f"{HERE} -n 2 --mpi pmix7 -- true")
    assert (code, "Invalid MPI type 'pmix7'" in out) == (75, True), out


@pytest.mark.usefixtures("nothing_left")
def test_device_files_are_closed_again_and_the_policy_holds(pool: Lab) -> None:
    access = f"getfacl -c {DEVICES} 2>/dev/null | grep -c user:; stat -c '%a %U %G' {DEVICES}"
    before = shell(pool, "gpu1", f"{access}; true")
    assert run_as(pool, "alice", f"{HERE} -l gpu1 -- sh -c 'test -w {DEVICES}'")[0] == 0
    until(lambda: shell(pool, "gpu1", f"{access}; true"), before)
    conf = "/etc/elastic-ai/remoting/server.json"
    change = r"""s/"native_jobs": *"whole"/"native_jobs": "none"/"""
    shell(pool, "gpu1", f"cp -p {conf} /root/server.json; sed -i '{change}' {conf}")
    try:
        code, out = run_as(pool, "alice", f"{HERE} -l gpu1 -- true")
    finally:
        shell(pool, "gpu1", f"mv /root/server.json {conf}")
    assert (code, "lets no programs of" in out) == (75, True), out


@pytest.mark.usefixtures("nothing_left")
def test_a_program_on_two_servers_is_one_program(pool: Lab) -> None:
    """Its processes find each other, and the first that fails is its exit code."""
    tells = "echo $NODE_RANK $NNODES $(hostname) $MASTER_ADDR $(sort $ELASTIC_AI_HOSTFILE)"
    code, out = run_as(pool, "alice", f"{HERE} -n 8 -- sh -c {shlex.quote(tells)}")
    hosts = [pool.ssh(node, "hostname -I").split() for node in ("gpu1", "gpu2")]
    lines = sorted(line for line in out.splitlines() if line[:3] in ("0 2", "1 2"))
    assert (code, [line.split()[2] for line in lines]) == (0, ["gpu1", "gpu2"]), out
    assert len({line.split()[3] for line in lines} & set(hosts[0])) == 1, out
    assert out.count("slots=4") == 4, out
    fails = "if [ $NODE_RANK = 1 ]; then exit 7; fi; sleep 3143 & sleep 3144"
    code, out = run_as(pool, "alice", f"{HERE} -n 2 --apart -- sh -c {shlex.quote(fails)}")
    assert (code, "process 1 on gpu2 ended with exit code 7; the others are ended" in out) == (7, True), out
    until(lambda: pool.processes("gpu1", "^sleep 314"), "")
    ranks = "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK here"
    code, out = run_as(pool, "alice", f"{HERE} -n 4 -l gpu1 --start gpu --label -- sh -c {shlex.quote(ranks)}")
    assert (code, [f"{n}: rank {n} of 4, {n} here" in out for n in range(4)]) == (0, [True] * 4), out


@pytest.mark.usefixtures("nothing_left")
def test_five_gpus_of_two_servers_of_four_are_one_program(pool: Lab) -> None:
    """Their numbers are Slurm's choice; each process is told those of all, and sees its own GPUs."""
    tells = "echo it $NODE_RANK $LOCAL_WORLD_SIZE $PET_NPROC_PER_NODE $(grep -o 'slots=.' $ELASTIC_AI_HOSTFILE)"
    sees = 'python3 -c \'import ctypes as c; d, n = c.CDLL("libcuda.so.1"), c.c_int(); d.cuInit(0); ' + (
        'd.cuDeviceGetCount(c.byref(n)); print("sees", n.value)\''
    )
    code, out = run_as(pool, "alice", f"{HERE} -n 5 -- sh -c {shlex.quote(f'{tells}; {sees}')}")
    told = sorted(line.split()[1:] for line in out.splitlines() if line.startswith("it "))
    gpus = [int(line[1]) for line in told]
    assert (code, [line[0] for line in told], sum(gpus)) == (0, ["0", "1"], 5), out
    assert all(line[1] == line[2] and line[3:] == [f"slots={n}" for n in gpus] for line in told), out
    assert sorted(int(line.split()[1]) for line in out.splitlines() if line.startswith("sees ")) == sorted(gpus), out
    code, out = run_as(pool, "alice", f"{HERE} -n 5 --mpi pmix -- sh -c 'echo pmix $PMIX_RANK in $PMIX_NAMESPACE'")
    met = sorted(line.split()[1:] for line in out.splitlines() if line.startswith("pmix "))
    assert (code, [line[0] for line in met], len({line[2] for line in met})) == (0, list("01234"), 1), out
    ranks = "echo rank $RANK of $WORLD_SIZE; exit 7"
    code, out = run_as(pool, "alice", f"{HERE} -n 5 --start gpu -- sh -c {shlex.quote(ranks[:-8])}")
    assert (code, [f"rank {n} of 5" in out for n in range(5)]) == (0, [True] * 5), out
    code, out = run_as(pool, "alice", f"{HERE} -n 5 --start gpu -- sh -c {shlex.quote(ranks)}")
    assert (code, "ended with exit code 7; the others are ended" in out, "srun" in out) == (7, True, False), out


@pytest.mark.usefixtures("nothing_left")
def test_a_folder_goes_there_and_comes_back_and_a_kill_loses_nothing(pool: Lab) -> None:
    shell(pool, "client1", "install -d -o alice /home/alice/s; echo given > /home/alice/s/in")
    there = f"cd /home/alice/s && {HERE} --sync ."
    program = "cat in > made-$NODE_RANK; sleep 2; exit 3"
    code, out = run_as(pool, "alice", f"sh -c {shlex.quote(f'{there} -n 2 --apart -- sh -c {shlex.quote(program)}')}")
    assert (code, "/home/alice/s is on gpu1, gpu2 in /var/tmp/elastic-ai-" in out) == (3, True), out
    made = "cd /home/alice/s; cat made-0 made-1; stat -c %U made-0"
    assert shell(pool, "client1", made).split() == ["given", "given", "alice"]
    with ThreadPoolExecutor(1) as worker:
        waits = "echo late > late; exec sleep 3146"
        words = f"{there} -l gpu1 -- sh -c {shlex.quote(waits)}"
        running = worker.submit(run_as, pool, "alice", f"sh -c {shlex.quote(words)}")
        until(lambda: pool.processes("gpu1", "^sleep 3146").count("sleep"), 1, 60)
        shell(pool, "client1", "pkill -KILL -u alice -f '^/usr/bin/python3 /usr/bin/toolkit run'")
        code, out = running.result(60)
    (copy,) = {word for word in out.split() if word.startswith("/var/tmp/elastic-ai-")}
    until(lambda: pool.processes("gpu1", "^sleep 314"), "")
    fetch = f"cd /home/alice/s && {HERE} -l gpu1 --folder {copy} -- tar -c . | tar -x && cat late"
    assert "late" in run_as(pool, "alice", f"sh -c {shlex.quote(fetch)}")[1].splitlines()
    assert shell(pool, "client1", "touch /home/alice/s/mine; chmod 600 /home/alice/s/mine; ls /home/alice/s").split()
    code, out = run_as(pool, "alice", f"sh -c {shlex.quote(f'{there} -- true')}")
    assert (code, out) == (2, "error: --sync .: you may not read mine"), out
    shell(pool, "gpu1", f"rm -rf {copy}")


@pytest.mark.usefixtures("nothing_left")
def test_a_program_in_a_container_has_the_folder_the_gpus_and_its_users_rights(pool: Lab) -> None:
    shell(pool, "gpu1", IMAGE)
    try:
        shell(
            pool,
            "gpu1",
            "install -d -o alice /var/tmp/alices; echo given > /var/tmp/alices/in; chmod 600 /var/tmp/alices/in",
        )
        shell(pool, "gpu1", "chown alice /var/tmp/alices/in; install -d -m 700 /var/tmp/roots")
        there = f"{HERE} --image elastic-ai-test:1"  # gpu2 does not have it
        looks = "id -u; cat in > out; ls -d /etc/elastic-ai-emulated; test -w /dev/shm/elastic-ai-devices && echo opens"
        code, out = run_as(
            pool, "alice", f"{there} --folder /var/tmp/alices -- dash -c {shlex.quote(f'{looks}; exit 3')}"
        )
        assert (code, out.splitlines()[-3:]) == (3, ["2001", "/etc/elastic-ai-emulated", "opens"]), out
        assert "image elastic-ai-test:1 is sha256:" in out
        assert shell(pool, "gpu1", "cat /var/tmp/alices/out; stat -c %U /var/tmp/alices/out").split() == [
            "given",
            "alice",
        ]
        code, out = run_as(pool, "alice", f"{there} --folder /var/tmp/roots -- ls")
        assert (code, "/var/tmp/roots" in out) == (2, True), out
        with ThreadPoolExecutor(1) as worker:
            running = worker.submit(run_as, pool, "alice", f"{there} --folder / -- sleep 3145")
            until(lambda: pool.processes("gpu1", "^sleep 3145").count("sleep"), 1, 60)
            shell(pool, "client1", "pkill -KILL -u alice -f '^/usr/bin/python3 /usr/bin/toolkit run'")
            assert running.result(60)[0] == 137
        until(
            lambda: (
                pool.processes("gpu1", "^sleep 314")
                + shell(pool, "gpu1", "docker ps -aq --filter label=elastic-ai-lease")
            ),
            "",
            30,
        )
        assert (
            shell(pool, "gpu1", "ls /run/elastic-ai/lease-folders 2>/dev/null; grep lease-folders /proc/mounts; true")
            == ""
        )
    finally:
        shell(pool, "gpu1", "docker image rm -f elastic-ai-test:1; rm -rf /var/tmp/alices /var/tmp/roots")


#: Each process's rank, world size and the sum over all of their ranks, by torch's own launcher's variables.
MEETS = """
import os, sys, torch, torch.distributed as d
d.init_process_group("gloo")
found = torch.tensor([d.get_rank()])
d.all_reduce(found)
sys.stdout.write(f"met {d.get_rank()} {d.get_world_size()} {int(found)}\\n")  # unbuffered by torch's launcher
sys.stdout.flush()
d.barrier()
os._exit(0)
"""


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_torch_meets_over_unequal_servers_by_torchrun_and_as_a_process_for_each_gpu(pool: Lab) -> None:
    """In the site's training image, which is on both servers."""
    images = shell(pool, "gpu1", "docker images --format '{{.Repository}}:{{.Tag}}'").split()
    (image,) = [name for name in images if "/horovod:" in name]
    there = f"{HERE} -n 5 --folder / --image {image}"
    alone = f"python3 -c {shlex.quote(MEETS)}"
    for words in (f"-- python3 -m torch.distributed.run --no-python {alone}", f"--start gpu -- {alone}"):
        code, out = run_as(pool, "alice", f"{there} {words}")
        met = sorted(line.split()[1:] for line in out.splitlines() if line.startswith("met "))
        assert (code, met) == (0, [[str(rank), "5", "10"] for rank in range(5)]), out
