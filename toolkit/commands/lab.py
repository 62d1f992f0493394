"""`toolkit lab`: the virtual lab on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from toolkit.exits import Exit, epilogue
from toolkit.lab import faults as lab_faults
from toolkit.lab import lab as labs
from toolkit.lab.host import become_root
from toolkit.lab.sources import RELEASES
from toolkit.lab.spec import lab_dir

INVENTORY = Path("inventories/lab")
name_option = click.option("--name", default="lab", show_default=True, help="Which lab; several can run side by side.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


def parse_nodes(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, bool]:
    """Number of nodes, and whether the GPU servers are virtual machines. The lab itself checks 2 to 60."""
    if value == "vm":
        return 4, True
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r}: give a number of nodes or vm")
    return int(value), False


def say(text: str) -> None:
    """Progress goes to stderr, so that --json output stays clean."""
    click.echo(text, err=True)


@click.group()
def lab() -> None:
    """The virtual lab: real systemd nodes with sshd on one Linux machine.

    \b
    toolkit lab up                    head, client1, gpu1, gpu2, links of 1 Gbit/s
    toolkit lab up --nodes vm         the same, gpu1 and gpu2 as virtual machines with soft-RoCE
    toolkit lab up --nodes 6 --rate 10
    toolkit lab up --os debian13      nodes of another Debian release than the machine's
    toolkit lab ssh gpu1              a shell on a node
    toolkit lab down                  leaves nothing behind
    """


@lab.command()
@click.option(
    "--nodes",
    default="4",
    metavar="N|vm",
    callback=parse_nodes,
    show_default=True,
    help="How many nodes (2 to 60), all containers; or vm: head and client as containers, two GPU servers as virtual "
    "machines with a stock kernel, real RDMA verbs (soft-RoCE) and real reboots.",
)
@click.option("--rate", "rate_gbps", default=1.0, show_default=True, help="Line rate of each fabric link, Gbit/s.")
@click.option(
    "--os", "os_name", type=click.Choice(list(RELEASES)), help="The nodes' release (default: the machine's own)."
)
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the inventory (default: inventories/lab; for other labs the lab's own folder).",
)
@name_option
@json_option
def up(
    nodes: tuple[int, bool], rate_gbps: float, os_name: str | None, inventory: Path | None, name: str, as_json: bool
) -> None:
    """Make the lab: nodes, network, inventory. Run again, it leaves a healthy lab as it is.

    The first time, a base image is built from this machine's own apt sources; later a lab takes seconds.
    Virtual machines run with KVM where a kernel really boots on it, otherwise emulated; that is tried and said.
    """
    become_root()
    folder = inventory or (INVENTORY if name == "lab" else lab_dir(name) / "inventory")
    started = time.monotonic()
    count, vms = nodes
    spec = labs.up(name, count, rate_gbps, folder, say, os_name, vms)
    took = time.monotonic() - started
    if as_json:
        click.echo(json.dumps({"lab": name, "inventory": str(folder), "seconds": round(took, 2), **asdict(spec)}))
        return
    say(f"lab '{name}': {len(spec.nodes)} nodes of {spec.os} answer ssh after {took:.1f} s, links {rate_gbps:g} Gbit/s")
    say("next: toolkit deploy" if folder == INVENTORY else f"next: toolkit deploy -i {folder}")


@lab.command()
@name_option
@click.option("--all", "every", is_flag=True, help="Take down all labs of this machine.")
def down(name: str, every: bool) -> None:
    """Take the lab down: no process, mount, namespace, bridge or rule stays. Works on half-made labs too."""
    become_root()
    for one in labs.names() if every else [name]:
        say(f"lab '{one}' is down" if labs.down(one, say) else f"there is no lab '{one}'; nothing to do")


@lab.command(epilog=epilogue("lab status"))
@name_option
@json_option
def status(name: str, as_json: bool) -> None:
    """Show the nodes: addresses, whether they run and answer ssh, planted faults."""
    os_title = labs.load(name).os
    nodes = labs.status(name)
    if as_json:
        click.echo(json.dumps({"lab": name, "os": os_title, "nodes": [asdict(n) for n in nodes]}))
    else:
        click.echo(f"lab '{name}', {os_title}")
        click.echo(f"{'node':10} {'group':12} {'management':15} {'fabric':15} {'link':>12}  state")
        for n in nodes:
            state = "up" if n.ssh else ("no ssh" if n.running else "off")
            fault = f", fault: {n.fault}" if n.fault else ""
            link = f"{n.rate_gbps:g} Gbit/s"
            click.echo(f"{n.node:10} {n.group:12} {n.management:15} {n.fabric:15} {link:>12}  {state}{fault}")
    if not all(n.ssh for n in nodes):
        sys.exit(Exit.FAILED)


@lab.command(context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(name: str, node: str, command: tuple[str, ...]) -> None:
    """A shell on NODE, or COMMAND run there: `toolkit lab ssh gpu1 -- systemctl status docker`."""
    become_root()
    spec = labs.load(name)
    target = f"root@{spec.management_address(spec.node(node))}"
    checks = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    os.execvp("ssh", ["ssh", "-i", str(spec.dir / "id_ed25519"), *checks, target, *command])


def fault_help() -> str:
    """Text of `toolkit lab fault --help`, with all kinds."""
    lines = ["Plant a fault that a validation must find.", "", "\b", "toolkit lab fault set gpu2 slow-link"]
    lines += ["toolkit lab fault clear gpu2", ""]
    for title, vm_only in (("On every node:", False), ("On virtual machines:", True)):
        lines += [title, ""]
        for kind, fault in lab_faults.FAULTS.items():
            if fault.vm_only == vm_only:
                lines += [f"{kind}: {fault.about}.", ""]
    return "\n".join(lines)


@lab.group(help=fault_help())
def fault() -> None:
    """Plant and take back faults."""


@fault.command("set")
@name_option
@click.argument("node")
@click.argument("kind", type=click.Choice(list(lab_faults.FAULTS)))
def fault_set(name: str, node: str, kind: str) -> None:
    """Plant fault KIND on NODE."""
    become_root()
    lab_faults.plant(name, node, kind, say)
    say(f"{node}: {lab_faults.FAULTS[kind].about}")


@fault.command("clear")
@name_option
@click.argument("node")
def fault_clear(name: str, node: str) -> None:
    """Take back what was planted on NODE."""
    become_root()
    lab_faults.clear(name, node, say)
    say(f"{node}: no fault planted")
