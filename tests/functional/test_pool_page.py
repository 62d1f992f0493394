"""The page of the pool: the real server with TLS and sockets, before Slurm's made-up answers."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lease_texts import answer, node_text, slurm_job
from tests.support.page_pool import PASSWORD, Client, MadeUp, Served, certificate, known_users, many, served
from tests.support.tls_scan import STRONG, old_versions, suites
from toolkit.answer_forms import ANSWERS
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.page import server as server_module
from toolkit.page.collector import RealSlurm
from validation.base.project import ROOT

pytestmark = pytest.mark.engines


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    known_users(monkeypatch, "alice", "bob")


def small() -> MadeUp:
    jobs = slurm_job(41) + slurm_job(
        42, user="bob", gres="", state="PENDING", end=None, state_reason="Resources", priority=7, uid=1002
    )
    return MadeUp(parse_nodes(node_text()), jobs)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, small(), ("alice", "bob")) as found:
        yield found


def test_its_numbers_are_those_of_toolkit_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the same answers of the same commands, which are files here."""
    programs = tmp_path / "bin"
    programs.mkdir()
    waits = {"state": "PENDING", "end": None, "gres": ""}
    jobs = slurm_job(41) + slurm_job(7, name="native", comment="", gres="gpu:v100:2(IDX:0-1)", user="bob")
    jobs += slurm_job(50, **waits, priority=10, state_reason="Priority", start_time=0)
    jobs += slurm_job(51, **waits, priority=20, state_reason="Resources")
    (tmp_path / "jobs.json").write_bytes(answer(jobs))
    (tmp_path / "nodes.txt").write_text(node_text() + node_text("gpu2", "IDLE+DRAIN", reason="broken fan"))
    rows = "51 1795273200 Resources\n50 N/A Priority\n"
    (tmp_path / "rows.txt").write_text(rows)
    squeue = f'case "$*" in *--json*) cat {tmp_path}/jobs.json;; *) cat {tmp_path}/rows.txt;; esac'
    for name, line in (("squeue", squeue), ("scontrol", f"cat {tmp_path}/nodes.txt")):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    command = [sys.executable, "-m", "toolkit", "gpus", "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    command = [sys.executable, "-m", "toolkit", "lease", "list", "--all", "--json"]
    leases = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    with served(tmp_path, RealSlurm()) as page:
        shown = json.loads(page.client().get("/pool.json"))
    assert len(told["gpus"]) == 8
    assert len(told["waiting"]) == 2
    assert shown["gpus"] == told["gpus"]
    assert shown["waiting"] == told["waiting"]
    assert shown["leases"] == leases["leases"]
    ANSWERS["pool-page"].model_validate({key: value for key, value in shown.items() if key != "schema"})


def test_a_reader_sees_gpus_queue_and_leases_without_a_script(pool: Served) -> None:
    words = pool.client().get("/")
    assert "gpu1" in words
    assert "alice 1/2 until" in words
    assert "bob" in words
    assert "My leases" not in words
    assert '<meta http-equiv="refresh" content="30">' in words


def test_a_user_logs_in_releases_and_extends_own_leases_alone(pool: Served) -> None:
    client = pool.client()
    assert client.log_in("alice", "wrong") == 403
    assert client.log_in("alice") == 303
    page = client.get("/")
    assert "Release lease 41" in page
    assert "Release lease 42" not in page
    secret = client.secret("/")
    assert client.send("POST", "/leases/41/release", {"form": secret})[0] == 303
    assert client.send("POST", "/leases/41/extend", {"form": secret, "minutes": "60"})[0] == 303
    assert pool.helper.ran == [
        (["/usr/bin/toolkit", "lease", "release", "41"], "alice"),
        (["/usr/lib/elastic-ai/lease/bin/extend", "41", "60"], "1001"),
    ]
    assert "released" in client.get("/")
    assert client.send("POST", "/logout", {"form": secret})[0] == 303
    assert client.send("POST", "/leases/41/release", {"form": secret})[0] == 403
    assert len(pool.helper.ran) == 2


def test_bob_sees_his_place_and_when_it_is_expected(pool: Served) -> None:
    client = pool.client()
    client.log_in("bob")
    assert "place 1 in the queue" in client.get("/")


def test_a_form_of_another_site_or_session_does_nothing(pool: Served) -> None:
    alice, bob = pool.client(), pool.client()
    alice.log_in("alice")
    bob.log_in("bob")
    secret = alice.secret("/")
    wrong = [
        ({}, {}),
        ({"form": ""}, {}),
        ({"form": bob.secret("/")}, {}),
        ({"form": secret}, {"origin": "https://evil.example"}),
        ({"form": secret}, {"origin": "null"}),
        ({"form": secret}, {"sec-fetch-site": "cross-site"}),
        ({"form": secret}, {"content-type": "text/plain"}),
        ({"form": secret, "pad": "x" * 9000}, {}),
    ]
    for form, headers in wrong:
        assert alice.send("POST", "/leases/41/release", form, **headers)[0] == 403, (form, headers)
    assert alice.send("POST", "/leases/41/extend", {"form": secret, "minutes": "61"})[0] == 404
    assert alice.send("GET", "/leases/41/release")[0] == 405
    assert pool.helper.ran == []


def test_a_login_form_without_its_cookie_logs_nobody_in(pool: Served) -> None:
    client = pool.client()
    form = {"form": client.secret("/login"), "user": "alice", "password": PASSWORD}
    client.cookies.clear()
    assert client.send("POST", "/login", form)[0] == 403
    form["form"] = ""
    client.cookies["__Secure-elastic-ai-form"] = ""
    assert client.send("POST", "/login", form)[0] == 403


def test_cookies_and_answers_have_what_protects_them(pool: Served) -> None:
    client = pool.client()
    form = {"form": client.secret("/login"), "user": "alice", "password": PASSWORD}
    _, headers, _ = client.send("POST", "/login", form)
    for path in ("/", "/login", "/pool.json", "/static/page.js", "/nowhere", "/leases/1/x"):
        _, headers, _ = client.send("GET", path)
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe-inline" not in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY", path
        assert "server" not in headers, path
        assert "strict-transport-security" not in headers, "it would hold for all services of the head's name"
        # With no-referrer a browser sends "Origin: null" with the page's own forms.
        assert headers["referrer-policy"] == "same-origin", path
    fresh = pool.client()
    form = {"form": fresh.secret("/login"), "user": "alice", "password": PASSWORD}
    _, headers, _ = fresh.send("POST", "/login", form)
    assert all(word in headers["set-cookie"] for word in ("Secure", "HttpOnly", "SameSite=Strict", "__Secure-"))


def test_no_cookie_goes_to_another_service_of_the_same_name(pool: Served) -> None:
    """Browsers send cookies to all ports of a name; a notebook server there is a program of its user's."""
    jar, context = http.cookiejar.CookieJar(), pool.client().context
    browser = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(jar), urllib.request.HTTPSHandler(context=context)
    )
    page = f"https://localhost:{pool.settings.port}"
    with browser.open(page) as answer:
        assert answer.url == f"{page}/pool/"
    with browser.open(f"{page}/pool/login") as answer:
        secret = answer.read().decode().split('name="form" value="')[1].split('"')[0]
    assert len(jar) == 1, "of the form"
    form = urllib.parse.urlencode({"form": secret, "user": "alice", "password": PASSWORD}).encode()
    with browser.open(f"{page}/pool/login", form) as answer:
        assert "Logged in as" in answer.read().decode()
    assert len(jar) == 1, "of the session"
    for address in ("https://localhost:8000/user/bob/lab", "https://localhost:8000/", "https://localhost/user/bob/"):
        there = urllib.request.Request(address)
        jar.add_cookie_header(there)
        assert not there.has_header("Cookie"), address


