"""The page of the pool under clients, users and servers that mean it no good, and after errors that nobody expected."""

from __future__ import annotations

import http.client
import http.server
import json
import pwd
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.lease_texts import node_text, slurm_job
from tests.support.page_pool import MadeUp, served
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob, parse_nodes
from toolkit.page import app as app_module
from toolkit.page import figures
from toolkit.page import server as server_module
from toolkit.page.settings import Settings
from toolkit.page.validations import last_validations
from validation.base.project import ROOT

pytestmark = pytest.mark.engines


def small() -> MadeUp:
    return MadeUp(parse_nodes(node_text()), slurm_job(41) + slurm_job(42))


@pytest.mark.parametrize("body", [0, 100_000])
def test_a_question_that_never_ends_does_not_hold_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: int
) -> None:
    """The first is asked and answered; then a byte comes now and again."""
    monkeypatch.setattr(server_module, "SILENT_S", 1.0)
    with served(tmp_path, small()) as page:
        there = page.client().context.wrap_socket(socket.create_connection(("127.0.0.1", page.settings.port)))
        there.settimeout(0.2)
        length = f"Content-Length: {body}\r\n" if body else ""
        there.sendall(f"GET /pool/static/page.css HTTP/1.1\r\nHost: x\r\n{length}\r\n".encode())
        until, ended = time.monotonic() + 15, False
        while not ended:
            assert time.monotonic() < until, "the connection is still held"
            try:
                there.sendall(b"x")
                ended = there.recv(1 << 16) == b""
            except TimeoutError:
                pass
            except OSError:
                ended = True


def test_a_handshake_that_never_ends_does_not_hold_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_S", 1.0)
    with served(tmp_path, small()) as page, socket.create_connection(("127.0.0.1", page.settings.port)) as there:
        there.settimeout(20)
        assert there.recv(1) == b""


def test_a_watcher_gets_a_beat_that_its_script_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "BEAT_S", 0.1)
    with served(tmp_path, small()) as page:
        there = http.client.HTTPSConnection("127.0.0.1", page.settings.port, context=page.client().context, timeout=20)
        there.request("GET", "/pool/events")
        answer = there.getresponse()
        lines = [answer.readline() for _ in range(20)]
        assert b"event: beat\n" in lines
        there.close()


def test_one_address_leaves_watchers_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MOST_WATCHERS", 8)
    with served(tmp_path, small()) as page:

        def watch(address: str) -> tuple[int, http.client.HTTPSConnection]:
            there = http.client.HTTPSConnection(
                "127.0.0.1", page.settings.port, context=page.client().context, timeout=20, source_address=(address, 0)
            )
            there.request("GET", "/pool/events")
            answer = there.getresponse()
            if answer.status == 200:
                answer.readline()
            return answer.status, there

        first = [watch("127.0.0.2") for _ in range(6)]
        assert [status for status, _ in first] == [200] * 4 + [503] * 2
        other = watch("127.0.0.3")
        assert other[0] == 200
        for _, there in (*first, other):
            there.close()


def test_a_certificate_that_cannot_be_read_has_not_expired(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("no certificate")
    settings = Settings(certificate=str(tmp_path / "tls.crt"), key=str(tmp_path / "tls.key"))
    trouble = server_module.Certificate(settings, None).trouble()
    assert "cannot be read: look at" in trouble
    assert "expired" not in trouble


def test_a_report_that_the_page_may_not_look_at_ends_nothing(tmp_path: Path) -> None:
    run = tmp_path / "2026-11-21T10-15-00Z-roce40"
    run.mkdir()
    (run / "verdict.json").write_text(json.dumps({"sign_off": "ACCEPTED"}))
    (run / "topology.json").write_text(json.dumps({"nodes": [{"name": "gpu1"}]}))
    (run / "report.html").symlink_to("x" * 300)  # as one that is denied, it raises where somebody looks, root too
    assert [one.report for one in last_validations(tmp_path)] == [False]


def test_certificates_that_roles_make_sign_no_others() -> None:
    """OpenSSL's own default is one that may: whoever trusts it would trust all that it signs."""
    makers = [ROOT / "roles" / name for name in ("pool_page/tasks/certificate.yml", "jupyterhub/tasks/keys.yml")]
    assert all("-x509" in path.read_text() for path in makers)
    assert [path for path in makers if "basicConstraints=critical,CA:FALSE" not in path.read_text()] == []


class Broken(MadeUp):
    """Raises what nobody expects of it, once."""

    broken = False

    def jobs(self) -> Sequence[SlurmJob]:
        if self.broken:
            self.broken = False
            raise RuntimeError("nobody expected this")
        return super().jobs()


def leased(document: str) -> set[int]:
    """The leases in a document of the page; a search for a number in its text would find that in a time too."""
    return {use["lease"] for gpu in json.loads(document)["gpus"] for use in gpu["uses"]}


def test_the_page_goes_on_after_an_error_that_nobody_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "AGAIN_S", 0.1)
    made = small()
    with served(tmp_path, Broken(made.servers, made.known)) as page:
        page.source.broken = True
        page.announce("end 1")
        until = time.monotonic() + 20
        while page.source.broken:
            assert time.monotonic() < until
            time.sleep(0.05)
        page.source.end(41)
        page.announce("end 41")
        while 41 in leased(page.client().get("/pool.json")):
            assert time.monotonic() < until, "Slurm is asked no more"
            time.sleep(0.1)


