"""Leases without Slurm: from the machine that provisions, by ssh to one server and one client."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.commands.lease_shared import GIVE_UP
from toolkit.errors import or_nearest
from toolkit.lease import SERVER_CONF, LeaseError
from toolkit.lease.client.keep_request import KeepRequest
from toolkit.lease.display import until
from toolkit.lease.endpoint import LeaseEndpoint, parse
from toolkit.lease.fields import Fields
from toolkit.lease.server_conf import parse_server_conf
from toolkit.lease.static_forms import MISSING, StaticLease, StaticWish, answer_of, read_grant, read_leases
from validation.base import bounded, noise

PROGRAM = "/usr/lib/elastic-ai/lease-server/bin/static"
FOLDER = "/run/elastic-ai/static"


@dataclass(frozen=True)
class Granted:
    """A static lease that was granted. note: what was rounded, None where nothing was. until: seconds since the epoch,
    None without an end."""

    lease: str
    server: str
    what: str
    client: str
    user: str
    note: str | None
    until: float | None

    @property
    def words(self) -> str:
        """For people."""
        line = f"lease {self.lease}: {self.what} {until(self.until)} for {self.user} on {self.client}"
        return "\n".join(
            [f"{line}: toolkit run --static {self.lease} -- …", *([self.note] if self.note else []), MISSING]
        )


def _node(inventory: Path | None, name: str) -> Any:
    try:
        from toolkit.inventory import read_inventory
        from toolkit.lab_inventory import lab_inventory
    except ImportError:
        raise LeaseError("static leases are granted by the administrator, on the machine that provisions") from None
    inventory = inventory or lab_inventory()
    topology = read_inventory(inventory)
    node = next((n for n in topology.nodes if name in (n.name, n.name.split(".")[0])), None)
    if node is None:
        there = or_nearest(name, [n.name for n in topology.nodes], numbered=True)
        raise LeaseError(f"{name}: no such host in {inventory}; {there}")
    return node


def _ssh(node: Any, words: str, stdin: str = "") -> str:
    target = node.ssh
    key = ["-i", target.key_file] if target.key_file else []
    login = ["-p", str(target.port), *target.extra_args, *GIVE_UP, f"{target.user}@{target.host}"]
    marked = noise.Marked(["sh", "-c", words])
    done = bounded.run(
        ["ssh", "-o", "BatchMode=yes", *key, *login, marked.line], stdin=stdin.encode(), where=f"{node.name}: {words}"
    )
    if done.returncode != 0:
        said = noise.last_words(done.stderr.decode("utf-8", "replace")) or f"exit {done.returncode}"
        raise LeaseError(f"{node.name}: {said}")
    return marked.answer(done.stdout).decode("utf-8", "replace")


def _ask(node: Any, words: Sequence[str], stdin: str = "") -> Fields:
    return answer_of(_ssh(node, " ".join(["sudo", "-n", PROGRAM, *words]), stdin), node.name)


def request(wanted: KeepRequest) -> Granted:
    """Start an instance on a server for a user of a client."""
    server, client, user = str(wanted.static), str(wanted.client), str(wanted.user)
    node, machine = _node(wanted.inventory, server), _node(wanted.inventory, client)
    address = parse_server_conf(_ssh(node, f"sudo -n cat {SERVER_CONF}"), f"{server}: {SERVER_CONF}").address
    route = json.loads(_ssh(machine, f"ip -json -4 route get {ipaddress.IPv4Address(address)}"))
    wish = StaticWish(
        count=wanted.wish.count,
        part=wanted.wish.part or "1",
        clients=(str(route[0]["prefsrc"]),),
        host=client.split(".")[0][:64],
        seconds=wanted.timed.seconds or 0,
        engine=wanted.wish.engine,
    )
    grant = read_grant(_ask(node, ["start"], wish.text()))
    endpoint = grant.endpoint
    name = f"{server}-{endpoint.job}"
    path = f"{FOLDER}/{name}.json"
    try:
        _ssh(machine, f"sudo -n install -d -m 0711 {FOLDER}")
        _ssh(machine, f"sudo -n install -m 0400 -o {user} /dev/stdin {path}", endpoint.text())
    except LeaseError:
        _ask(node, ["end", endpoint.job])
        raise
    return Granted(name, server, grant.what, client, user, grant.rounding or None, endpoint.deadline)


def listed(inventory: Path | None, server: str) -> list[StaticLease]:
    """Static leases of a server."""
    return read_leases(_ask(_node(inventory, server), ["list"]))


def release(inventory: Path | None, server: str, name: str) -> str:
    """End one."""
    short = name.removeprefix(f"{server}-")
    if not re.fullmatch(r"s\d{1,6}", short):
        raise LeaseError(f"{name}: static leases have names like {server}-s1")
    node, full = _node(inventory, server), f"{server}-{short}"
    host = next((one.host for one in read_leases(_ask(node, ["list"])) if one.lease == short), "")
    _ask(node, ["end", short])
    try:
        _ssh(_node(inventory, host), f"sudo -n rm -f {FOLDER}/{full}.json")
    except LeaseError as fault:
        return f"lease {full}: released; its file on {host} stays there, and opens nothing any more ({fault})"
    return f"lease {full}: released"


def read_endpoint(name: str) -> LeaseEndpoint:
    """What the administrator put on this machine for its user."""
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,80}", name):
        raise LeaseError(f"--static {name}: not the name of a static lease")
    path = Path(FOLDER) / f"{name}.json"
    try:
        endpoint = parse(path.read_text(), str(path))
    except FileNotFoundError:
        raise LeaseError(f"--static {name}: there is no such lease on this machine") from None
    except PermissionError:
        raise LeaseError(f"--static {name}: it is another user's") from None
    if endpoint.deadline is not None and endpoint.deadline < time.time():
        raise LeaseError(f"--static {name}: its time is over")
    return endpoint