@pytest.mark.parametrize("name", ["session", "form"])
def test_a_cookie_that_comes_twice_is_refused(pool: Served, name: str) -> None:
    """Another service of the name, or of one below it, can set one of its own beside the page's."""
    client = pool.client()
    assert client.log_in("alice") == 303
    own, words = client.cookies["__Secure-elastic-ai-session"], f"__Secure-elastic-ai-{name}"
    session = f"__Secure-elastic-ai-session={own}"
    twice = f"{words}=a;{words} =b" if name == "form" else f"{words}=planted; {session}"
    for path in ("/", "/mine", "/login", "/static/page.js"):
        status, headers, said = client.send("GET", path, cookie=twice)
        assert (status, "twice" in said) == (400, True), path
        assert "default-src 'none'" in headers["content-security-policy"]
    assert client.send("GET", "/mine", cookie=f"other=1; other=2; {session}")[0] == 200


def test_guesses_are_slowed_by_the_page_too(pool: Served) -> None:
    client = pool.client()
    codes = [client.log_in(f"name{n}", "guess") for n in range(11)]
    assert codes[0] == 403
    assert codes[10] == 429
    assert client.log_in("alice") == 429


def test_reading_by_login_shows_nothing_before_it(tmp_path: Path) -> None:
    with served(tmp_path, small(), ("alice",), reading="login") as page:
        client = page.client()
        assert client.send("GET", "/")[0] == 303
        for path in ("/events", "/mine", "/pool.json"):
            status, _, words = client.send("GET", path)
            assert (status, "gpu1" in words) == (403, False)
        assert client.log_in("alice") == 303
        assert "gpu1" in client.get("/pool.json")


