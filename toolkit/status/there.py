"""What a node says of itself for `toolkit status`. Sent there as text, for nothing is installed for it there.

Standard library alone, Python 3.9.

It takes one JSON object, {"head": whether to look at what only the head has}, and answers with one. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

RECORD = "etc/elastic-ai/provisioned.json"
WAITS = "run/elastic-ai/reboot-required"
LEDGERS = "var/lib/elastic-ai/ledger"
KEYS = ("/etc/munge/", "/etc/elastic-ai/slurm/munge.key", "/etc/elastic-ai/registry/", "/etc/docker/certs.d/")
"""What `toolkit rotate` exchanges is no drift: it is other than at the deployment, as it is to be."""
CERTIFICATES = {
    "registry authority": "etc/elastic-ai/registry/ca.crt",
    "registry": "etc/elastic-ai/registry/server.crt",
    "registry client": "etc/elastic-ai/registry/client.crt",
    "pool page": "etc/elastic-ai/page/tls.crt",
}
ROTATIONS = {
    "munge-key": "etc/elastic-ai/slurm/rotation/rotation.json",
    "registry": "etc/elastic-ai/registry/rotation/rotation.json",
}
BACKUP = "var/lib/prometheus/node-exporter/elastic_ai_backup.prom"
BACKUPS = "etc/elastic-ai/backup/backup.json"
PROMETHEUS = "etc/prometheus"
ADDRESSES = "etc/elastic-ai/monitoring.json"
"""Where role monitoring has Prometheus and Alertmanager listen, and how many receivers it was given."""
LISTENS = "127.0.0.1:9090"
"""Where Prometheus answers if nothing is said."""
MOST = 20
"""Of anything that is listed; what is beyond is counted."""
LIMIT_S = 20
MOST_BYTES = 4 << 20


def _ran(words: list[str]) -> str | None:
    """What a command prints; None where it is not there, fails or does not end."""
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    try:
        done = subprocess.run(words, capture_output=True, check=False, env=english, timeout=LIMIT_S, text=True)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def _json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def installed(ask: Any = _ran) -> dict[str, str] | None:
    """Package -> version as the node's package manager has it; None where it does not say."""
    said = ask(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n"])
    if said is not None:
        rows = (line.split() for line in said.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}
    said = ask(["rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"])
    if said is None:
        return None
    rows = (line.split() for line in said.splitlines())
    return {row[0]: row[1].removeprefix("0:") for row in rows if len(row) == 2}


def _as_pinned(pin: str, there: str) -> bool:
    """Whether a version is the pinned one, which may be a pattern and may leave out what follows a dash."""
    plain = pin.removeprefix("0:")
    return fnmatch.fnmatchcase(there, plain) or there.startswith(plain + "-")


def packages(record: dict[str, Any], there: dict[str, str] | None) -> dict[str, Any]:
    """Pinned packages whose version is another than at the deployment, or that are gone."""
    pinned = {str(name): str(version) for name, version in (record.get("pinned") or {}).items() if version}
    if there is None:
        return {"of": len(pinned), "read": False, "odd": []}
    odd = [
        f"{name} is {there.get(name, 'gone')}, deployed as {version}"
        for name, version in sorted(pinned.items())
        if name not in there or not _as_pinned(version, there[name])
    ]
    return {"of": len(pinned), "read": True, "odd": odd[:MOST], "more": max(0, len(odd) - MOST)}


def files(root: Path) -> dict[str, Any]:
    """Files that the roles wrote, and that are others now or gone."""
    wanted: dict[str, set[str]] = {}
    for ledger in sorted((root / LEDGERS).glob("*.files.json")):
        for path, entry in (_json(ledger).get("files") or {}).items():
            if isinstance(entry, dict) and not entry.get("removed") and not path.startswith(KEYS):
                wanted.setdefault(path, set()).add(str(entry.get("sha256", "")))
    odd = []
    for path, sums in sorted(wanted.items()):
        here = root / path.lstrip("/")
        try:
            if hashlib.sha256(here.read_bytes()).hexdigest() not in sums:
                odd.append(f"{path} was changed")
        except FileNotFoundError:
            odd.append(f"{path} is gone")
        except OSError as fault:
            odd.append(f"{path} cannot be read: {fault.strerror}")
    return {"of": len(wanted), "read": True, "odd": odd[:MOST], "more": max(0, len(odd) - MOST)}


def certificates(root: Path, ask: Any = _ran) -> dict[str, float | None]:
    """Certificate -> days until its end; None where it cannot be read."""
    found: dict[str, float | None] = {}
    for name, path in CERTIFICATES.items():
        if not (root / path).exists():
            continue
        said = ask(["openssl", "x509", "-noout", "-enddate", "-in", str(root / path)])
        found[name] = None
        if said and said.startswith("notAfter="):
            with contextlib.suppress(ValueError):
                ends = ssl.cert_time_to_seconds(said.strip().split("=", 1)[1])
                found[name] = round((ends - time.time()) / 86400, 2)
    return found


def backup(root: Path) -> dict[str, float] | None:
    """The figures of the head's backups; {} where they are set up and no figures are there, None without backups."""
    if not (root / BACKUPS).exists():
        return None
    found = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in (root / BACKUP).read_text("utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("elastic_ai_backup_"):
                with contextlib.suppress(ValueError):
                    found[name[len("elastic_ai_backup_") :]] = float(value)
    return found


def address_of(listens: str) -> str:
    """How this machine asks what listens there; an address that is all of them is asked at its own."""
    host, _, port = listens.rpartition(":")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - read, not opened
    return f"http://{host}:{port}"


def _got(url: str) -> Any:
    """The JSON that is answered there. OSError or ValueError where none is."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=LIMIT_S) as answer:
        return json.loads(answer.read(MOST_BYTES))


def alerts(root: Path, base: str = "") -> list[dict[str, str]] | str | None:
    """What fires; why it is not known; None where no Prometheus is set up."""
    if not (root / PROMETHEUS).is_dir():
        return None
    base = base or address_of(str(_json(root / ADDRESSES).get("prometheus") or LISTENS))
    try:
        return [
            {
                "name": str(row["labels"].get("alertname", "")),
                "severity": str(row["labels"].get("severity", "")),
                "where": str(row["labels"].get("node") or row["labels"].get("instance") or ""),
                "words": str(row["annotations"].get("summary", ""))[:300],
            }
            for row in _got(f"{base}/api/v1/alerts")["data"]["alerts"]
            if row["state"] == "firing"
        ][:1000]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        return f"Prometheus does not answer at {base}: {fault}"[:300]


def notifications(root: Path) -> dict[str, Any] | None:
    """Whom alerts are told, and what Alertmanager leaves out; None where role monitoring has set up nothing."""
    said = _json(root / ADDRESSES)
    if not said:
        return None
    found = {"receivers": int(said.get("receivers") or 0), "site": [str(one) for one in said.get("site") or []][:MOST]}
    listens = str(said.get("alertmanager") or "")
    if not listens:
        return found
    base = address_of(listens)
    try:
        rows = _got(f"{base}/api/v2/alerts")
        by_somebody = [row for row in rows if row["status"]["silencedBy"]]
        followed = [row for row in rows if row["status"]["inhibitedBy"] and not row["status"]["silencedBy"]]
        return {**found, "told": len(rows) - len(by_somebody) - len(followed), "follow": len(followed),
                "silenced": len(by_somebody)}  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        return {**found, "fault": f"Alertmanager does not answer at {base}: {fault}"[:300]}


def looked(asked: dict[str, Any], root: Path = Path("/")) -> dict[str, Any]:
    """All of it."""
    record = _json(root / RECORD)
    units = _ran(["systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"])
    room = os.statvfs(root)
    failed = [line.split()[0] for line in (units or "").splitlines() if line.strip()]
    said: dict[str, Any] = {
        "recorded": bool(record),
        "release": str(record.get("release", "")),
        "packages": packages(record, installed() if record.get("pinned") else {}),
        "files": files(root),
        "waits": sorted(path.name for path in (root / WAITS).glob("*"))[:MOST],
        "failed_units": None if units is None else failed[:MOST],
        "free": round(room.f_bavail / max(room.f_blocks, 1), 4),
    }
    if asked.get("head"):
        said["certificates"] = certificates(root)
        said["rotations"] = [name for name, path in ROTATIONS.items() if (root / path).exists()]
        said["backup"] = backup(root)
        said["alerts"] = alerts(root)
        said["notifications"] = notifications(root)
    return said


if __name__ == "__main__":
    print(json.dumps(looked(json.loads(sys.stdin.buffer.read() or b"{}"))))
