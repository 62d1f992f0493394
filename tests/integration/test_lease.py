"""Leases on the lab: real Slurm, systemd, nftables and network; emulated devices behind the reference engine."""

from __future__ import annotations

import json
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab

from tests.support import lease_storms
from tests.support.lease_lab import CUT, LEFT, SERVERS, json_in, left, on_each, run_as, shell, until


def runs(pool: Lab, node: str, command: str) -> bool:
    """Whether a process of the node has this whole command line."""
    return bool(shell(pool, node, f"pgrep -xf {shlex.quote(command)}; true").strip())


@pytest.mark.usefixtures("nothing_left")
def test_two_halves_run_a_program_whose_data_are_verified(pool: Lab) -> None:
    code, out = run_as(
        pool, "alice", "toolkit run -n 2 -p 0.5 -- elastic-ai-copybench --json --bytes 4M --latency-count 20"
    )
    assert code == 0, out
    bench = json_in(out)
    assert bench["verified"] is True
    assert [d["memory_bytes"] for d in bench["devices"]] == [128 << 20] * 2
    assert all(d["name"].startswith("Emulated") for d in bench["devices"])
    assert "emulated devices" in out


@pytest.mark.usefixtures("nothing_left")
def test_more_than_one_server_has_is_joined_from_several(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit run -n 6 -- elastic-ai-copybench --json --bytes 1M --latency-count 5")
    assert code == 0, out
    bench = json_in(out)
    assert len({d["uuid"] for d in bench["devices"]}) == 6
    assert "gpu1:" in out
    assert "gpu2:" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-p 0", "a part must be above 0"),
        ("-p 1.5", "at most 1; use -n"),
        ("-p half", "not a number"),
        ("-n 9", "the pool has 8 GPUs (gpu1: 4, gpu2: 4)"),
        ("--class h100", "no such class"),
        ("-l gpu7", "no such server"),
        ("-m 257", "256 MiB each"),
        ("-p 0.5 -m 10", "give one of them"),
        ("--lease 999999", "has ended"),
    ],
)
def test_bad_wishes_are_one_sentence(pool: Lab, words: str, said: str) -> None:
    code, out = run_as(pool, "alice", f"toolkit run --no-kernels {words} -- true")
    assert code in (2, 75)
    assert said in out
    assert out.startswith("error: ")
    assert len(out.splitlines()) == 1


