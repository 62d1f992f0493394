"""A site in folders: nodes whose munge and registry are files, a controller that is a word, and a command that can be
killed before any request."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_texts import answer, slurm_job
from toolkit.node import head as node_head
from toolkit.rotate import munge, nodes, registry, there
from validation.model import Node, SshTarget, Topology

NAMES = ("head", "gpu1", "gpu2", "client1")
ADDRESS = "10.0.0.1:5000"
OLD = "an-old-key-of-the-site-that-nobody-may-see\n"


class Killed(BaseException):
    """As by SIGKILL: nothing more is done."""


def topology() -> Topology:
    """Head, two GPU servers and a client."""
    groups = {"head": ("heads",), "client1": ("clients",)}
    found = tuple(
        Node(name=name, groups=groups.get(name, ("gpu_servers",)), ssh=SshTarget(host=name), ports=()) for name in NAMES
    )
    return Topology(site="rack", nodes=found)


class World:
    """All of it. `kill_at`: the request before which the command is killed; `silent`: nodes that do not answer;
    `deaf`: nodes whose munge takes no other key."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.asked, self.kill_at = folder, 0, -1
        self.silent, self.deaf, self.log = set[str](), set[str](), list[tuple[str, str]]()
        self.partitions = {"all": "UP", "old": "DOWN", "v100": "UP"}
        self.jobs = slurm_job(7, user="bob")
        self.here, self.lock, self.sealed = threading.local(), threading.Lock(), 0
        for name in NAMES:
            self._node(name)
        self._registry()
        patch.setattr(nodes, "ask", self.ask)
        patch.setattr(there, "_ran", self.ran)
        patch.setitem(there.VERBS, "greet", self.greet)
        patch.setattr(node_head, "run_on", self.run_on)
        patch.setattr(munge, "LEAD_S", 0.0)
        patch.setattr("toolkit.rotate.registry.time.sleep", lambda _s: None)

    def _node(self, name: str) -> None:
        for folder in ("etc/munge", "run", "etc/elastic-ai/slurm", "var/lib/elastic-ai/ledger"):
            (self.folder / name / folder).mkdir(parents=True)
        self.path(name, there.MUNGE_KEY).write_text(OLD)
        ledger = {"files": {there.MUNGE_KEY: {"sha256": hashlib.sha256(OLD.encode()).hexdigest()}}, "directories": {}}
        self.path(name, "/var/lib/elastic-ai/ledger/slurm.files.json").write_text(json.dumps(ledger))
        if name == "head":
            self.path(name, f"{there.SLURM}/munge.key").write_text(OLD)
        self._restarted(name, "munge.service")

    def _registry(self) -> None:
        """As role horovod makes it, by the same program."""
        etc, clients = self.path("head", there.REGISTRY), f"{there.CLIENTS}/{ADDRESS}"
        etc.mkdir()
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        signed = ["-CA", f"{etc}/ca.crt", "-CAkey", f"{etc}/ca.key", "-extensions", "usr_cert"]
        more = {"ca": [], "server": [*signed, "-addext", "subjectAltName=IP:10.0.0.1"], "client": signed}
        for name, last in more.items():
            out = ["-keyout", f"{etc}/{name}.key", "-out", f"{etc}/{name}.crt", "-subj", f"/CN={name}"]
            subprocess.run([*words, *out, *last], check=True, capture_output=True)
        self.path("head", there.CONFIGURATION).parent.mkdir(parents=True)
        self.path("head", there.CONFIGURATION).write_text(f"http:\n  addr: {ADDRESS}\n")
        for name in NAMES[:3]:
            folder = self.path(name, clients)
            folder.mkdir(parents=True)
            for source, target in (("ca.crt", "ca.crt"), ("client.crt", "client.cert"), ("client.key", "client.key")):
                (folder / target).write_bytes((etc / source).read_bytes())
        self._restarted("head", registry.UNIT)

    def path(self, name: str, path: str) -> Path:
        """Of a node."""
        return self.folder / name / path.lstrip("/")

    def key(self, name: str) -> str:
        """The key with which munge runs there."""
        return self.path(name, "/run/munged").read_text()

    def _restarted(self, name: str, unit: str) -> None:
        if unit == "munge.service":
            if name not in self.deaf:
                self.path(name, "/run/munged").write_bytes(self.path(name, there.MUNGE_KEY).read_bytes())
            return
        etc = self.path(name, there.REGISTRY)
        for one in ("server.crt", "server.key", "ca.crt"):
            self.path(name, f"/run/{one}").write_bytes((etc / one).read_bytes())

    def ask(self, node: Node, verb: str, asked: Mapping[str, Any]) -> dict[str, Any] | str:
        """A node's answer, by the real program in the node's folder."""
        with self.lock:
            self.asked += 1
            if self.asked == self.kill_at:
                raise Killed
            self.log.append((node.name, verb))
            if node.name in self.silent:
                return "no route to host"
            self.here.name = node.name
            said = there.answered(verb, json.loads(json.dumps(asked)), self.folder / node.name)
        return str(said["refused"]) if "refused" in said else said

    def ran(self, words: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """systemctl, munge and unmunge of the node that is asked; openssl is the real one."""
        name = self.here.name
        if words[0] == "openssl":
            return subprocess.run(words, capture_output=True, check=False)
        out, code = b"", 0
        if words[:2] == ["systemctl", "is-active"]:
            out = b"active\n"
        elif words[0] == "systemctl":
            self._restarted(name, words[2])
        elif words[0] == "munge":
            self.sealed += 1
            out = f"{self.sealed}:{self.key(name).strip()}".encode()
        else:
            code = 0 if given.decode().split(":", 1)[1] == self.key(name).strip() else 15
        return subprocess.CompletedProcess(words, code, out, b"unmunge: Error: Invalid credential" if code else b"")

    def greet(self, asked: dict[str, Any], root: Path) -> dict[str, Any]:
        """TLS between what the registry was started with and what Docker has on the node."""
        folder, run = root / f"{there.CLIENTS}/{asked['address']}".lstrip("/"), self.path("head", "/run")
        try:
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(run / "server.crt", run / "server.key")
            server.load_verify_locations(run / "ca.crt")
            server.verify_mode = ssl.CERT_REQUIRED
            client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
            client.load_cert_chain(folder / "client.cert", folder / "client.key")
            return {"fault": _shaken(server, client)}
        except (ssl.SSLError, OSError) as fault:
            return {"fault": str(fault)}

    def run_on(self, node: Node, words: list[str], _timeout_s: float = 0) -> subprocess.CompletedProcess[bytes]:
        """Slurm's commands on the head."""
        with self.lock:
            self.asked += 1
            if self.asked == self.kill_at:
                raise Killed
        out = ""
        if words[0] == "squeue":
            return subprocess.CompletedProcess(words, 0, answer(self.jobs), b"")
        if words[:3] == ["scontrol", "show", "partition"]:
            out = "".join(
                f"PartitionName={name} AllowAccounts=ALL Nodes=gpu[1-2] State={state} TotalCPUs=4\n"
                for name, state in self.partitions.items()
            )
        elif words[:2] == ["scontrol", "update"]:
            self.partitions[words[2].split("=")[1]] = words[3].split("=")[1]
        return subprocess.CompletedProcess(words, 0, out.encode(), b"")

    def munge(self, *without: str) -> munge.MungeRotation:
        """A command that begins now."""
        site = topology()
        return munge.MungeRotation(nodes.Machines(site, without), node_head.Head(site), lambda _words: None)

    def registry(self, *without: str) -> registry.RegistryRotation:
        """The same for certificates."""
        return registry.RegistryRotation(nodes.Machines(topology(), without), lambda _words: None)

    def keys(self) -> set[str]:
        """Every key of munge that is in use or in its place on any node."""
        found = {self.key(name) for name in NAMES} | {self.path(name, there.MUNGE_KEY).read_text() for name in NAMES}
        return found | {self.path("head", f"{there.SLURM}/munge.key").read_text()}

    def pulls(self) -> dict[str, str]:
        """Node -> why it cannot pull an image, "" where it can."""
        return {name: self.greet({"address": ADDRESS}, self.folder / name)["fault"] for name in NAMES[:3]}

    def authorities(self) -> set[bytes]:
        """What the registry and the nodes trust."""
        files = [self.path(name, f"{there.CLIENTS}/{ADDRESS}/ca.crt") for name in NAMES[:3]]
        return {path.read_bytes() for path in [*files, self.path("head", "/run/ca.crt")]}

    def open(self) -> list[Path]:
        """What a rotation left."""
        return [path for path in self.folder.rglob("*rotation*") if path.name != "rotation.part"]


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(one, two, server_hostname="10.0.0.1"), server.wrap_bio(two, one, server_side=True)]
    left = list(ends)
    for _ in range(20):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
    if left:
        return "no handshake"
    return ""
