"""What a node does in a rotation. Sent there as text, for nothing is installed for it; standard library alone.

look      which keys and certificates are here, by their SHA-256, and a rotation that is open
place     write files, each as a whole
restart   a unit, at a moment that all nodes share
seal      a credential of munge
unseal    whether credentials of others open here
greet     ask the registry with this node's certificates
begin     on the head: make the new key or certificates beside the old ones
note      on the head: how far the rotation is
held      on the head: the old and the new files
end       on the head: remove what the rotation kept
A verb takes one JSON object and answers with one; each can be done again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pwd
import re
import secrets
import shutil
import ssl
import string
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SLURM, REGISTRY = "/etc/elastic-ai/slurm", "/etc/elastic-ai/registry"
KEPT = {"munge-key": f"{SLURM}/rotation", "registry": f"{REGISTRY}/rotation"}
MUNGE_KEY = "/etc/munge/munge.key"
CONFIGURATION = "/etc/docker/registry/config.yml"
CLIENTS = "/etc/docker/certs.d"
PAIRS = ("ca", "server", "client")
NOTE = "rotation.json"
DAYS = "3650"
MOST_WAIT_S = 30.0


class Refusal(Exception):
    """One sentence: what is wrong and what to do."""


def _ran(words: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    try:
        return subprocess.run(words, input=given, capture_output=True, check=False, env=english, timeout=60)
    except OSError as fault:
        return subprocess.CompletedProcess(words, 127, b"", str(fault).encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, b"", f"{words[0]} did not answer within 60 s".encode())


def _words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"{done.args[0]} ended with {done.returncode}"


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _sha256(path: Path) -> str:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _opened(root: Path) -> dict[str, Any]:
    found = {}
    for what, folder in KEPT.items():
        with contextlib.suppress(OSError, ValueError):
            found[what] = json.loads((_at(root, folder) / NOTE).read_text("utf-8"))
    return found


def look(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """Nothing is changed, and nothing secret is told."""
    key, config = _at(root, MUNGE_KEY), _at(root, CONFIGURATION)
    address = ""
    if _at(root, f"{REGISTRY}/ca.key").exists() and config.exists():
        found = re.search(r"^\s+addr:\s*(\S+)\s*$", config.read_text("utf-8"), re.MULTILINE)
        address = found[1] if found else ""
    clients = {}
    for folder in sorted(_at(root, CLIENTS).glob("*")):
        clients[folder.name] = {name: _sha256(folder / name) for name in ("ca.crt", "client.cert", "client.key")}
    return {
        "clock": time.time(),
        "munge": _sha256(key),
        "munge_runs": _ran(["systemctl", "is-active", "munge.service"]).stdout.strip() == b"active",
        "head_munge": _sha256(_at(root, f"{SLURM}/munge.key")),
        "registry": address,
        "clients": clients,
        "open": _opened(root),
    }


def _written(path: Path, content: bytes, mode: int, user: str = "") -> None:
    """The whole file or what was there."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(content)
        if user:
            with contextlib.suppress(KeyError):
                owner = pwd.getpwnam(user)
                os.fchown(out.fileno(), owner.pw_uid, owner.pw_gid)
        os.fchmod(out.fileno(), mode)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)


