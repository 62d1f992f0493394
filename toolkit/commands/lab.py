"""`toolkit lab`: the virtual lab on this machine."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from toolkit import answers, tables
from toolkit.command_class import group
from toolkit.commands.lab_drill import drill
from toolkit.commands.options import json_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.lab import faults as lab_faults
from toolkit.lab import lab as labs
from toolkit.lab import members
from toolkit.lab.frameworks import FRAMEWORKS
from toolkit.lab.host import become_root, packages
from toolkit.lab.rehearsable import describe, too_fast
from toolkit.lab.sources import RELEASES, os_key
from toolkit.lab.spec import DEFAULT_NAME, LAB, LabSpec, inventory_dir
from toolkit.lab.standin import has_rpms
from toolkit.lab.wanted import NODES, RATE_GBPS, LabRequest
from toolkit.loudness import progress
from toolkit.working import working
from validation.base.counting import number_of

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Use the lab of this name; several can run side by side."
)


def parse_nodes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, bool] | None:
    """Number of nodes, and whether the GPU servers are virtual machines. The lab itself checks 2 to 60."""
    if value is None:
        return None
    if value == "vm":
        return NODES, True
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r}: give a number of nodes or vm")
    return int(value), False


def say(text: str) -> None:
    """Progress goes to stderr, so that --json output stays clean."""
    progress(text)


@group()
def lab() -> None:
    """Build a virtual lab on this machine.

    Its nodes are real systemd nodes with sshd, and links of known speed. What is tried in it is a rehearsal.

    \b
    toolkit lab up                    head, client1, gpu1, gpu2, links of 1 Gbit/s
    toolkit lab up --fabric roce40    what this fabric needs: gpu1 and gpu2 as virtual machines with Soft-RoCE
    toolkit lab up --nodes 6 --rate 10
    toolkit lab up --os debian13      nodes of another Debian release than the machine's
    toolkit lab up --os ubuntu2404    Debian nodes that imitate an Ubuntu server (stand-in)
    toolkit lab up --os el10          the same of EL 10 (or el9), with dnf, NetworkManager and firewalld
    toolkit lab up --bmc --switch     with an emulated BMC for each node, and a switch that shows its ports
    toolkit lab up --add gpu3         one node more in a lab that runs; toolkit lab down --node gpu3 takes it away
    toolkit lab ssh gpu1              a shell on a node
    toolkit lab down                  leaves nothing behind
    """


def lab_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which lab is meant."""
    options = (
        click.option(
            "--fabric",
            "fabric",
            metavar="NAME",
            help="Make the lab that this fabric is rehearsed in: virtual machines where it needs RDMA, else "
            "containers; toolkit fabrics lists them.",
        ),
        click.option(
            "--nodes",
            metavar="N|vm",
            callback=parse_nodes,
            help="Make so many nodes (2 to 60), all containers; or vm: head and client as containers, two GPU servers "
            "as virtual machines with a stock kernel, real RDMA verbs (Soft-RoCE) and real reboots.  "
            f"[default: {NODES}, or what --fabric needs]",
        ),
        click.option(
            "--rate",
            "rate_gbps",
            default=RATE_GBPS,
            show_default=True,
            help="Shape each fabric link to this line rate, in Gbit/s.",
        ),
        click.option(
            "--os",
            "os_name",
            type=click.Choice(list(RELEASES)),
            help="Make nodes of this release. Those of Ubuntu and EL imitate it over Debian (stand-in): "
            "identity, package manager and network, not its programs.  [default: the machine's own]",
        ),
        click.option("--bmc", is_flag=True, help="Give each node an emulated BMC."),
        click.option("--switch", is_flag=True, help="Give the fabric a switch that can be read."),
        click.option("--storage", is_flag=True, help="Declare the shared folder as a storage."),
        click.option(
            "--mirror",
            type=click.Path(path_type=Path, file_okay=False, exists=True),
            metavar="FOLDER",
            help="Let nodes reach this mirror and nothing else.",
        ),
        name_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def framework_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--torch and --tensorflow."""
    for one in reversed(FRAMEWORKS):
        words = f"Give nodes this {one.title} and its engine."
        command = click.option(f"--{one.engine}", f"{one.engine}_python", metavar="PYTHON", help=words)(command)
    return command


@lab.command()
@lab_options
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Copy the inventory into this folder too; {LAB} lists the lab called {DEFAULT_NAME} without a copy.",
)
@framework_options
@click.option("--add", "joining", metavar="NODE", help="Let gpuN or clientN join the lab that is up.")
@json_option
@click.pass_context
def up(
    ctx: click.Context,
    /,
    inventory: Path | None,
    joining: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make the lab: nodes, network, inventory. Run again, it leaves a healthy lab as it is.

    The first time, a base image is built from this machine's own apt sources; later a lab takes seconds.
    A running lab of another form is left alone, with an error.

    \b
    toolkit lab up --fabric roce40
    toolkit lab up --name other --nodes 2     its inventory: toolkit deploy -i /var/lib/.../other/inventory
    toolkit lab up --add gpu3                 then: toolkit node add gpu3
    """
    pythons = {one.engine: python for one in FRAMEWORKS if (python := given.pop(f"{one.engine}_python"))}
    request = LabRequest(**given)
    if joining is not None:
        _refuse_with_add(ctx)
        _join(request.name, joining, inventory, as_json)
        return
    wanted = request.checked()
    become_root()
    started = time.monotonic()
    if request.fabric:
        say(f"fabric {request.fabric} is rehearsed with {describe(wanted.spec())}")
    with working(f"bringing up lab '{wanted.name}'") as shown:
        spec = labs.up(wanted, shown.say, inventory, pythons)
    took = time.monotonic() - started
    folder = inventory or (LAB if wanted.name == DEFAULT_NAME else inventory_dir(wanted.name))
    if as_json:
        answer = {"lab": wanted.name, "inventory": str(folder), "took_s": round(took, 2), **_made(spec)}
        answers.say("lab", answer)
        return
    say(
        f"lab '{wanted.name}': {number_of(len(spec.nodes), 'node')} of {spec.os_words} answer ssh, "
        f"links {wanted.rate_gbps:g} Gbit/s ({took:.1f} s)"
    )
    slow = too_fast(spec, len(os.sched_getaffinity(0)))
    if slow:
        say(f"note: {slow}")
    where = "" if folder == LAB else f" -i {folder}"
    say(f"next: toolkit deploy{where}")
    if request.fabric:
        say(f"then: toolkit validate --fabric {request.fabric}{where}")


def _made(spec: LabSpec) -> dict[str, Any]:
    """Of a lab for --json; what it has not is null."""
    return {**asdict(spec), "over": spec.over or None, "accel": spec.accel or None}


def _refuse_with_add(ctx: click.Context) -> None:
    """What else a lab is was said when it came up."""
    for option in (
        "fabric",
        "nodes",
        "rate_gbps",
        "os_name",
        "bmc",
        "switch",
        "storage",
        "mirror",
        *(f"{one.engine}_python" for one in FRAMEWORKS),
    ):
        if ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            said = next(p.opts[-1] for p in ctx.command.params if p.name == option)
            raise UsageFault(f"--add lets a node join a lab as it is; omit {said}")


def _join(name: str, joining: str, inventory: Path | None, as_json: bool) -> None:
    """One node more."""
    become_root()
    started = time.monotonic()
    with working(f"bringing up {joining}") as shown:
        spec = members.add(name, joining, shown.say, inventory)
    took = time.monotonic() - started
    if as_json:
        answers.say("lab-node", {"lab": name, "node": joining, "took_s": round(took, 2), **_made(spec)})
        return
    say(f"{joining} joined lab '{name}' and answers ssh after {took:.1f} s; the pool does not have it yet")
    where = "" if name == DEFAULT_NAME and inventory is None else f" -i {inventory or inventory_dir(name)}"
    say(f"next: toolkit node add {joining}{where}")


@lab.command()
@lab_options
@json_option
def needs(as_json: bool, **given: Any) -> None:
    """Print the packages that `lab up` with the same options needs, on one line; make nothing.

    What that lab is goes to stderr. Options that `lab up` would refuse, and a running lab that is another one, are
    refused here too, and nobody has to be root.

    \b
    apt-get install $(toolkit lab needs --fabric roce40)
    """
    request = LabRequest(**given)
    wanted = request.checked()
    spec = wanted.spec()
    names = packages(wanted.vms, has_rpms(os_key(spec.os)), wanted.switch)
    labs.running_as_asked(spec, wanted.command)
    if as_json:
        nodes = [asdict(node) for node in spec.nodes]
        answers.say("lab-needs", {"lab": wanted.name, "fabric": request.fabric, "packages": names, "nodes": nodes})
        return
    say(describe(spec))
    click.echo(" ".join(names))


@lab.command()
@name_option
@click.option("--all", "every", is_flag=True, help="Take down all labs of this machine.")
@click.option(
    "--node", "leaving", metavar="NODE", help="Take down only this node; the lab and its inventory go on without it."
)
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Correct this copy of the inventory too, with --node.",
)
@json_option
def down(name: str, every: bool, leaving: str | None, inventory: Path | None, as_json: bool) -> None:
    """Take the lab down.

    No process, mount, namespace, bridge or rule stays. It works on half-made labs too.

    \b
    toolkit lab down
    toolkit lab down --node gpu3      one node only
    """
    if leaving is not None and every:
        raise UsageFault("--node is of one lab; omit --all")
    if inventory is not None and leaving is None:
        raise UsageFault("--inventory goes with --node; the inventory of a lab goes with the lab")
    become_root()
    if leaving is not None:
        with working(f"taking {leaving} down") as shown:
            members.remove(name, leaving, shown.say, inventory)
        say(f"{leaving} has left lab '{name}'")
        if as_json:
            answers.say("lab-down", {"node": leaving, "labs": [{"lab": name, "was_there": True}]})
        return
    done = []
    for one in labs.names() if every else [name]:
        with working(f"taking lab '{one}' down") as shown:
            was_there = labs.down(one, shown.say)
        say(f"lab '{one}' is down" if was_there else f"there is no lab '{one}'; nothing to do")
        done.append({"lab": one, "was_there": was_there})
    if as_json:
        answers.say("lab-down", {"node": None, "labs": done})


