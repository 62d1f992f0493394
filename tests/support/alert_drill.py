"""Faults of a lab and who is told of them: a webhook on its head, and what was heard of each fault."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tests.support.fault_alerts import EXPECTED, Expected
from toolkit.lab.faults import FAULTS

PORT, HEARD, PROGRAM, UNIT = 9909, "/root/heard.jsonl", "/root/hear.py", "it-alerts-hook"
#: Writes a line for each notification: when, and (status, alert, node) of what is in it.
HOOK = f"""
import http.server, json, time
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = [(one["status"], one["labels"]["alertname"], one["labels"].get("node", "")) for one in said["alerts"]]
        with open({HEARD!r}, "a") as file:
            file.write(json.dumps({{"at": time.time(), "rows": rows}}) + "\\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), Hook).serve_forever()
"""
#: Those that leave something behind for a while, an alert of the last quarter of an hour or a node that boots.
LAST = ("dead-node", "flapping-port")
LONG_S = 600  # an alert that waits longer on purpose is looked for among those that Prometheus has pending


class Shell(Protocol):
    """A lab."""

    def ssh(self, node: str, *command: str) -> str:
        """stdout of a command there."""


class Notified(NamedTuple):
    """One alert of a notification."""

    at: float
    status: str
    alert: str
    node: str


def kinds() -> list[str]:
    """Faults with an alert that a lab of containers can have."""
    found = [
        kind for kind, row in EXPECTED.items()
        if row.alert and not (FAULTS[kind].vm_only or FAULTS[kind].bmc or FAULTS[kind].switch)
    ]  # fmt: skip
    return [kind for kind in found if kind not in LAST] + [kind for kind in LAST if kind in found]


def listen(lab: Shell) -> None:
    """The webhook, on the head."""
    lab.ssh("head", f"printf %s {shlex.quote(HOOK)} > {PROGRAM}; : > {HEARD}")
    lab.ssh("head", f"systemd-run --quiet --collect --unit={UNIT} python3 {PROGRAM}")


def heard(lab: Shell, since: float = 0.0) -> list[Notified]:
    """What receivers were told since then."""
    lines = [json.loads(line) for line in lab.ssh("head", f"cat {HEARD}").splitlines()]
    return [Notified(one["at"], *row) for one in lines for row in one["rows"] if one["at"] >= since]


def alerts(lab: Shell) -> set[tuple[str, str, str]]:
    """(state, alert, node) as Prometheus has them; without those that nobody is told of."""
    said = json.loads(lab.ssh("head", "curl -sS http://127.0.0.1:9090/api/v1/alerts"))["data"]["alerts"]
    told = [one for one in said if one["labels"]["severity"] != "info"]
    return {(one["state"], one["labels"]["alertname"], one["labels"].get("node", "")) for one in told}


def pending(lab: Shell, alert: str, node: str) -> bool:
    """Whether an alert waits for its time, of any severity."""
    said = json.loads(lab.ssh("head", "curl -sS http://127.0.0.1:9090/api/v1/alerts"))["data"]["alerts"]
    return any(one["labels"]["alertname"] == alert and one["labels"].get("node") == node for one in said)


def until(what: Callable[[], Any], limit_s: float) -> Any:
    """What it says as soon as that is something, or at last."""
    end = time.monotonic() + limit_s
    while not (found := what()) and time.monotonic() < end:
        time.sleep(3)
    return found


def firing(lab: Shell, since: float, alert: str, node: str) -> float | None:
    """When it was told first; None where it was not."""
    return next((one.at for one in heard(lab, since) if one[1:] == ("firing", alert, node)), None)


def others(said: list[Notified], row: Expected, node: str) -> list[tuple[str, str]]:
    """(alert, node) that was told and is neither the fault's nor what may come beside it."""
    right = {row.alert, *row.also}
    fired = {(one.alert, one.node) for one in said if one.status == "firing"}
    return sorted((alert, where) for alert, where in fired if alert not in right or (where != node and not row.twin))
