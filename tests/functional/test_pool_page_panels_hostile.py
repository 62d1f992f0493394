"""The page's panels before hostile figures, a slow Prometheus and a reader who wants all of it."""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.alerting import ROLE
from tests.support.lease_texts import node_text, slurm_job
from tests.support.page_pool import MadeUp, Served, known_users, served
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.page import boards, courses, prometheus
from toolkit.page.boards import Board, Panel, Query

pytestmark = pytest.mark.engines
FILES = ROLE / "files"
NOW = 1_790_000_000.0
Rows = list[dict[str, object]]


class MadeUpPrometheus:
    """Answers each query with the rows that it is given."""

    def __init__(self) -> None:
        self.rows: Callable[[str], Rows] = lambda query: []
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query", [""])[0]
                outer.asked.append(query)
                said = json.dumps({"status": "success", "data": {"result": outer.rows(query)}}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def made_up() -> Iterator[MadeUpPrometheus]:
    found = MadeUpPrometheus()
    threading.Thread(target=found.server.serve_forever, args=(0.05,), daemon=True).start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def board(kind: str, unit: str = "none") -> Board:
    return Board("x", "X", "", (Panel("t", kind, unit, (Query("a", ""), Query("b", ""))),))  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["none", "s", "bytes", "percentunit", "watt"])
@pytest.mark.parametrize("value", ["1.7976931348623157e308", "-1.7e308", "5e-324", "1e100", "+Inf", "NaN", "-0"])
def test_no_value_of_a_node_takes_a_panel_from_all_readers(made_up: MadeUpPrometheus, unit: str, value: str) -> None:
    points = [[NOW - 60, value], [NOW - 30, "-1e100"], [NOW - 15, "3"]]
    made_up.rows = lambda query: [{"metric": {"node": "gpu1"}, "values": points, "value": points[0]}]
    for kind in ("course", "figure", "table"):
        (shown,) = courses.drawn_board(made_up.base, board(kind, unit), "", "1h", NOW)
        assert shown.silent == ""
        assert "inf" not in repr(shown).lower()


def test_series_and_labels_without_number_are_cut_and_counted(made_up: MadeUpPrometheus) -> None:
    labels = {f"label{n}": "x" * 500 for n in range(30)}
    made_up.rows = lambda query: [
        {"metric": {**labels, "node": f"gpu{n}"}, "values": [[NOW - 60, str(n)]], "value": [NOW, "1"]}
        for n in range(300 if query == "a" else 5)
    ]
    (table,) = courses.drawn_board(made_up.base, board("table"), "", "1h", NOW)
    assert table.head[0] == "node"
    assert {len(row) for row in table.rows} == {len(table.head)} == {courses.MOST_COLUMNS}
    (lines,) = courses.drawn_board(made_up.base, board("course"), "", "1h", NOW)
    assert (len(lines.lines), lines.more) == (courses.MOST_LINES, 305 - courses.MOST_LINES)
    assert {line.last for line in lines.lines} == {str(n) for n in range(284, 300)}, "the greatest of both queries"


def test_an_answer_that_drips_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word comes in time, and the whole never."""
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.5)
    ended = threading.Event()

    class Drips(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(200):
                    self.wfile.write(b" ")
                    time.sleep(0.05)
                self.wfile.write(b'{"status": "success", "data": {"result": []}}')
            except OSError:
                ended.set()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Drips)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        with pytest.raises(prometheus.Silent, match="answers slowly"):
            prometheus.samples(f"http://127.0.0.1:{server.server_port}", "up")
        assert ended.wait(20)
    finally:
        server.shutdown()
        server.server_close()


def test_no_proxy_of_the_environment_gets_the_questions(
    made_up: MadeUpPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert prometheus.samples(made_up.base, "up") == []


@pytest.fixture
def page(tmp_path: Path, made_up: MadeUpPrometheus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    known_users(monkeypatch, "ann", "bob")
    pool = MadeUp(parse_nodes(node_text()), slurm_job(41))
    with served(tmp_path, pool, ("ann", "bob"), prometheus=made_up.base, boards=str(FILES)) as made:
        end = time.monotonic() + 60
        while "/panels/pool" not in made.client().get("/"):
            assert time.monotonic() < end
            time.sleep(0.1)
        yield made


def test_who_asks_for_all_of_it_keeps_no_other_reader_waiting(
    page: Served, made_up: MadeUpPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels that are drawn are shown while looks go on; and a user has one look at a time: another gets one, too."""
    ann, bob = page.client(), page.client()
    ann.log_in("ann")
    bob.log_in("bob")
    bob.get("/panels/fabric?span=1h")
    known = boards.read_boards(FILES)
    of = {name: {one.expression for panel in board.panels for one in panel.queries} for name, board in known.items()}
    greedy = of["gpus"] - of["fabric"] - of["pool"] - {"elastic_ai_gpu_temperature_celsius"}  # which the page asks, too
    going, go, held = threading.Semaphore(0), threading.Event(), []

    def answer(query: str) -> Rows:
        if query in greedy:
            held.append(query)
            going.release()
            go.wait(100)
        return []

    monkeypatch.setattr(prometheus, "ANSWER_S", 100)
    made_up.rows = answer
    threads = [
        threading.Thread(target=ann.send, args=("GET", f"/panels/gpus?span={span}"), daemon=True)
        for span in courses.SPANS
    ]
    try:
        for one in threads:
            one.start()
        assert going.acquire(timeout=20)
        bob.get("/panels/fabric?span=1h")
        bob.get("/panels/pool?span=1h")
        assert len(held) == 1, "one look of hers, and no more"
    finally:
        go.set()
        for one in threads:
            one.join(30)