@lab.command(epilog=epilogue("lab status"))
@name_option
@json_option
def status(name: str, as_json: bool) -> None:
    """Show the nodes: addresses, whether they run and answer ssh, planted faults.

    \b
    toolkit lab status
    toolkit lab status --json | jq -r '.nodes[] | select(.fault) | .node'
    """
    spec = labs.load(name)
    nodes = labs.status(name)
    if as_json:
        answers.say(
            "lab-status", {"lab": name, "os": spec.os, "over": spec.over or None, "nodes": [asdict(n) for n in nodes]}
        )
    else:
        click.echo(f"lab '{name}', {spec.os_words}")
        rows = []
        for n in nodes:
            state = "up" if n.ssh else ("no ssh" if n.running else "off")
            fault = f", fault: {n.fault}" if n.fault else ""
            rows.append((n.node, n.group, n.management, n.fabric, f"{n.rate_gbps:g} Gbit/s", f"{state}{fault}"))
        tables.show(("node", "group", "management", "fabric", "link", "state"), rows, right=("link",))
    if not all(n.ssh for n in nodes):
        sys.exit(Exit.FAILED)


@lab.command(context_settings={"allow_interspersed_args": False})  # what follows NODE is COMMAND's
@name_option
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(name: str, node: str, command: tuple[str, ...]) -> None:
    """Open a shell on NODE, or run COMMAND there.

    \b
    toolkit lab ssh gpu1 -- systemctl status docker
    toolkit lab ssh client1 -- python3 -c 'print("each word arrives as it was written")'
    toolkit lab ssh gpu1 -- 'journalctl -b | tail'       one word is a line for the node's shell
    """
    if command[:1] and command[0].partition("=")[0] == "--name":  # or else it would be a command for the node
        raise UsageFault(f"--name goes before NODE: toolkit lab ssh --name LAB {node}")
    become_root()
    spec = labs.load(name)
    command = command[1:] if command[:1] == ("--",) else command
    line = command[:1] if len(command) == 1 else (shlex.join(command),) if command else ()
    os.execvp("ssh", [*labs.ssh_words(spec, spec.node(node)), *line])


