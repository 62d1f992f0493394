"""The client's side of a shell at a lease: which lease and server, the ssh command, the proxy, and ssh's entry."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import manage, step
from toolkit.lease.endpoint import LeaseEndpoint, endpoints_of
from toolkit.lease.machine.host import Host
from toolkit.lease.shell import door, keys

#: Names with these reach no shell: ssh puts the name that its user gave into the proxy's command as it is.
NOT_IN_NAMES = "'`$;|&"
#: As ssh's configuration and its users name them: lease-49, or lease-49.gpu2 of several servers.
PREFIX = "lease-"
_NAME = re.compile(r"(?:lease-)?([0-9]{1,10})(?:\.([A-Za-z0-9][A-Za-z0-9_-]{0,62}))?")
ENTRY = "elastic-ai"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Target:
    """A lease, and one of its servers, "" for the first."""

    lease: int
    node: str = ""

    @property
    def name(self) -> str:
        """For the ssh client."""
        return f"{PREFIX}{self.lease}{f'.{self.node}' if self.node else ''}"


def parse_target(word: str) -> Target:
    """49, lease-49 or lease-49.gpu2. LeaseError for anything else."""
    found = _NAME.fullmatch(word)
    if found is None:
        raise LeaseError(f"{word[:80]!r}: name a lease by its number, such as 49 (49.gpu2: its server gpu2)")
    return Target(int(found[1]), found[2] or "")


def own_endpoints(host: Host, target: Target) -> list[LeaseEndpoint]:
    """Of a lease of this user's that runs. LeaseError where it is another's, or does not run."""
    item = manage.find(host, target.lease)
    if item.jobs[0].user != manage.me():
        raise LeaseError(f"lease {target.lease} is another user's")
    if item.state != "running":
        raise LeaseError(f"lease {target.lease} does not run: {item.state}", Exit.RETRY)
    return endpoints_of(host, item.jobs)


def on_server(endpoints: Sequence[LeaseEndpoint]) -> bool:
    """Whether its GPUs are opened on their server, and not by an engine."""
    return endpoints[0].where == "server"


def _chosen(target: Target, endpoints: Sequence[LeaseEndpoint]) -> LeaseEndpoint:
    found = next((end for end in endpoints if target.node in ("", end.node)), None)
    if found is None:
        there = ", ".join(end.node for end in endpoints)
        raise LeaseError(f"lease {target.lease} has no server {target.node}; it has {there}")
    return found


class _Over:
    """Whether the ssh client has ended the connection."""

    said = False


def _serve(words: Sequence[str], environment: dict[str, str]) -> int:
    """srun, with ssh's stream as its own; its exit code. What it says when the client has ended is nobody's news."""
    step_there = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *words],
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    over = _Over()

    def end(_number: int, _frame: object) -> None:
        over.said = True
        step_there.terminate()

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for stream in (0, 1):  # the end of the client's stream has to reach srun alone
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    assert step_there.stderr is not None
    for line in step_there.stderr:
        if not over.said:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
    return step_there.wait()


def proxy(host: Host, target: Target) -> int:
    """The connection of an ssh client, as long as it lasts."""
    endpoints = own_endpoints(host, target)
    if not on_server(endpoints):
        raise LeaseError(
            f"lease {target.lease} has its GPUs by the engine {endpoints[0].engine}, on the machine where its program "
            f"runs: connect to that machine, and use toolkit run --lease {target.lease} there"
        )
    endpoint = _chosen(target, endpoints)
    host_key = keys.host_key(target.name)
    order = door.Order(host_key.read_text(), keys.public_of(keys.user_key()), door.variables_of(endpoint))
    environment = {**step.user_environment(), door.VARIABLE: order.sealed(os.getuid())}
    return _serve(door.command(endpoint, endpoints), environment)


def toolkit_program() -> str:
    """The path of this command, for ssh. LeaseError where there is none."""
    program = Path(sys.argv[0])
    found = str(program.resolve()) if program.name == "toolkit" and os.access(program, os.X_OK) else None
    found = found or shutil.which("toolkit")
    if found is None:
        raise LeaseError("there is no toolkit command here that ssh could start")
    return found


def proxy_command(name: str) -> str:
    """ssh's ProxyCommand; ssh itself replaces %n by the name that its user gave."""
    return f"{shlex.quote(toolkit_program()).replace('%', '%%')} ssh --proxy {name}"


def ssh_command(target: Target, words: Sequence[str], ports: Sequence[int], more: Sequence[str] = ()) -> list[str]:
    """The ssh client's command line. Its user's own configuration has no part in it."""
    if shutil.which("ssh") is None:
        raise LeaseError("no ssh client is installed here (openssh-client; EL: openssh-clients)")
    keys.user_key()
    options = [f"-oProxyCommand={proxy_command(target.name)}"]
    options += [f"-o{key}={_quoted(value)}" for key, value in keys.client_options()]
    forwards = [f"-L{LOOPBACK}:{port}:{LOOPBACK}:{port}" for port in ports]
    forwards += ["-oExitOnForwardFailure=yes"] if ports else []
    user = pwd.getpwuid(os.getuid()).pw_name
    return ["ssh", "-F", "/dev/null", *options, *forwards, *more, "-l", user, "--", target.name, *words]


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def refuse_taken(ports: Sequence[int]) -> None:
    """LeaseError for a port of this machine's that somebody has, before anything is leased."""
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((LOOPBACK, port))
            except PermissionError:
                raise LeaseError(f"--port {port}: ports below 1024 are root's; choose another") from None
            except OSError as fault:
                raise LeaseError(
                    f"--port {port}: a program on this machine has it already ({fault.strerror}); choose another"
                ) from None


def entry() -> str:
    """What ssh's configuration says of leases."""
    values = [("ProxyCommand", proxy_command("'%n'")), *keys.client_options()]
    lines = [f"    {key} {_quoted(value) if key != 'ProxyCommand' else value}\n" for key, value in values]
    others = "".join(f' "!*{sign}*"' for sign in NOT_IN_NAMES)
    return f"# Written by toolkit ssh --config.\nHost {PREFIX}*{others}\n{''.join(lines)}"
