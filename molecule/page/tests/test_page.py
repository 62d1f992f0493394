"""What roles pool_page and pool_login promise: a page over TLS, users that log in by PAM, no root."""

import json
import time

import pytest

testinfra_hosts = ["ansible://head"]
STATUS = ("--output /dev/null --write-out %s", "%{http_code}")
CURL = "curl --silent --show-error --insecure --max-time 30 --cookie /root/jar --cookie-jar /root/jar"


@pytest.fixture
def jar(host):
    host.run("rm -f /root/jar")
    yield
    host.run("rm -f /root/jar")


def log_in(host, password):
    form = host.check_output(f"{CURL} https://localhost:8443/pool/login").split('name="form" value="')[1].split('"')[0]
    return host.check_output(
        f"{CURL} {STATUS[0]} --data-urlencode %s --data-urlencode user=anna --data-urlencode %s "
        "https://localhost:8443/pool/login",
        STATUS[1],
        f"form={form}",
        f"password={password}",
    )


def test_a_user_of_the_machine_logs_in_and_sees_the_pool(host, jar):
    assert host.check_output(f"{CURL} {STATUS[0]} https://localhost:8443/pool/", STATUS[1]) == "303"
    assert log_in(host, "wrong") == "403"
    assert log_in(host, "correct horse") == "303"
    shown = json.loads(host.check_output(f"{CURL} https://localhost:8443/pool/pool.json"))
    told = json.loads(host.check_output("toolkit gpus --json"))
    assert shown["gpus"] == told["gpus"]


def used(host):
    shown = json.loads(host.check_output(f"{CURL} https://localhost:8443/pool/pool.json"))
    return [use["user"] for gpu in shown["gpus"] for use in gpu["uses"]]


def within(host, wanted, limit_s):
    until = time.monotonic() + limit_s
    while used(host) != wanted:
        assert time.monotonic() < until, (used(host), wanted)
        time.sleep(0.2)


def test_the_controller_announces_starts_and_ends(host, jar):
    """The page asks by itself every 30 s; what shows sooner was announced."""
    assert log_in(host, "correct horse") == "303"
    asked = "runuser -u anna -- sbatch --parsable --chdir=/ --output=/dev/null --gres=gpu:1 --wrap='sleep 600'"
    job = host.check_output(asked).strip()
    within(host, ["anna"], 8)
    host.check_output("scancel %s", job)
    within(host, [], 12)


def test_the_page_runs_without_root(host):
    pid = host.check_output("systemctl show -P MainPID elastic-ai-page.service")
    status = host.file(f"/proc/{pid}/status").content_string
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert host.process.get(pid=int(pid)).user == "elastic-ai-page"
    assert host.run("runuser -u elastic-ai-page -- sudo --non-interactive true").rc != 0


def test_no_other_user_asks_the_helper(host):
    asked = "import socket; socket.socket(socket.AF_UNIX).connect('/run/elastic-ai-login.sock')"
    assert host.run("runuser -u anna -- python3 -c %s", asked).rc != 0
    assert host.run("python3 -c %s", asked).rc == 0
    assert "correct horse" not in host.check_output("journalctl --no-pager --boot")