def place(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """The ledger of the role whose file it is learns of it: else a teardown takes it for a change of somebody's."""
    changed = []
    for one in asked["files"]:
        path, content = _at(root, one["path"]), base64.b64decode(one["content"])
        if not path.parent.is_dir():
            raise Refusal(f"{path.parent} is not there: deploy this node first")
        if _sha256(path) != hashlib.sha256(content).hexdigest():
            _written(path, content, one["mode"], one.get("user", ""))
            changed.append(one["path"])
        _entered(_at(root, f"/var/lib/elastic-ai/ledger/{one['role']}.files.json"), one["path"], content)
    return {"changed": changed}


def _entered(ledger: Path, path: str, content: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads(ledger.read_text("utf-8"))
        sha256 = hashlib.sha256(content).hexdigest()
        if said["files"][path]["sha256"] != sha256:
            said["files"][path]["sha256"] = sha256
            _written(ledger, json.dumps(said).encode(), ledger.stat().st_mode & 0o777)


def restart(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """`at`: seconds since 1970; a clock that is far off does not hold it up for long."""
    time.sleep(min(max(0.0, asked.get("at", 0.0) - time.time()), MOST_WAIT_S))
    done = _ran(["systemctl", "restart", asked["unit"]])
    if done.returncode != 0:
        raise Refusal(f"{asked['unit']} does not start: {_words(done)}")
    return {"restarted": asked["unit"]}


def seal(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """Of this moment and of no secret."""
    done = _ran(["munge", "--no-input"])
    if done.returncode != 0:
        raise Refusal(f"munge does not seal: {_words(done)}")
    return {"sealed": done.stdout.decode("ascii", "replace").strip()}


def unseal(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """Name -> why its credential does not open; "" where it does."""
    said = {}
    for name, sealed in asked["sealed"].items():
        done = _ran(["unmunge", "--metadata=/dev/null"], sealed.encode())
        said[name] = "" if done.returncode == 0 else _words(done)
    return {"faults": said}


def greet(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """By TLS with the files that Docker takes: it has to be the registry, and let this node in."""
    folder, address = _at(root, f"{CLIENTS}/{asked['address']}"), asked["address"]
    try:
        trusted = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        trusted.load_cert_chain(str(folder / "client.cert"), str(folder / "client.key"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        with opener.open(f"https://{address}/v2/", timeout=30) as answer:
            return {"fault": "" if answer.status == 200 else f"it answers with {answer.status}"}
    except (OSError, ValueError) as fault:
        return {"fault": str(getattr(fault, "reason", fault))[:200]}


def begin(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """The new files, all or none of them; where there are some already, these."""
    what = asked["what"]
    folder = _at(root, KEPT[what])
    if not (folder / NOTE).exists():
        part = folder.with_name("rotation.part")
        for left in (part, folder):
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir(mode=0o700)
        if what == "munge-key":
            _written(part / "old.munge.key", _at(root, f"{SLURM}/munge.key").read_bytes(), 0o600)
            letters = string.ascii_letters + string.digits
            drawn = "".join(secrets.choice(letters) for _ in range(128))
            _written(part / "new.munge.key", f"{drawn}\n".encode(), 0o600)  # with a line's end, as role slurm writes it
        else:
            _certified(part, _at(root, REGISTRY), asked["address"])
        _written(part / NOTE, json.dumps(asked["note"]).encode(), 0o600)
        part.replace(folder)
    return {"note": json.loads((folder / NOTE).read_text("utf-8"))}


def _certified(part: Path, now: Path, address: str) -> None:
    """As role horovod makes them; the authority has a name of its own, so that nobody confuses it with the old one."""
    host = address.rsplit(":", 1)[0]
    kind = "IP" if re.fullmatch(r"[0-9.]+", host) else "DNS"
    signed = ["-CA", str(part / "new.ca.crt"), "-CAkey", str(part / "new.ca.key"), "-extensions", "usr_cert"]
    subjects = {
        "ca": ["-subj", f"/CN=elastic-ai registry {secrets.token_hex(4)}"],
        "server": [
            *signed, "-subj", f"/CN=elastic-ai registry {address}", "-addext", f"subjectAltName={kind}:{host}",
        ],
        "client": [*signed, "-subj", "/CN=elastic-ai node"],
    }  # fmt: skip
    for name in PAIRS:
        for end in ("crt", "key"):
            _written(part / f"old.{name}.{end}", (now / f"{name}.{end}").read_bytes(), 0o600)
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-days", DAYS, "-keyout", str(part / f"new.{name}.key"), "-out", str(part / f"new.{name}.crt")]
        done = _ran([*words, *subjects[name]])
        if done.returncode != 0:
            raise Refusal(f"openssl made no certificate: {_words(done)}; nothing was changed")


def note(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """Written before what it says is begun."""
    _written(_at(root, KEPT[asked["what"]]) / NOTE, json.dumps(asked["note"]).encode(), 0o600)
    return {}


def held(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """For the machine that hands them to the nodes; it writes them nowhere."""
    folder = _at(root, KEPT[asked["what"]])
    files = [path for path in folder.iterdir() if path.name.startswith(("old.", "new."))]
    return {"files": {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}}


def end(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """The note goes first: what is left without one is no rotation."""
    folder = _at(root, KEPT[asked["what"]])
    (folder / NOTE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return {}


VERBS = {one.__name__: one for one in (look, place, restart, seal, unseal, greet, begin, note, held, end)}


def answered(verb: str, asked: dict[str, Any], root: Path = Path("/")) -> dict[str, Any]:
    """The verb's answer, or {"refused": SENTENCE}."""
    try:
        return VERBS[verb](asked, root)
    except (Refusal, OSError) as fault:
        return {"refused": str(fault)}


if __name__ == "__main__":
    print(json.dumps(answered(sys.argv[1], json.loads(sys.stdin.buffer.read() or b"{}"))))
