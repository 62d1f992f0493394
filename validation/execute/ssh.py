"""Probes over OpenSSH: one connection per node, opened once and shared by everything that runs there.

The shared connection belongs to the `anchor` probe, which reports the probes that are installed and then waits for
the end of its stdin. So the connection ends with the controller, even after kill -9, and leaves no process behind.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from validation.base import bounded, noise
from validation.base.errors import RunError
from validation.base.sockets import sockets
from validation.base.temporary import Room
from validation.execute.remote import Output, Remote, named
from validation.kinds import PROBE_PYTHON
from validation.model import Node, SshTarget
from validation.probes.__main__ import ANCHOR, digest

CONNECT_TIMEOUT_S = 10
ALIVE_INTERVAL_S = 5
ALIVE_COUNT = 3  # a node that falls silent is given up after 15 s
GREET_TIMEOUT_S = 30  # from the connection's begin to the first word of the probes
PARALLEL_CONNECTS = 64
PROVISION = "run: toolkit deploy -i {site}"

BASE = ("-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-T")

EXIT_SSH = 255
# What ssh says of itself (then its status is 255), and what it means to the operator. First match counts.
_FAULTS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is not the known one; if it was reinstalled, remove the "
     "old key: {offending}"),
    (r"Host key verification failed|No .* host key is known", "its host key is unknown; connect once by hand"),
    (r"Permission denied|Too many authentication failures", "refuses the key for user {user}; check ansible_user and "
     "ansible_ssh_private_key_file"),
    (r"Load key|Identity file .* not accessible|UNPROTECTED PRIVATE KEY", "the private key cannot be used"),
    (r"Could not resolve hostname", "its name {host} does not resolve; set ansible_host"),
    (r"Connection refused", "refuses connections on port {port}; does sshd run there?"),
    (r"timed out|No route to host|Network is unreachable|Host is down", "does not answer; is it up?"),
)  # fmt: skip
# What the far side's shell says, which also prints what login files complain of.
_SHELL_FAULTS = (
    (r"sudo: .*(?:password|askpass|terminal|tty)", "user {user} needs sudo without a password"),
    (r"not in the sudoers|not allowed to (?:execute|run)", "user {user} needs sudo for the acceptance probes"),
    (r"sudo: (?:command )?not found|sudo: No such file", "user {user} needs sudo, which is not installed there"),
    (r"account is (?:currently )?not available|This account is", "user {user} has no shell there"),
)
_ABSENT = re.compile(r"no such file|not found|unknown command|no module named", re.IGNORECASE)


def common_arguments(target: SshTarget) -> list[str]:
    """Port, user, key and the operator's own arguments for a target."""
    arguments = ["-p", str(target.port), "-l", target.user]
    if target.key_file:
        arguments += ["-i", target.key_file, "-o", "IdentitiesOnly=yes"]
    return [*arguments, *target.extra_args]


def remote_command(target: SshTarget, probe: Sequence[str]) -> str:
    """One line for the remote shell. Isolated mode: no user site, no PYTHON* variables, no current folder."""
    command = [PROBE_PYTHON, "-I", "-m", "validation.probes", *probe]
    return shlex.join(command if target.user == "root" else ["sudo", "-n", *command])


def on_a_new_line(command: str) -> str:
    """A line for any remote shell: what a login file printed may have no end, and the command's first line follows."""
    return f"echo; exec {command}"


def explain(target: SshTarget, output: Output, site: str) -> str:
    """Why a node cannot be used, in one line without its name, from what ssh and the remote shell said."""
    if output.fault:
        return f"{output.fault}; see what its login files print"
    said = output.stderr.decode("utf-8", "replace").strip()
    last = output.last_words or f"ssh ended with status {output.returncode}"
    if absent(said):
        return f"the acceptance probes are not installed; {PROVISION.format(site=site)}"
    known = re.search(r"Offending \S+ key in (\S+):\d+", said)
    file = ["-f", known[1]] if known else []
    name = target.host if target.port == 22 else f"[{target.host}]:{target.port}"
    values = {
        "host": target.host,
        "user": target.user,
        "port": target.port,
        "offending": shlex.join(["ssh-keygen", *file, "-R", name]),
    }
    own = output.returncode == EXIT_SSH
    lines = [line.strip() for line in (said if own else f"{said}\n{output.last_words}").splitlines()]
    for pattern, words in _FAULTS if own else _SHELL_FAULTS:
        found = [line for line in lines if re.search(pattern, line)]
        if found:
            return f"{words.format(**values)} (ssh: {noise.printable(found[-1]).removeprefix('ssh: ')})"
    return f"cannot be used (ssh: {last})"