@pytest.mark.usefixtures("nothing_left")
def test_a_lease_is_kept_used_twice_extended_and_released(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit lease request -n 2 -p 1/4 --time 0.5h --json")
    assert code == 0, out
    lease = json_in(out)["lease"]
    for _ in range(2):
        code, out = run_as(
            pool, "alice", f"toolkit run --lease {lease} -- elastic-ai-copybench --bytes 1M --latency-count 5"
        )
        assert code == 0, out
    before = json_in(run_as(pool, "alice", f"toolkit lease show {lease} --json")[1])["until"]
    code, out = run_as(pool, "alice", f"toolkit lease extend {lease} --time 1h")
    assert code == 0, out
    after = json_in(run_as(pool, "alice", f"toolkit lease show {lease} --json")[1])["until"]
    ends = [datetime.fromisoformat(one.replace("Z", "+00:00")).timestamp() for one in (before, after)]
    assert ends[1] - ends[0] == 3600
    deadlines = "cat /run/elastic-ai/leases/*/deadline; true"
    until(
        lambda: {json.loads(w)["until"] for n in SERVERS for w in shell(pool, n, deadlines).splitlines()}, {ends[1]}, 60
    )
    assert run_as(pool, "bob", f"toolkit lease extend {lease} --time 1h") == (2, f"error: lease {lease} is alice's")
    code, out = run_as(pool, "bob", f"toolkit lease release {lease}")
    assert (code, "it is alice's" in out) == (2, True)
    assert run_as(pool, "alice", f"toolkit lease release {lease}")[0] == 0


@pytest.mark.usefixtures("nothing_left")
def test_whatever_ends_a_lease_is_said_to_its_program(pool: Lab) -> None:
    """Its time is over, an administrator takes it back, its engine dies: three leases at the same time."""
    began = time.monotonic()
    with ThreadPoolExecutor(3) as worker:
        timed = worker.submit(
            run_as, pool, "alice", "toolkit run --no-kernels -p 1/7 -l gpu1 --time 0.006h -- sleep 100"
        )
        taken = worker.submit(run_as, pool, "bob", "toolkit run --no-kernels -n 1 -l gpu1 -- sleep 102")
        broken = worker.submit(run_as, pool, "alice", "toolkit run --no-kernels -n 1 -l gpu2 -- sleep 101")

        def bobs() -> list[int]:
            leases = json_in(shell(pool, "head", "toolkit lease list --all --json"))["leases"]
            return [x["lease"] for x in leases if (x["user"], x["state"]) == ("bob", "running")]

        # not before their programs run: a lease that is over before that ends otherwise
        until(lambda: runs(pool, "client1", "sleep 102"), True, 60)
        shell(pool, "head", f"toolkit lease release {bobs()[0]}")
        until(lambda: runs(pool, "client1", "sleep 101"), True, 60)
        shell(pool, "gpu2", "pkill -KILL -f elastic-ai-refserver")
        ended = [each.result(60) for each in (timed, taken, broken)]
    assert [code for code, _ in ended] == [128 + 15] * 3, ended
    assert "has ended: its time is over" in ended[0][1]
    assert "has ended: the administrator ended it" in ended[1][1]
    assert "the engine's server ended" in ended[2][1]
    assert time.monotonic() - began < 90


#: A program that needs some seconds to end well, and can do so by a signal.
SAVES = "bash -c 'trap \"sleep 2; echo saved; exit 7\" USR1; while :; do sleep 0.2; done'"


@pytest.mark.usefixtures("nothing_left")
def test_an_administrators_grace_reaches_the_program_while_it_has_its_gpus(pool: Lab) -> None:
    """On the client, and on the server itself."""
    leases = "toolkit lease list --all --json"
    with ThreadPoolExecutor(2) as worker:
        words = [f"toolkit run -n 1 {way} --signal USR1 -- {SAVES}" for way in ("--no-kernels", "--where server")]
        running = [worker.submit(run_as, pool, "alice", command) for command in words]
        # a signal before bash has its trap would end it
        until(lambda: sum(runs(pool, node, "sleep 0.2") for node in ("client1", *SERVERS)), 2, 60)
        for lease in json_in(shell(pool, "head", leases))["leases"]:
            assert "ends in 90 s" in shell(pool, "head", f"toolkit lease release {lease['lease']} --grace 90")
        for end in running:
            code, out = end.result(120)
            told = r"ends in [4-9]\d s: the administrator ended it; the program is sent SIGUSR1"
            assert (code, "saved" in out, bool(re.search(told, out))) == (7, True, True), out


#: What a server's keeper of leases said and when.
SWEPT = "date; journalctl -o short-precise --no-pager -n 60 -u 'elastic-ai-lease*'"

#: bob's leases give way to alice's after a notice of this policy.
PREEMPTS = """
slurm_pool:
  users:
    urgent: {users: [alice], priority: 100, preempts: [patient]}
    patient: {users: [bob]}
  preemption: {after_minutes: 0, grace_s: 90}
"""


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_a_preempted_lease_has_its_grace_and_hears_why(pool: Lab, tmp_path: Path) -> None:
    (tmp_path / "pool.yml").write_text(PREEMPTS)
    try:
        done = pool.playbook("-e", f"@{tmp_path / 'pool.yml'}", name="playbooks/pool.yml")
        assert done.returncode == 0, done.stdout[-3000:]
        with ThreadPoolExecutor(2) as worker:
            first = worker.submit(run_as, pool, "bob", f"toolkit run --no-kernels -n 8 --signal USR1 -- {SAVES}")
            until(lambda: runs(pool, "client1", "sleep 0.2"), True, 90)
            second = worker.submit(run_as, pool, "alice", "toolkit run --no-kernels -n 1 -- true")
            code, out = first.result(180)
            told = r"ends in \d+ s: a job of higher priority needs its GPUs; the program is sent SIGUSR1"
            assert re.search(told, out), f"{out}\n{shell(pool, 'gpu1', SWEPT)}"
            assert (code, "saved" in out) == (7, True), out
            assert second.result(180)[0] == 0
    finally:
        done = pool.playbook(name="playbooks/pool.yml")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.usefixtures("nothing_left")
def test_attackers_get_nothing(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit lease request -n 1 -p 1/2 -l gpu1 --time 0.5h --json")
    assert code == 0, out
    lease = json_in(out)["lease"]
    instance = json.loads(shell(pool, "gpu1", f"cat /run/elastic-ai/leases/{lease}/instance.json"))
    token = shell(pool, "gpu1", f"cat /run/elastic-ai/leases/{lease}/token").strip()
    ports = f"{instance['port']} {instance['agent_port']}"
    connect = f"timeout 3 bash -c '</dev/tcp/{instance['address']}/'$port 2>/dev/null && echo open || echo closed"
    tried = on_each(pool, ("gpu2", "client1"), f"for port in {ports}; do ({connect}) & done; wait")
    assert {node: said.split() for node, said in tried.items()} == {"gpu2": ["closed"] * 2, "client1": ["open"] * 2}
    # bob, on alice's machine: neither the endpoint nor the token, nor the device without it.
    assert run_as(pool, "bob", f"toolkit run --no-kernels --lease {lease} -- true")[0] == 75
    for path in ("endpoint.json", "token", "instance.json"):
        code, out = run_as(pool, "bob", f"cat /run/elastic-ai/leases/{lease}/{path}", "gpu1")
        assert (code, "Permission denied" in out) == (1, True)
    assert run_as(pool, "bob", "ls /run/elastic-ai/leases", "gpu1")[0] == 0  # names of jobs are no secret
    guess = (
        f"env ELASTIC_AI_SERVERS={instance['address']}:{instance['port']} ELASTIC_AI_TOKEN_FILE=/tmp/guess "
        "LD_LIBRARY_PATH=/opt/elastic-ai/engine/current/lib elastic-ai-copybench"
    )
    shell(pool, "client1", "echo wrongwrongwrongwrongwrong > /tmp/guess; chmod 644 /tmp/guess")
    assert run_as(pool, "bob", guess)[0] != 0
    # The token stands nowhere that others can see.
    look = "(ps axeww; journalctl --no-pager; cat /var/log/slurm/*.log) 2>/dev/null"
    seen = f"{look} | grep -cF -f <(echo {shlex.quote(token)})"  # ps must not see the word that is looked for
    assert set(on_each(pool, (*SERVERS, "head", "client1"), f"{seen}; true").values()) == {"0\n"}
    # The right token, after the lease's end.
    shell(pool, "client1", f"echo {token} > /tmp/guess")
    assert run_as(pool, "bob", guess)[0] == 0  # whoever was given the token, on that machine: that is what it is for
    run_as(pool, "alice", f"toolkit lease release {lease}")
    until(lambda: left(pool), {})
    assert run_as(pool, "bob", guess)[0] != 0
    shell(pool, "client1", "rm /tmp/guess")


@pytest.mark.usefixtures("nothing_left")
def test_more_memory_than_the_part_is_refused(pool: Lab) -> None:
    program = (
        "import ctypes as c; d=c.CDLL('libcuda.so.1'); x=c.c_void_p(); p=c.c_uint64(); assert d.cuInit(0)==0; "
        "assert d.cuDevicePrimaryCtxRetain(c.byref(x),0)==0; d.cuCtxSetCurrent(x); "
        "print([d.cuMemAlloc_v2(c.byref(p),c.c_size_t(60<<20)) for _ in range(3)])"
    )
    code, out = run_as(pool, "alice", f"toolkit run --no-kernels -p 1/2 -- python3 -c {shlex.quote(program)}")
    assert code == 0, out
    assert "[0, 0, 2]" in out  # 128 MiB: twice 60 fit; CUDA_ERROR_OUT_OF_MEMORY


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_provisioning_while_memory_is_in_use_changes_nothing(pool: Lab) -> None:
    program = (
        "import ctypes as c, time; d=c.CDLL('libcuda.so.1'); x=c.c_void_p(); p=c.c_uint64(); assert d.cuInit(0)==0; "
        "assert d.cuDevicePrimaryCtxRetain(c.byref(x),0)==0; d.cuCtxSetCurrent(x); "
        "assert d.cuMemAlloc_v2(c.byref(p),c.c_size_t(60<<20))==0; time.sleep(600)"
    )
    used = LEFT.strip().splitlines()[-2]
    with ThreadPoolExecutor(1) as worker:
        running = worker.submit(
            run_as, pool, "alice", f"toolkit run --no-kernels -p 1/2 -l gpu1 -- python3 -c {shlex.quote(program)}"
        )
        until(lambda: "'used_mib': 60" in shell(pool, "gpu1", used), True, 60)
        done = pool.playbook(name="playbooks/remoting.yml")
        still = "'used_mib': 60" in shell(pool, "gpu1", used)
        (lease,) = json_in(shell(pool, "head", "toolkit lease list --all --json"))["leases"]
        shell(pool, "head", f"toolkit lease release {lease['lease']}")
        running.result(60)
    assert done.returncode == 0, done.stdout[-3000:]
    assert still
    assert set(re.findall(r" changed=(\d+) ", done.stdout)) == {"0"}, done.stdout[-6000:]


@pytest.mark.usefixtures("nothing_left")
def test_a_flush_of_all_firewall_rules_ends_no_lease(pool: Lab) -> None:
    with ThreadPoolExecutor(1) as worker:
        wait = "until [ -e /tmp/flushed ]; do sleep 0.2; done"
        program = f"timeout 60 sh -c '{wait}; elastic-ai-copybench --json --bytes 1M --latency-count 5'"
        running = worker.submit(run_as, pool, "alice", f"toolkit run --no-kernels -n 1 -l gpu1 -- {program}")
        there = "ls /run/elastic-ai/leases/*/endpoint.json | wc -l"
        until(lambda: shell(pool, "gpu1", f"{there}; true").strip(), "1", 60)
        shell(pool, "gpu1", "systemctl restart nftables")
        assert "elements" in shell(pool, "gpu1", "nft list set inet elastic_ai_lease allowed")
        shell(pool, "client1", "touch /tmp/flushed")
        code, out = running.result(90)
        shell(pool, "client1", "rm /tmp/flushed")
    assert code == 0, out
    assert json_in(out)["verified"] is True


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_a_network_cut_for_seconds_is_survived_and_one_for_longer_ends_the_lease(pool: Lab) -> None:
    lease_is_there = "ls /run/elastic-ai/leases/*/endpoint.json | wc -l"

    def started(program: str) -> Any:
        running = worker.submit(run_as, pool, "alice", f"toolkit run --no-kernels -n 1 -l gpu1 -- {program}")
        until(lambda: shell(pool, "gpu1", f"{lease_is_there}; true").strip(), "1", 60)
        time.sleep(2)
        shell(pool, "gpu1", CUT)
        return running

    try:
        with ThreadPoolExecutor(1) as worker:
            running = started("sh -c 'sleep 10; elastic-ai-copybench --json --bytes 1M --latency-count 5'")
            time.sleep(4)
            shell(pool, "gpu1", "nft delete table inet cut")
            code, out = running.result(90)
            assert code == 0, out
            assert json_in(out)["verified"] is True
            running = started("sleep 200")
            until(lambda: left(pool), {}, 90)  # by the server alone, while the network is down
            code, out = running.result(90)
            assert code == 128 + 15
            assert "has ended" in out
    finally:
        shell(pool, "gpu1", "nft delete table inet cut 2>/dev/null; true")


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_200_leases_of_20_clients_with_random_deaths_leak_nothing(pool: Lab) -> None:
    storm = lease_storms.run(pool, 200, 20, 1)
    print(lease_storms.summary(storm))
    assert lease_storms.faults(storm) == []
    assert sum(o["death"] == "none" for o in storm.outcomes) > 60
    assert sum(seen["instances"] for seen in storm.watched.values()) > 150


@pytest.mark.rest
@pytest.mark.usefixtures("nothing_left")
def test_preemptions_and_restarts_of_the_controller_leak_nothing_either(pool: Lab, tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_text(json.dumps(lease_storms.PREEMPTING))
    try:
        done = pool.playbook("-e", f"@{tmp_path / 'pool.json'}", name="playbooks/pool.yml")
        assert done.returncode == 0, done.stdout[-3000:]
        storm = lease_storms.run(pool, 100, 20, 2, urgents=3, restarting=True)
    finally:
        done = pool.playbook(name="playbooks/pool.yml")
    assert done.returncode == 0, done.stdout[-3000:]
    print(lease_storms.summary(storm))
    assert lease_storms.faults(storm, urgents=True) == []
    assert storm.restarts > 0
    assert sum(map(lease_storms.preempted, storm.outcomes)) > 0
