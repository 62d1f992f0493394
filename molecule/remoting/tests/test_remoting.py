"""What the roles promise: any machine of the pool uses GPUs of the servers, and nobody else reaches them."""

import json
import time

import pytest

testinfra_hosts = ["ansible://client1", "ansible://gpu1"]


@pytest.fixture
def client(host):
    if host.backend.host != "client1":
        pytest.skip("the client's own work")
    return host


@pytest.fixture
def server(host):
    if host.backend.host != "gpu1":
        pytest.skip("the server's own work")
    return host


def as_alice(host, command):
    return host.run(f"runuser -u alice -- {command}")


def test_the_pool_is_shown_and_labelled(client):
    out = as_alice(client, "toolkit gpus").stdout
    assert "Emulated" in out
    assert out.splitlines()[-1].startswith("8 GPUs, 8 free. Emulated:")


def test_a_program_runs_on_two_halves_and_they_are_given_back(client):
    done = as_alice(client, "toolkit run -n 2 -p 0.5 -- elastic-ai-copybench --json")
    assert done.rc == 0, done.stderr
    assert json.loads(done.stdout)["verified"]
    assert "emulated devices" in done.stderr
    for _ in range(40):
        out = as_alice(client, "toolkit gpus").stdout
        if "8 free" in out:
            break
        time.sleep(0.5)
    assert "8 free" in out


def test_the_exit_code_is_the_programs(client):
    assert as_alice(client, "toolkit run --no-kernels -- sh -c 'exit 7'").rc == 7
    assert as_alice(client, "toolkit run --no-kernels -p half -- true").rc == 2


def test_ports_of_leases_are_closed_and_the_sweep_runs(server):
    assert "drop" in server.check_output("nft list table inet elastic_ai_lease")
    assert server.service("elastic-ai-lease-sweep.timer").is_running
    assert server.run("systemctl start elastic-ai-lease-sweep.service").rc == 0


def test_users_cannot_start_an_instance_themselves(server):
    assert as_alice(server, "/usr/lib/elastic-ai/lease-server/bin/prolog").rc in (0, 1)
    assert server.run("ls /run/elastic-ai/leases/").stdout.strip() == ""
    assert as_alice(server, "systemctl start elastic-ai-lease@1.service").rc != 0