def absent(said: str) -> bool:
    """Whether a shell or Python complains that the probes are not there; `set -x` of a login file names them too."""
    lines = [line for line in said.splitlines() if not line.startswith("+")]
    return any((PROBE_PYTHON in line or "validation" in line) and _ABSENT.search(line) for line in lines)


def is_anchor(document: dict[str, Any]) -> bool:
    """Whether a document is the hello of the probes of a node, of whatever release."""
    return noise.is_ready(document) and isinstance(document.get("probes_sha256"), str)


class SshLauncher:
    """Launcher over OpenSSH. `site` names the inventory in what the operator is told to do."""

    def __init__(self, site: str) -> None:
        """Nothing is opened yet."""
        self._site = site
        self._room: Room | None = None
        self._nodes: dict[str, Node] = {}
        self._anchors: dict[str, Remote] = {}
        self._probes: set[Remote] = set()
        self._gate = asyncio.Semaphore(PARALLEL_CONNECTS)

    def _socket(self, node: str) -> Path:
        """Where the shared connection of a node listens. Numbered, for names may be long."""
        if self._room is None:
            self._room = sockets("eat-ssh")
        return self._room.path / str(list(self._nodes).index(node))

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Open the shared connection of every node at the same time; RunError where there is no ssh to do it with."""
        if shutil.which("ssh") is None:
            raise RunError("ssh is not installed on this machine; install the OpenSSH client")
        self._nodes |= {node.name: node for node in nodes}
        troubles = await asyncio.gather(*(self._open(node.name) for node in nodes))
        return {node.name: trouble for node, trouble in zip(nodes, troubles, strict=True) if trouble}

    async def _open(self, name: str) -> str | None:
        target = self._nodes[name].ssh
        socket = self._socket(name)
        socket.unlink(missing_ok=True)
        # What stands first counts for ssh, so an operator's own ControlMaster settings do not interfere.
        command = ["ssh", "-M", "-S", str(socket), "-o", "ControlPersist=no", *BASE]
        command += ["-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", f"ServerAliveInterval={ALIVE_INTERVAL_S}"]
        command += ["-o", f"ServerAliveCountMax={ALIVE_COUNT}", *common_arguments(target), target.host]
        async with self._gate:
            command.append(on_a_new_line(remote_command(target, [ANCHOR])))
            remote = await Remote.spawn(name, command, what="its login", most=bounded.STEADY_BYTES)
            try:
                hello = await asyncio.wait_for(remote.first_document(is_anchor), GREET_TIMEOUT_S)
            except asyncio.TimeoutError:
                await remote.stop()
                return f"the probes did not answer within {GREET_TIMEOUT_S} s of the connection's begin"
            except asyncio.CancelledError:
                await remote.stop()
                raise
        if hello is None:
            return explain(target, await remote.stop(), self._site)
        if hello.get("probes_sha256") != digest():
            await remote.stop()
            return f"its acceptance probes are of another release; {PROVISION.format(site=self._site)}"
        self._anchors[name] = remote
        return None

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        """Start a probe over the shared connection; it ends with status 255 at once when that is gone."""
        target = self._nodes[node].ssh
        # Without its shared connection ssh would open another one and wait for a node that is gone.
        command = ["ssh", "-F", "none", "-S", str(self._socket(node)), "-o", "ProxyCommand=false", *BASE]
        command += ["-l", target.user, "-p", str(target.port), target.host]
        command.append(on_a_new_line(remote_command(target, ["--controlled", *probe])))
        remote = await Remote.spawn(node, command, what=named(probe))
        self._probes = {p for p in self._probes if not p.ended} | {remote}
        return remote

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """Start a probe on this machine."""
        remote = await Remote.here(node, probe, self._site)
        self._probes = {p for p in self._probes if not p.ended} | {remote}
        return remote

    async def alive(self, node: str) -> str | None:
        """None when the shared connection stands and answers, or could be opened again."""
        anchor = self._anchors.get(node)
        if anchor is not None and not anchor.ended:
            probe = await Remote.spawn(
                node, ["ssh", "-F", "none", "-S", str(self._socket(node)), "-O", "check", self._nodes[node].ssh.host]
            )
            if (await probe.finish()).returncode == 0:
                return None
            await anchor.stop()
        self._anchors.pop(node, None)
        return await self._open(node)

    async def close(self) -> None:
        """Stop all probes, then the connections they share, then remove the sockets' folder."""
        await asyncio.gather(*(p.stop() for p in self._probes if not p.ended))
        await asyncio.gather(*(a.stop() for a in self._anchors.values()))
        self._probes, self._anchors = set(), {}
        if self._room is not None:
            self._room.close()
            self._room = None
