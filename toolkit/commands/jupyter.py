"""`toolkit jupyter`: notebooks with GPUs of the pool."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from toolkit.command_class import command
from toolkit.commands.lease_shared import request_options, say
from toolkit.commands.run import ready
from toolkit.exits import epilogue
from toolkit.lease import LeaseError, kept_note
from toolkit.lease.kept import record, starting
from toolkit.lease.kept.record import Kept
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.notebook import here, there
from toolkit.lease.notebook.request import NotebookRequest

FRONT = ("--gpus", "--part", "--time", "--folder", "--port", "--where", "--detach")
"""What --help shows; --help-all shows all options."""
#: A notebook server that has its GPUs listens within this time, also on a busy machine.
LISTENS_S = 120.0
#: Free GPUs come within this time; later it waits for other leases.
COMES_S = 10.0


def _url(kept: Kept) -> str:
    """Of a notebook server that goes on alone, as soon as it listens; "" while it waits for its GPUs, or has ended."""
    assert kept.status.lease is not None
    file, began = here.url_file(kept.status.lease), time.monotonic()
    while (waited_s := time.monotonic() - began) < LISTENS_S:
        found = record.read(kept.path)
        if found.over or (found.status.state == "waiting" and waited_s > COMES_S):
            return ""
        if file.exists() and (url := file.read_text().strip()):
            return url
        time.sleep(0.1)
    return ""


def go_on_alone(host: Host) -> int:
    """The same command in a unit of its own (package kept): its URL as soon as it has one."""

    def say_raw(data: bytes) -> None:
        click.echo(data.decode("utf-8", "backslashreplace"), err=True, nl=False)

    kept = starting.keep(starting.Wish(("jupyter",)), sys.argv[1:], say_raw)
    if isinstance(kept, int):
        return kept
    assert kept.status.lease is not None
    lease = kept.status.lease
    click.echo(starting.started_words(host, kept), err=True)
    url = _url(kept)
    if url:
        click.echo(url)
    else:
        click.echo(f"its URL is printed by toolkit logs {lease} once it has its GPUs", err=True)
    click.echo(f"it ends with its lease, or by: toolkit lease release {lease}", err=True)
    return 0


@command(epilog=epilogue("jupyter"), front=FRONT)
@request_options
@click.option("--folder", help="Open notebooks of this folder.  [default: this one]")
@click.option("--port", type=click.IntRange(1, 65535), help="Serve at this port here.  [default: 8888 or later]")
@click.option(
    "--where",
    type=click.Choice(["auto", "client", "server"]),
    default="auto",
    show_default=True,
    help="Run the notebook server here (client), by an engine that brings the GPUs, or on the GPU server (server).",
)
@click.option("-d", "--detach", is_flag=True, help="Keep it after this login.")
def jupyter(**options: Any) -> None:
    """Serve notebooks with GPUs of the pool.

    Asks for the GPUs, starts a notebook server here or on the GPU server, and prints its URL with a new token. Ctrl-C
    ends it and gives the GPUs back.

    \b
    toolkit jupyter                          one whole GPU
    toolkit jupyter --part 1/2 --time 4h     half a GPU, for at most four hours
    toolkit jupyter --folder ~/work          notebooks of this folder
    toolkit jupyter --detach                 goes on after this login

    \f
    Where the site has an engine for the framework of your Python, the notebook server runs on this machine and only
    its GPUs are elsewhere; else it runs on the GPU server, and its port is forwarded to 127.0.0.1 here.
    """
    request, host = NotebookRequest.checked(**options), this_host()
    if request.where != "server":
        request.own_folder()
    found = here.fit(host, request) if request.where != "server" else ""
    if isinstance(found, str):
        if request.where == "client" or request.wish.engine:
            raise LeaseError(f"no notebook server can run here: {found}; --where server runs it on the GPU server")
        there.refuse(host, request)
    if request.detach and not kept_note.kept():
        sys.exit(go_on_alone(host))
    ready()
    if isinstance(found, here.Fit):
        sys.exit(here.run(host, request, found, say))
    sys.exit(there.run(host, request, say, f": {found}" if found else ""))
