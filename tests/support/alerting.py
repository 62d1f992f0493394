"""Alertmanager for tests: its configuration as role monitoring writes it, the real program, and who is notified."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROLE = Path(__file__).parents[2] / "roles/monitoring"
LIMIT_S = 90.0  # far more than anything here takes, also beside others


def rendered(template: str, **variables: Any) -> str:
    """A template of the role with its defaults and these variables."""
    made = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"to_json": json.dumps, "bool": bool}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text("utf-8"))
    return made.get_template(template).render({**defaults, "__monitoring_head": "head", **variables})


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(what: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """What it says as soon as that is something, or at last."""
    end = time.monotonic() + limit_s
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


class Receiver:
    """A webhook: names of alerts in each notification, as (status, group, sorted (alert, node))."""

    def __init__(self, port: int = 0) -> None:
        self.told: list[dict[str, Any]] = []
        self.headers: list[str] = []
        ours = self

        class Hook(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                ours.headers.append(self.headers.get("Authorization", ""))
                ours.told.append(said)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Hook)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def firing(self) -> list[list[str]]:
        """Of each notification what fires, as `Alert of node`, sorted."""
        return [
            sorted(f"{one['labels']['alertname']} of {one['labels'].get('node', 'pool')}" for one in said["alerts"])
            for said in self.told
            if said["status"] == "firing"
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Alertmanager:
    """The program, at loopback."""

    def __init__(self, folder: Path, configuration: str) -> None:
        self.base = f"http://127.0.0.1:{free_port()}"
        file = folder / "alertmanager.yml"
        file.write_text(configuration, encoding="utf-8")
        words = ["prometheus-alertmanager", f"--config.file={file}", f"--web.listen-address={self.base[7:]}",
                 "--cluster.listen-address=", f"--storage.path={folder / 'data'}"]  # fmt: skip
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        assert until(self._ready), (folder / "log").read_text()

    def ask(self, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as answer:
            return bytes(answer.read())

    def _ready(self) -> bool:
        try:
            return bool(self.ask("/-/ready"))
        except OSError:
            return False

    def fire(self, *alerts: dict[str, str]) -> None:
        """As Prometheus posts them. Each: labels, severity critical where none is said."""
        self.ask("/api/v2/alerts", [{"labels": {"severity": "critical", **one}} for one in alerts])

    def figure(self, name: str) -> float:
        """Sum of a metric over its labels."""
        lines = self.ask("/metrics").decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def alertmanager(folder: Path, configuration: str) -> Iterator[Alertmanager]:
    folder.mkdir(parents=True, exist_ok=True)
    made = Alertmanager(folder, configuration)
    try:
        yield made
    finally:
        made.close()