class Half(MadeUp):
    """Its answer for jobs comes the second time alone."""

    def jobs(self) -> Sequence[SlurmJob]:
        self.away = "away" if len(self.asked) == 1 else ""
        return super().jobs()

    def nodes(self) -> Sequence[PoolNode]:
        self.away = ""
        return super().nodes()


def test_half_an_answer_is_none(tmp_path: Path) -> None:
    """Servers were named, jobs were not: both are asked for again, and no pool without servers is shown meanwhile."""
    made = small()
    with served(tmp_path, Half(made.servers, made.known)) as page:
        collector = page.page.collector
        assert collector.reading.at is None
        assert collector._nodes_due == collector._jobs_due


def test_of_a_user_one_lease_is_changed_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/", "/bin/sh"))
    monkeypatch.setattr("toolkit.login.helper.pwd.getpwnam", {"alice": alice}.__getitem__)
    goes_on = threading.Event()

    def slow(command: Sequence[str], account: object, more: Mapping[str, str]) -> tuple[int, str]:
        page.helper.ran.append((list(command), "alice"))
        goes_on.wait(20)
        return 0, "released"

    with served(tmp_path, small(), ("alice",)) as page:
        page.helper._run = slow  # type: ignore[method-assign]
        client = page.client()
        assert client.log_in("alice") == 303
        form = {"form": client.secret("/")}
        codes: list[int] = []
        first = threading.Thread(target=lambda: codes.append(client.send("POST", "/leases/41/release", form)[0]))
        first.start()
        until = time.monotonic() + 20
        while not page.helper.ran:
            assert time.monotonic() < until
            time.sleep(0.02)
        try:
            others = [client.send("POST", "/leases/42/release", form)[0] for _ in range(3)]
        finally:
            goes_on.set()
            first.join()
        assert others == [429] * 3
        assert codes == [303]
        assert client.send("POST", "/leases/42/release", form)[0] == 303
        assert len(page.helper.ran) == 2


class Prometheus(http.server.BaseHTTPRequestHandler):
    answers: Mapping[str, bytes] = {}

    def do_GET(self) -> None:
        self.wfile.write(self.answers[self.path.split("?")[0].rpartition("/")[2]])

    def log_message(self, *_: object) -> None:
        pass


def whole(data: object) -> bytes:
    words = json.dumps({"status": "success", "data": data}).encode()
    return b"HTTP/1.0 200 OK\r\n\r\n" + words


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "answer", [b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5"]
)
def test_an_answer_of_prometheus_that_is_cut_is_none(
    prometheus: str, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(Prometheus, "answers", {"query": answer})
    assert figures.now_figures(prometheus) == figures.NONE


def test_a_server_cannot_end_the_figures_by_a_label_and_alerts_have_the_time_of_their_zone(
    prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"metric": {"node": "gpu1", "gpu": gpu}, "value": [0, "40"]} for gpu in ("0", "\u00b2", "-1", "9" * 5000)]
    alerts = [
        {"state": "firing", "labels": {"alertname": name}, "annotations": {}, "activeAt": when}
        for name, when in (("a", "2026-01-02T03:04:05.123456789Z"), ("b", "2026-01-02T05:04:05+02:00"), ("c", "x"))
    ]
    monkeypatch.setattr(Prometheus, "answers", {"query": whole({"result": rows}), "alerts": whole({"alerts": alerts})})
    found = figures.now_figures(prometheus)
    assert dict(found.temperatures) == {("gpu1", 0): 40.0}
    assert [one.since for one in found.alerts or ()] == [1767323045.0, 1767323045.0, None]
