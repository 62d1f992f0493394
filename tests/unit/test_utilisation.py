"""The probe of what monitoring has recorded, against an HTTP server that evaluates ranges as Prometheus does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from validation.measures.pool.utilisation import utilisation as parse
from validation.measures.pool.utilisation_probe import Asked, probe

RECORDED_S = 60.0  # recording began a minute ago
MOST = 11000  # points of a range, as Prometheus has it


class Recorder(BaseHTTPRequestHandler):
    """Prometheus's query API over one minute of readings."""

    def do_GET(self) -> None:
        """Values at start, start + step, ... up to the end, where something was recorded."""
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        result = []
        if split.path.endswith("query_range"):
            # integers in ms, as there
            start, end, step = (round(float(query[name]) * 1000) for name in ("start", "end", "step"))
            points = range(start, end + 1, step)
            assert len(points) <= MOST
            since = (time.time() - RECORDED_S) * 1000
            result = [{"values": [[at / 1000, "0.5"] for at in points if at >= since]}]
        body = json.dumps({"status": "success", "data": {"result": result}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def url() -> Iterator[str]:
    """Where it answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("days", [0.01, 1.0, 7.0, 30.0])
def test_what_was_recorded_in_the_last_minute_is_seen(url: str, days: float) -> None:
    facts = probe(Asked(url=url, days=days))["facts"]
    assert facts["leased_ratio"]
    assert set(facts["leased_ratio"]) == {0.5}
    assert facts["leased_ratio_from_s"] <= RECORDED_S
    samples, kept = parse({"facts": facts, "stdout": ""}, {"days": days})
    assert kept["step_s"] == facts["step_s"]  # how far the report's readings are apart
    assert len([s for s in samples if s.metric == "leased_ratio"]) == len(facts["leased_ratio"])
