"""Programs that go on alone, and shells at leases, on the lab: its systemd, sudo, Slurm, munge, sshd and ssh client.

Logins are services under the user's uid here; the lab's nodes have no logind sessions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from conftest import Lab

from tests.support.lease_lab import json_in, run_as, shell, until

GO_ON = "--folder / -- sh -c 'echo begun; while [ ! -e /tmp/go-on ]; do sleep 0.2; done; echo over; exit 5'"
UNITS = "systemctl list-units --plain --no-legend 'elastic-ai-kept-*'"


@pytest.fixture
def nobody_left(pool: Lab, nothing_left: None) -> Iterator[None]:
    """After the test no unit of a detached program is left either."""
    yield
    run_as(pool, "alice", "toolkit lease release --all")
    until(lambda: shell(pool, "client1", f"{UNITS}; true").strip(), "", 90)


def login(lab: Lab, command: str) -> str:
    """A login of alice that starts a command and is then lost, with all that is in it; what the command printed."""
    script = f"{command} > /tmp/said 2>&1; touch /tmp/returned; exec sleep 1000"
    return shell(
        lab,
        "client1",
        f"""
        rm -f /tmp/said /tmp/returned
        systemd-run --quiet --unit=login --uid=alice --property=PAMName=login -- sh -c {shlex.quote(script)}
        for _ in $(seq 300); do [ -e /tmp/returned ] && break; sleep 0.2; done
        systemctl kill --signal=KILL login; systemctl reset-failed login 2>/dev/null
        cat /tmp/said
        """,
    )


def leases(lab: Lab) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json_in(run_as(lab, "alice", "toolkit lease list --json")[1])["leases"]
    return found


@pytest.mark.usefixtures("nobody_left")
def test_a_detached_program_outlives_its_login_and_is_read_in_a_new_one(pool: Lab) -> None:
    shell(pool, "gpu1", "rm -f /tmp/go-on")
    said = login(pool, f"toolkit run --detach -l gpu1 {GO_ON}")
    [lease] = leases(pool)
    number = lease["lease"]
    assert f"toolkit logs -f {number}" in said
    assert str(lease["runs"]).startswith("sh -c")
    until(lambda: "begun\n" in run_as(pool, "alice", f"toolkit logs {number}")[1] + "\n", True)
    assert "RUNS" in run_as(pool, "alice", "toolkit lease list")[1]
    for words in ("lease list --all", f"lease show {number}"):
        assert "go-on" not in run_as(pool, "bob", f"toolkit {words}")[1]
    code, out = run_as(pool, "bob", f"toolkit logs {number}")
    assert (code, "another user's" in out) == (2, True), out
    for node in ("client1", "gpu1"):
        assert "begun" not in run_as(pool, "bob", "sh -c 'cat ~alice/.local/state/elastic-ai/kept/*/output.*'", node)[1]
    shell(pool, "gpu1", "touch /tmp/go-on")
    for words in (f"logs -f {number}", f"attach {number}"):
        code, out = run_as(pool, "alice", f"toolkit {words}")
        assert (code, "over" in out, out.splitlines()[-1]) == (5, True, f"lease {number}: ended with exit code 5"), out


@pytest.mark.usefixtures("nobody_left")
def test_a_detached_program_by_an_engine_is_ended_by_a_release_and_its_queue_too(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit run --detach -n 8 --driver-api -- sleep 3150")
    assert code == 0, out
    until(lambda: "sleep 3150" in pool.processes("client1", "^sleep 3150"), True, 90)  # else the next is second
    code, waits = run_as(pool, "alice", "toolkit run --detach --driver-api -- sleep 3151")
    assert (code, "waits on client1, place 1 in the queue" in waits) == (0, True), waits
    first, second = (str(one["lease"]) for one in leases(pool))
    assert run_as(pool, "alice", f"toolkit lease release {second} {first}")[0] == 0
    code, out = run_as(pool, "alice", f"toolkit logs -f {first}")
    assert (code, "it was taken back" in out) == (143, True), out
    code, out = run_as(pool, "alice", f"toolkit logs -f {second}")
    assert code == 75, out
    until(lambda: pool.processes("client1", "^sleep 315"), "")


@pytest.mark.rest
@pytest.mark.usefixtures("nobody_left")
def test_who_kills_the_unit_ends_the_lease_and_the_log_says_it(pool: Lab) -> None:
    assert run_as(pool, "alice", "toolkit run --detach -l gpu1 --folder / -- sleep 3152")[0] == 0
    number = leases(pool)[0]["lease"]
    until(lambda: "sleep 3152" in pool.processes("gpu1", "^sleep 3152"), True)
    shell(pool, "client1", "systemctl kill --signal=KILL 'elastic-ai-kept-2001-*'")
    code, out = run_as(pool, "alice", f"toolkit logs -f {number}")
    assert (code, "what kept it on client1 was killed" in out) == (75, True), out
    until(lambda: pool.processes("gpu1", "^sleep 315"), "", 60)
    until(lambda: leases(pool), [], 60)


@pytest.mark.rest
@pytest.mark.usefixtures("nobody_left")
def test_a_restart_of_the_client_ends_the_program_on_its_server_and_the_log_says_it(pool: Lab) -> None:
    assert run_as(pool, "alice", "toolkit run --detach -l gpu1 --folder / -- sleep 3153")[0] == 0
    number = leases(pool)[0]["lease"]
    until(lambda: "sleep 3153" in pool.processes("gpu1", "^sleep 3153"), True)
    shell(pool, "client1", "touch /run/before-the-restart; systemctl --no-block reboot")

    def back() -> bool:
        try:
            return "yes" in shell(
                pool, "client1", "test ! -e /run/before-the-restart && systemctl is-active munge && echo yes"
            )
        except AssertionError:
            return False  # no sshd answers

    until(back, True, 120)
    code, out = run_as(pool, "alice", f"toolkit logs -f {number}")
    words = f"lease {number}: ended with exit code 143: client1 was shut down or started again"
    assert (code, words in out) == (143, True), out
    until(lambda: pool.processes("gpu1", "^sleep 315"), "", 60)


@pytest.mark.usefixtures("nobody_left")
def test_a_real_ssh_client_reaches_a_lease_and_nobody_elses(pool: Lab) -> None:
    shell(pool, "client1", "rm -rf ~alice/.ssh")
    run = "toolkit run --detach -l gpu1 --port 6106 --folder / -- python3 -m http.server --bind 127.0.0.1 6106"
    code, out = run_as(pool, "alice", run)
    assert code == 0, out
    number = leases(pool)[0]["lease"]
    until(lambda: "http.server" in pool.processes("gpu1", "^python3 -m http.server"), True)
    code, out = run_as(pool, "alice", f"toolkit ssh {number} 'hostname; echo $CUDA_VISIBLE_DEVICES; exit 7'")
    assert (code, out.splitlines()[0], out.count("GPU-")) == (7, "gpu1", 1), out
    assert "CANCELLED" not in out
    get = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:6106', timeout=9).status)\""
    until(lambda: run_as(pool, "alice", f"sh -c {shlex.quote(get)}")[1].splitlines()[-1:], ["200"])
    code, out = run_as(pool, "alice", "toolkit run --port 6106 -- true")
    assert (code, "a program on this machine has it already" in out) == (2, True), out
    # As an editor does it: an entry, then the user's own ssh, scp and sftp.
    code, out = run_as(pool, "alice", "toolkit ssh --config --yes")
    assert code == 0, out
    work = f"""
    set -e; cd; head -c 300000 /dev/urandom > big
    scp -q big lease-{number}:/tmp/big-of-alice; ssh lease-{number} sha256sum /tmp/big-of-alice | cut -c-64
    sha256sum big | cut -c-64; echo 'get /tmp/big-of-alice back' | sftp -q -b - lease-{number} > /dev/null; cmp big back
    ssh -N -o ExitOnForwardFailure=yes -L 127.0.0.1:6107:127.0.0.1:6106 lease-{number} &
    for second in $(seq 60); do ! ss -Htln "sport = :6107" | grep -q . || break; sleep 1; done
    {get.replace("6106", "6107")}; kill %1
    """
    code, out = run_as(pool, "alice", f"bash -c {shlex.quote(work)}")
    lines = out.splitlines()
    assert (code, lines[0] == lines[1], lines[2]) == (0, True, "200"), out
    # The server's own sshd has no part in it: the sshd of a connection is a step of the job, and listens nowhere.
    served = pool.processes("gpu1", "^sshd: alice")
    assert served, "the one of --port"
    assert f"pid={served.split()[0]}," not in pool.ssh("gpu1", "ss -Htlnp")
    code, out = run_as(pool, "bob", f"toolkit ssh {number} true")
    assert (code, "another user's" in out) == (2, True), out
    assert run_as(pool, "bob", f"srun --jobid={number} --overlap true")[0] != 0
    held = shell(pool, "client1", "stat -c '%a %U' ~alice/.local/state/elastic-ai/ssh/{key,known_hosts,hosts/lease-*}")
    assert {line for line in held.splitlines()} <= {"600 alice", "644 alice"}, held
    assert run_as(pool, "alice", f"toolkit lease release {number}")[0] == 0
    until(lambda: pool.processes("gpu1", "^sshd: alice"), "")
    until(lambda: pool.ssh("client1", "ss -Htln 'sport = :6106'").strip(), "")
    code, out = run_as(pool, "alice", f"toolkit ssh {number} true")
    assert code in (2, 75), out


@pytest.mark.usefixtures("nobody_left")
def test_a_shell_of_a_lease_by_an_engine_is_here(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit lease request -n 1 -p 1/4 --time 1h --json")
    assert code == 0, out
    number = json_in(out)["lease"]
    code, out = run_as(pool, "alice", f"toolkit ssh {number} 'hostname; echo $ELASTIC_AI_LEASE; exit 6'")
    assert (code, out.splitlines()[-2:]) == (6, ["client1", str(number)]), out
    assert "this is a shell here" in out
    code, out = run_as(pool, "alice", f"ssh lease-{number} true")
    assert (code, "by the engine reference" in out) == (255, True), out