def test_words_that_an_attacker_chose_are_shown_and_do_nothing(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a\u202eb\x1b[31m", "x" * 10_000, "&lt;"]
    source = small()
    for n, name in enumerate(names):
        source.known += slurm_job(100 + n, user=name, gres="gpu:v100:1(IDX:0)")
        more = {"state": "PENDING", "end": None, "state_reason": name, "partition": name}
        source.known += slurm_job(200 + n, user=name, gres="", **more)
        source.known += slurm_job(300 + n, name="my secret name", comment="my secret comment", gres="")
    with served(tmp_path, source) as page:
        words = page.client().get("/")
        assert "<script>alert" not in words
        assert "<img" not in words
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in words
        assert "\u202e" not in words
        assert "\x1b" not in words
        assert "x" * 100 not in words
        assert "my secret" not in words
        assert "my secret" not in page.client().get("/pool.json")


def test_an_end_shows_within_a_second_and_slurm_is_asked_at_most_six_times_a_minute(tmp_path: Path) -> None:
    with served(tmp_path, MadeUp(*many())) as page:
        source = page.source
        events = page.client().events()
        map_ = next(events)["gpus"]
        for number in (1001, 1002, 1003, 1004, 1005, 1006, 1007):
            assert re.search(rf"user[0-9]+ [0-9/]+ .*[(]lease {number}[)]", map_)
            began = time.monotonic()
            source.ending(number)
            page.announce(f"end {number}")
            while not re.search(rf"ending: user[0-9]+ [0-9/]+ [(]lease {number}[)]", map_):
                map_ = next(events).get("gpus", map_)
            assert time.monotonic() - began < 1.0 * SLOW
        time.sleep(2)
        assert len(source.asked) <= 6
        assert page.page.collector.asked == len(source.asked)


SLOW = 10
"""A machine that does everything at once: what is measured is in benchmarks; here, that it does not wait for a poll."""


def test_fifty_watchers_get_what_changes_and_cost_slurm_nothing(tmp_path: Path) -> None:
    with served(tmp_path, MadeUp(*many())) as page:
        watchers = [page.client().events() for _ in range(50)]
        for watcher in watchers:
            assert "gpus" in next(watcher)
        before = len(page.source.asked)
        page.announce("end 1001")
        for watcher in watchers:
            assert ">ending<" in next(watcher)["leases"]
        assert len(page.source.asked) - before <= 2


def test_numbers_are_old_and_dated_while_the_controller_is_away(tmp_path: Path) -> None:
    with served(tmp_path, small()) as page:
        page.source.away = "Slurm does not answer: connect failure"
        page.announce("end 41")
        until = time.monotonic() + 20
        while "Old numbers" not in (words := page.client().get("/")):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "gpu1" in words
        assert "connect failure" in words


def test_nothing_is_said_of_numbers_that_never_came(tmp_path: Path) -> None:
    source = small()
    source.away = "Slurm does not answer: connect failure"
    with served(tmp_path, source) as page:
        until = time.monotonic() + 20
        while "No numbers" not in page.client().get("/"):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_silence_and_unread_answers_end_connections_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SILENT_S", 1.0)
    monkeypatch.setattr(server_module, "UNREAD_S", 1.0)
    with served(tmp_path, MadeUp(*many())) as page:
        client = page.client()
        silent = []
        for _ in range(60):
            plain = socket.create_connection(("127.0.0.1", page.settings.port))
            silent.append(plain)
        slow = client.context.wrap_socket(socket.create_connection(("127.0.0.1", page.settings.port)))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(60):
            slow.sendall(b"GET /pool/pool.json HTTP/1.1\r\nHost: x\r\n\r\n")
        quiet = client.context.wrap_socket(socket.create_connection(("127.0.0.1", page.settings.port)))
        began = time.monotonic()
        assert "gpu1" in client.get("/")
        assert time.monotonic() - began < 5
        quiet.settimeout(20)
        assert quiet.recv(1) == b""
        time.sleep(3)
        assert "gpu1" in client.get("/")
        until = time.monotonic() + 20
        while server_module._by_address:
            assert time.monotonic() < until, "the unread answer is still held"
            time.sleep(0.1)
        slow.close()
        for plain in silent:
            plain.close()


def test_a_browser_that_goes_away_in_the_middle_leaves_nothing(pool: Served) -> None:
    for _ in range(20):
        there = pool.client()
        events = there.events()
        next(events)
        events.close()
    pool.announce("end 41")
    until = time.monotonic() + 40
    while pool.page._watchers:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_old_versions_and_weak_suites_of_tls_are_refused(pool: Served) -> None:
    assert old_versions("127.0.0.1", pool.settings.port) == set()
    assert suites("127.0.0.1", pool.settings.port) == STRONG


def test_a_renewed_certificate_counts_without_a_restart_and_one_that_ends_soon_is_named(tmp_path: Path) -> None:
    with served(tmp_path, small()) as page:
        before = ssl.get_server_certificate(("127.0.0.1", page.settings.port))
        certificate(tmp_path, days=2)
        os.utime(page.settings.certificate, (1, 1))
        page.page.live.warning = page.page.live._certificate() or page.page.live._certificate()
        assert "expires within 21 days" in page.page.live.warning
        assert ssl.get_server_certificate(("127.0.0.1", page.settings.port)) != before


@pytest.mark.parametrize(
    "path", ["/reports/../../etc/passwd", "/reports/%2e%2e%2fpasswd", "/static/../app.py", "/static/app.py"]
)
def test_no_file_but_those_that_are_served(pool: Served, path: str) -> None:
    client = pool.client()
    client.log_in("alice")
    assert client.send("GET", path)[0] == 404


def test_a_report_is_for_those_who_logged_in_and_has_no_origin(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "2026-11-21T10-15-00Z-roce40"
    run.mkdir(parents=True)
    (run / "verdict.json").write_text(json.dumps({"sign_off": "ACCEPTED", "headline": "all passed"}))
    (run / "topology.json").write_text(json.dumps({"nodes": [{"name": "gpu1"}]}))
    (run / "report.html").write_text("<p>the report</p>")
    with served(tmp_path, small(), ("alice",), runs=str(tmp_path / "runs")) as page:
        until = time.monotonic() + 20
        while "ACCEPTED" not in (words := page.client().get("/")):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "2026-11-21 10:15 UTC" in words
        assert page.client().send("GET", f"/reports/{run.name}")[0] == 303
        client = page.client()
        client.log_in("alice")
        status, headers, words = client.send("GET", f"/reports/{run.name}")
        assert (status, words) == (200, "<p>the report</p>")
        assert headers["content-security-policy"].startswith("sandbox allow-scripts;")


def test_a_page_that_nobody_announces_anything_to_is_not_troubled_by_noise(pool: Served) -> None:
    for words in ("", "end", "end 99999999999", "start x", "end 41; rm -rf /", "end -1"):
        pool.announce(words or " ")
    assert "gpu1" in pool.client().get("/")


def test_sigterm_ends_it_while_streams_are_open(tmp_path: Path) -> None:
    from tests.support.page_pool import free_port

    port = free_port()
    command = [sys.executable, "-m", "tests.support.page_pool", str(tmp_path), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    until = time.monotonic() + 30
    while True:
        try:
            events = Client(port).events()
            next(events)
            break
        except (OSError, AssertionError):
            assert time.monotonic() < until
            time.sleep(0.1)
    process.terminate()
    assert process.wait(10) in (0, -15)