def fault_help() -> str:
    """Text of `toolkit lab fault --help`, with all kinds."""
    lines = ["Plant faults that a validation must find, and take them back.", "", "\b", "toolkit lab fault list"]
    lines += ["toolkit lab fault set gpu2 slow-link", "toolkit lab fault clear gpu2", "\f", ""]
    for title, vm_only in (("On every node:", False), ("On virtual machines:", True)):
        lines += [title, ""]
        for kind, fault in lab_faults.FAULTS.items():
            if fault.vm_only == vm_only:
                lines += [f"{kind}: {fault.about}.", ""]
    return "\n".join(lines)


@lab.group(help=fault_help(), front=())
def fault() -> None:
    """Plant and take back faults."""


@fault.command("list")
@json_option
def fault_list(as_json: bool) -> None:
    """Show every fault that can be planted: on which nodes, and which criteria find it.

    Criteria are named where a test has shown that they find it.

    \b
    toolkit lab fault list
    """
    faults = lab_faults.FAULTS.items()
    if as_json:
        rows = [{"kind": k, "nodes": f.nodes, "found_by": f.found_by, "about": f.about} for k, f in faults]
        answers.say("faults", {"faults": rows})
        return
    listed = [(kind, one.nodes, ", ".join(one.found_by) or "-", one.about) for kind, one in faults]
    tables.show(("kind", "nodes", "found by", "what it does"), listed)


@fault.command("set")
@name_option
@click.argument("node")
@click.argument("kind", type=click.Choice(list(lab_faults.FAULTS)), metavar="KIND")
@json_option
def fault_set(name: str, node: str, kind: str, as_json: bool) -> None:
    """Plant fault KIND on NODE; toolkit lab fault list shows the kinds.

    \b
    toolkit lab fault set gpu2 slow-link
    """
    become_root()
    lab_faults.plant(name, node, kind, say)
    say(f"{node}: {lab_faults.FAULTS[kind].about}")
    if as_json:
        about = lab_faults.FAULTS[kind].about
        answers.say("lab-fault", {"lab": name, "node": node, "fault": kind, "about": about})


@fault.command("clear")
@name_option
@click.argument("node")
@json_option
def fault_clear(name: str, node: str, as_json: bool) -> None:
    """Take back what was planted on NODE.

    \b
    toolkit lab fault clear gpu2
    """
    become_root()
    lab_faults.clear(name, node, say)
    say(f"{node}: no fault planted")
    if as_json:
        answers.say("lab-fault", {"lab": name, "node": node, "fault": None, "about": None})


lab.add_command(drill)
