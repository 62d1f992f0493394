"""The page's panels and how the site is: the real server before a real Prometheus with a lab's figures as its past."""

from __future__ import annotations

import html
import http.server
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.alerting import ROLE
from tests.support.lease_texts import node_text, slurm_job
from tests.support.page_pool import MadeUp, Served, known_users, served
from tests.support.recorded_prometheus import recorded
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.page import boards, courses, panels
from toolkit.page.boards import TITLES

pytestmark = pytest.mark.engines
FILES = ROLE / "files"


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    known_users(monkeypatch, "ann", "o'brien")


def pool() -> MadeUp:
    return MadeUp(parse_nodes(node_text()), slurm_job(41))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; the figures end a quarter of a minute ago."""
    if shutil.which("prometheus") is None:
        pytest.skip("no Prometheus here: Debian's package prometheus")
    with recorded(tmp_path_factory.mktemp("prometheus"), int(time.time()) - 15) as base:
        yield base


@pytest.fixture
def page(tmp_path: Path, prometheus: str) -> Iterator[Served]:
    with served(tmp_path, pool(), ("ann", "o'brien"), prometheus=prometheus, boards=str(FILES)) as made:
        until(made, "/", 'href="/pool/panels/pool"')
        yield made


def until(made: Served, path: str, words: str) -> str:
    client, end = made.client(), time.monotonic() + 60
    while words not in (found := client.get(path)):
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


def test_who_is_not_logged_in_is_led_to_the_login(page: Served) -> None:
    status, headers, _ = page.client().send("GET", "/panels/gpus")
    assert (status, headers["location"]) == (303, "/pool/login")


def test_each_panel_of_each_dashboard_is_on_the_page_and_none_is_silent(page: Served) -> None:
    client = page.client()
    assert client.log_in("ann") == 303
    for name in TITLES:
        words = client.get(f"/panels/{name}?span=1h")
        titles = [panel["title"] for panel in json.loads((FILES / f"{name}.json").read_text("utf-8"))["panels"]]
        for title in titles:
            assert f"<h2>{html.escape(title, quote=True)}</h2>".replace("&#x27;", "&#39;") in words, name
        assert "Not known" not in words, name


def test_courses_have_their_figures_and_their_units(page: Served) -> None:
    client = page.client()
    client.log_in("ann")
    words = client.get("/panels/gpus?span=1h")
    part = words.split("<h2>Temperature</h2>")[1].split("</section>")[0]
    assert part.count('class="line') == 4
    assert "gpu1 GPU 3" in part
    assert re.search(r"<td>\d+ °C</td>", part)
    ways = re.findall(r' d="([ML0-9. ]+)"/?><title>', part)
    assert all(len(way.split("L")) > 10 for way in ways), "a line, and no single points"
    assert re.search(r'<p class="number">4</p>', words.split("<h2>GPUs that answer</h2>")[1])
    table = words.split("<h2>GPUs</h2>")[1]
    assert "Emulated V100-SXM2-32GB" in table


def test_a_node_is_chosen_of_those_that_are_read_and_a_user_sees_the_own_figures(page: Served) -> None:
    client = page.client()
    client.log_in("ann")
    words = client.get("/panels/node?span=1h&node=gpu1")
    assert "<option selected>gpu1</option>" in words
    assert "<option>head</option>" in words
    assert "Prometheus reads no node gpu9" in client.get("/panels/node?node=gpu9")
    hostile = "/panels/node?node=gpu1%22%7D%20or%20up%7Bx%3D%22"
    assert client.send("GET", hostile)[0] == 404
    own = client.get("/panels/user?span=1h&user=bob")
    assert "Your own figures, <bdi>ann</bdi>" in own
    assert re.search(r'<p class="number">2</p>', own.split("<h2>GPUs held</h2>")[1])
    for odd in ("/panels/none", "/panels/..%2fpool", "/panels/gpus?span=99y"):
        assert client.send("GET", odd)[0] == 404, odd
    other = page.client()
    other.log_in("o'brien")
    assert other.send("GET", "/panels/user")[0] == 404, "no name that could change a query"


def test_the_page_tells_how_the_site_is_by_prometheus(page: Served) -> None:
    words = until(page, "/", '<span class="state bad">').split('aria-labelledby="site-title"')[1].split("</section>")[0]
    assert "all answer (2)" in words
    assert "2 packages or files are others: gpu1, head" in words
    assert "no systemd unit has failed" in words
    assert "all servers take work" in words
    assert "backup" not in words, "a topic without figures has no line"


class Odd(http.server.BaseHTTPRequestHandler):
    """What no Prometheus says."""

    words = b'{"status": "success", "data": {"result": 5}}'

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.words)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "words",
    [b"no json", b'{"status": "success", "data": {"result": [{"metric": 5, "values": [[1]]}, 7]}}', b"[" * 100_000],
)
def test_an_answer_that_cannot_be_used_is_no_figure_and_many_readers_ask_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: bytes
) -> None:
    monkeypatch.setattr(Odd, "words", words)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        with served(tmp_path, pool(), ("ann",), prometheus=base, boards=str(FILES)) as made:
            until(made, "/", 'href="/pool/panels/pool"')
            client = made.client()
            client.log_in("ann")
            first = client.get("/panels/gpus")
            assert "Not known" in first or "No figure" in first
            monkeypatch.setattr(panels, "KEPT_S", 3600)
            client.get("/panels/fabric")
            kept = dict(made.page._panels._kept)
            for _ in range(5):
                client.get("/panels/fabric")
            assert made.page._panels._kept == kept, "drawn once for all"
    finally:
        server.shutdown()
        server.server_close()


def test_no_dashboards_no_link_and_no_panels(tmp_path: Path, prometheus: str) -> None:
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards/gpus.json").write_text("[1]")
    (tmp_path / "boards/node.json").write_text('{"title": "x"}')
    with served(tmp_path, pool(), ("ann",), prometheus=prometheus, boards=str(tmp_path / "boards")) as made:
        client = made.client()
        client.log_in("ann")
        assert "/panels/" not in client.get("/")
        assert client.send("GET", "/panels/gpus")[0] == 404


def test_axes_have_round_marks_and_gaps_break_a_line() -> None:
    points = [(0.0, 0.0), (15.0, 7.3), (60.0, 3.0), (75.0, 3.0)]
    drawn = courses.chart("x", "watt", [("a", points)], (0.0, 3600.0), 15)
    assert [tick.words for tick in drawn.up] == ["0 W", "2 W", "4 W", "6 W", "8 W"]
    assert drawn.lines[0].way.count("M") == 2
    assert (drawn.lines[0].last, drawn.lines[0].least, drawn.lines[0].most) == ("3 W", "0 W", "7.3 W")
    flat = courses.chart("x", "none", [("a", [(0.0, -4.0), (15.0, -4.0)])], (0.0, 3600.0), 15)
    assert flat.up[0].words == "-4"
    many = courses.chart("x", "none", [(f"n{n}", [(0.0, float(n))]) for n in range(40)], (0.0, 3600.0), 15)
    assert (len(many.lines), many.more) == (courses.MOST_LINES, 40 - courses.MOST_LINES)
    assert {line.name for line in many.lines} == {f"n{n}" for n in range(24, 40)}
    for span in courses.SPANS.values():
        drawn = courses.chart("x", "none", [("a", [(0.0, 1.0)])], (1.0, 1.0 + span), 15)
        assert 4 <= len(drawn.across) <= 8


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.734, "percentunit", "73.4 %"), (1.2e10, "bps", "12 Gbit/s"), (3 << 30, "bytes", "3.22 GB"),
        (41, "celsius", "41 °C"),
        (5400, "s", "1.5 h"), (12, "s", "12 s"), (0, "bps", "0 bit/s"), (7, "short", "7"), (0.3333, "none", "0.333"),
        (1e300, "none", "1e+300"),
    ],
)  # fmt: skip
def test_figures_have_their_unit(value: float, unit: str, words: str) -> None:
    assert boards.figure(value, unit) == words
