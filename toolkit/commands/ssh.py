"""`toolkit ssh`: a shell where a lease's GPUs are, and what editors need for one."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from toolkit.command_class import command
from toolkit.commands.lease_shared import say
from toolkit.exits import epilogue
from toolkit.lease import LeaseError
from toolkit.lease.client import running
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.shell import configuration, connection

port_option = click.option(
    "--port",
    "ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Reach this port of the program's machine at 127.0.0.1 on this one. Repeatable.",
)


def _configure(yes: bool) -> None:
    """Write the entry, after asking."""
    change = configuration.planned()
    if not change:
        click.echo(f"{configuration.entry_file()} is as it should be; ssh lease-49 reaches lease 49")
        return
    for path, text in change.items():
        click.echo(f"{path}:\n" + "".join(f"  {line}\n" for line in text.splitlines()), nl=False)
    if not yes and not click.confirm("Write this?"):
        raise LeaseError("nothing was written")
    configuration.write(change)
    click.echo("written; ssh lease-49 reaches lease 49, and so do editors that use ssh")


def _here(host: Host, target: connection.Target, words: tuple[str, ...], ports: tuple[int, ...]) -> int:
    """Of a lease whose programs run on this machine: a shell here, with its GPUs."""
    if ports:
        raise LeaseError(f"--port: programs of lease {target.lease} run on this machine, and so are their ports here")
    say(f"programs of lease {target.lease} run on this machine, its GPUs by an engine: this is a shell here")
    program = words or (os.environ.get("SHELL") or "/bin/sh",)
    return running.run_on(host, target.lease, ["sh", "-c", " ".join(words)] if words else program, say)


def _become(words: list[str]) -> NoReturn:
    os.execvp(words[0], words)


@command(context_settings={"allow_interspersed_args": False}, epilog=epilogue("ssh"))
@click.option("--config", is_flag=True, help="Write an entry to ~/.ssh, after asking, for editors, scp and sftp.")
@click.option("-y", "--yes", is_flag=True, help="Write it without asking.")
@port_option
@click.option("--proxy", "as_proxy", is_flag=True, help="Be the connection of an ssh client (its ProxyCommand).")
@click.argument("lease", required=False, metavar="[LEASE]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def ssh(
    config: bool, yes: bool, ports: tuple[int, ...], as_proxy: bool, lease: str | None, words: tuple[str, ...]
) -> None:
    """Open a shell where a lease's GPUs are.

    The shell is in the lease: it ends with it. The server's own sshd is not used, and no login on the server is needed.

    \b
    toolkit ssh 49                     a shell; 49.gpu2: on this server of several
    toolkit ssh 49 nvidia-smi          one command
    toolkit ssh --port 6006 49         with a port of the server at 127.0.0.1:6006
    toolkit ssh --config               then: ssh lease-49, scp, sftp, VS Code, PyCharm
    """
    if config:
        if lease is not None:
            raise LeaseError("--config is for all leases; omit the number")
        _configure(yes)
        return
    words = words[1:] if words[:1] == ("--",) else words  # as toolkit run has it
    if lease is None:
        raise LeaseError("name a lease; toolkit lease list shows yours")
    target, host = connection.parse_target(lease), this_host()
    if as_proxy:
        sys.exit(connection.proxy(host, target))
    connection.refuse_taken(ports)
    if not connection.on_server(connection.own_endpoints(host, target)):
        sys.exit(_here(host, target, words, ports))
    _become(connection.ssh_command(target, words, ports))
