"""`toolkit inventory`: an inventory from the nodes themselves, and where they differ from it later."""

from __future__ import annotations

import getpass
import ipaddress
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import yaml
from click.core import ParameterSource

from toolkit import answers
from toolkit.answers import json_option
from toolkit.command_class import group
from toolkit.commands.options import kept_runs_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.inventory import read_inventory
from toolkit.inventory_address import is_ipv6
from toolkit.loudness import progress
from toolkit.progress import duration
from toolkit.scan import credentials, wanted
from validation.base import project
from validation.base.counting import number_of
from validation.model import Topology
from validation.rules.fabric import fabric_names, load_fabric

if TYPE_CHECKING:  # paramiko and ssh are loaded when a node is read, not for --help
    from toolkit.scan.contact import HostKey, Login, Outcome
    from toolkit.scan.propose import Proposal
    from toolkit.scan.reading import Read

_FILE = click.Path(path_type=Path, dir_okay=False)
_KEY = click.Path(path_type=Path, dir_okay=False, exists=True)
_OPTIONS = (
    click.option("--nodes", type=_FILE, help="Read the addresses from this file, one on each line, or CSV."),
    click.option("--user", metavar="NAME", help="Log in as this user: root, or one with sudo.  [default: yours]"),
    click.option("--key", type=_KEY, help="Log in with this private key.  [default: ssh-agent, ~/.ssh]"),
    click.option("--ask-password", is_flag=True, help="Ask for the password of the login."),
    click.option("--password-file", type=_FILE, help="Read the password of the login from the first line of "
                                                     "this file."),
    click.option("--known-hosts", type=_FILE, default=lambda: Path.home() / ".ssh/known_hosts",
                 show_default="~/.ssh/known_hosts", help="Look up host keys in this file, and add those that "
                                                         "you confirm."),
    click.option("--accept-host-keys", is_flag=True, help="Trust new host keys without asking."),
    click.option("--rails", metavar="NETWORK", default="10.80.{rail}.0/24", show_default=True,
                 help="Give addresses of this network to fabric ports that have none yet."),
    click.option("--at-once", type=click.IntRange(1, 256), default=32, show_default=True,
                 help="Open at most this many connections at a time."),
)  # fmt: skip


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@group()
def inventory() -> None:
    """Write an inventory from the nodes, or compare it.

    \b
    toolkit inventory init inventories/site 198.51.100.[31:34] --user ops
    toolkit inventory init inventories/site --nodes nodes.csv --ask-password
    toolkit inventory scan inventories/site               where the nodes differ from it; writes nothing
    toolkit inventory cables RUN                          the map of cables, as a run found them

    Reading takes ssh, and python3 on the nodes; no root, and nothing is left there. Passwords are asked for, or come
    from TOOLKIT_SSH_PASSWORD or a file, never from the command line. New host keys are shown and confirmed before a
    user name or password is sent.
    """


@inventory.command(epilog=epilogue("inventory init"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("addresses", nargs=-1)
@json_option
@_options
def init(folder: Path, addresses: tuple[str, ...], nodes: Path | None, as_json: bool, **options: Any) -> None:
    """Write the inventory FOLDER for the nodes at ADDRESSES, or of a list.

    Groups, fabric ports, bill of materials and system are proposed from what was read, in the form of
    inventories/xe9680; what nobody could be sure of is marked CHECK. Nothing that exists is overwritten.

    \b
    toolkit inventory init inventories/site 198.51.100.10 198.51.100.[31:34] --user ops
    toolkit inventory init inventories/site --nodes nodes.csv --key ~/.ssh/site --rails '10.80.{rail}.0/24'

    A list has an address or a range on each line, or is CSV with the columns address, name, group, user, port,
    host_key (SHA256:...), of which only the first is needed.
    """
    _refuse_rails(options["rails"])
    if (folder / "hosts.yml").exists():
        again = f"toolkit inventory scan {folder}"
        raise UsageFault(f"{folder / 'hosts.yml'}: is there already, and is not overwritten; compare it with: {again}")
    listed = wanted.checked(_listed(addresses, nodes))
    user = options["user"] or getpass.getuser()
    proposal = _propose(_read([_Listed(one, user) for one in listed], options), options["rails"])
    _problems(proposal)
    if not proposal.nodes:
        raise UsageFault("no node could be read, so nothing was written")
    from toolkit.scan import written

    texts = written.files(proposal, folder.resolve().name, user)
    written.write(folder, texts)
    marks = sum(text.count(written.MARK) for text in texts.values())
    if as_json:
        document: dict[str, Any] = {
            "inventory": folder,
            "files": [folder / path for path in texts],
            "to_look_at": marks,
        }
        document["nodes"] = [node.name for node in proposal.nodes]
        document["problems"] = [{"node": one.who, "why": one.why} for one in proposal.problems]
        answers.say("inventory-init", document)
    else:
        for path in texts:
            click.echo(f"wrote {folder / path}")
        nodes_words, marks_words = number_of(len(proposal.nodes), "node"), number_of(marks, "thing")
        click.echo(f"{nodes_words}; {marks_words} to look at: grep -rn {written.MARK[:-1]} {folder}")
    raise SystemExit(Exit.INCOMPLETE if proposal.problems else Exit.OK)


@inventory.command(epilog=epilogue("inventory scan"))
@click.argument("folder", metavar="INVENTORY", type=click.Path(path_type=Path))
@click.argument("addresses", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: differences, problems, what was read.")
@_options
def scan(folder: Path, addresses: tuple[str, ...], nodes: Path | None, as_json: bool, **options: Any) -> None:
    """Read the nodes of INVENTORY, and those at ADDRESSES, and show the differences. Writes nothing.

    A node that the inventory lacks is shown as lines for hosts.yml.

    \b
    toolkit inventory scan inventories/site
    toolkit inventory scan inventories/site 198.51.100.35        a new node
    """
    _refuse_rails(options["rails"])
    topology = read_inventory(folder)
    more = (
        wanted.checked([*wanted.from_words(addresses), *(wanted.from_file(nodes) if nodes else [])])
        if addresses or nodes
        else []
    )
    from toolkit.scan.known_hosts import of_inventory

    chosen = click.get_current_context().get_parameter_source("known_hosts") is ParameterSource.COMMANDLINE
    listed = [
        _Listed(
            wanted.Wanted(n.ssh.host, str(folder), None, None, None, n.ssh.port), n.ssh.user, n.ssh.key_file,
            None if chosen else of_inventory(n.ssh.extra_args),
        )
        for n in topology.nodes
    ]  # fmt: skip
    have = {(one.wanted.address, one.wanted.port) for one in listed}
    user = options["user"] or getpass.getuser()
    listed += [_Listed(replace(one, name=None), user) for one in more if (one.address, one.port or 22) not in have]
    reads = _read(listed, options)
    proposal = _propose(reads, options["rails"])
    names = {n.ssh.host: n.name for n in topology.nodes}
    if len(names) == len(topology.nodes):  # of nodes behind one address nobody knows which it is
        known = (replace(one, address=names.get(one.who, one.address)) for one in proposal.problems)
        proposal = replace(proposal, problems=tuple(known))
    raise SystemExit(_compare(topology, proposal, reads, as_json))


@inventory.command(epilog=epilogue("inventory cables"))
@click.argument("run", required=False)
@click.option("--csv", "drawing", type=_FILE, help="Read the cables of this CSV: node,port,switch,switch_port,rail.")
@kept_runs_option
def cables(run: str | None, drawing: Path | None, runs_dir: Path) -> None:
    """Print the map of cables for an inventory, as a run found them or from a CSV.

    Without RUN it is the newest. Write the lines into group_vars/all of the inventory; later runs are compared with
    them (criterion pf.cabling).

    \b
    toolkit inventory cables RUN > inventories/site/group_vars/all/cables.yml
    toolkit inventory cables --csv drawing.csv > inventories/site/group_vars/all/cables.yml
    """
    from toolkit import cables as mapped

    if drawing is not None:
        if run is not None:
            raise UsageFault("a run and --csv: choose one")
        click.echo(mapped.as_yaml(mapped.from_csv(drawing)), nl=False)
        return
    from toolkit import rundir
    from toolkit.scan.cabled import of_run

    found, problems = of_run(rundir.find(runs_dir, run))
    click.echo(mapped.as_yaml(found), nl=False)
    for words in problems:
        click.echo(words, err=True)
    raise SystemExit(Exit.INCOMPLETE if problems else Exit.OK)


def _compare(topology: Topology, proposal: Proposal, reads: Sequence[Read], as_json: bool) -> Exit:
    from toolkit.scan import difference, written
    from toolkit.scan.answer import Answer

    found = difference.differences(topology, proposal)
    new = difference.new_nodes(topology, proposal)
    if as_json:
        scanned = {r.wanted.address: r.outcome.model_dump(mode="json") for r in reads if isinstance(r.outcome, Answer)}
        document: dict[str, Any] = {
            "differences": [one._asdict() for one in found],
            "problems": [{"node": one.who, "why": one.why} for one in proposal.problems],
            "new": [node.name for node in new],
            "answers": scanned,
        }
        answers.say("inventory-scan", document)
    else:
        for one in found:
            click.echo(str(one))
        for node in new:
            click.echo(f"{node.name}: is not in the inventory; in hosts.yml, below {node.group}, it would be:")
            click.echo("\n".join(written.node_lines(node, proposal.bom[node.group], 8)))
        _problems(proposal)
        if not found and not new and not proposal.problems:
            count = len(topology.nodes)
            all_of = f"all {count} nodes are" if count != 1 else "the node is"
            click.echo(f"{all_of} as the inventory says")
    if found or new:
        return Exit.FAILED
    return Exit.INCOMPLETE if proposal.problems else Exit.OK


def _listed(addresses: tuple[str, ...], nodes: Path | None) -> list[wanted.Wanted]:
    return [*wanted.from_words(addresses), *(wanted.from_file(nodes) if nodes else [])]


def _refuse_rails(rails: str) -> None:
    if is_ipv6(rails.replace("{rail}", "0")):
        raise UsageFault(
            f"--rails {rails}: is of IPv6, and this release sets fabrics up over IPv4 (a port's IPv6 address is its "
            "address6); write it like 10.80.{rail}.0/24"
        )
    try:
        networks = [ipaddress.IPv4Network(rails.replace("{rail}", str(rail))) for rail in (0, 1)]
    except ValueError as fault:
        raise UsageFault(f"--rails {rails}: {fault}; write it like 10.80.{{rail}}.0/24") from None
    if networks[0].overlaps(networks[1]):
        raise UsageFault(f"--rails {rails}: two rails would be one network; write it like 10.80.{{rail}}.0/24")


class _Listed(NamedTuple):
    """A node that is to be read, and what an inventory says of how it is reached."""

    wanted: wanted.Wanted
    user: str
    key_file: str | None = None
    known_hosts: Path | None = None


def _read(listed: Sequence[_Listed], options: dict[str, Any]) -> list[Read]:
    """Read all nodes, showing each as it is done; those that could not be read are named at the end, once."""
    from toolkit.scan import reading
    from toolkit.scan.contact import Login, Trouble

    password = credentials.password(options["ask_password"], options["password_file"])
    began, done = time.monotonic(), 0

    def login(node: _Listed) -> Login:
        one, file = node.wanted, options["key"] or (Path(node.key_file) if node.key_file else None)
        user = one.user or options["user"] or node.user
        return Login(one.address, one.port or 22, user, password, file, node.known_hosts)

    def tell(one: wanted.Wanted, outcome: Outcome) -> None:
        nonlocal done
        done += 1
        said = "could not be read" if isinstance(outcome, Trouble) else f"{one.address}: {_summary(outcome)}"
        took = duration(time.monotonic() - began)
        progress(f"[{done}/{len(listed)}] {said}   {took} elapsed")

    def confirm(keys: Sequence[HostKey]) -> bool:
        files = {str(key.login.known_hosts or options["known_hosts"]) for key in keys}
        return _confirm(keys, ", ".join(sorted(files)), options["accept_host_keys"])

    nodes = [(node.wanted, login(node)) for node in listed]
    progress(f"reading {number_of(len(nodes), 'node')}, {min(options['at_once'], len(nodes))} at a time")
    return reading.read(nodes, options["known_hosts"], confirm, tell, options["at_once"])


def _summary(outcome: Any) -> str:
    """`gpu1, PowerEdge XE9680, ubuntu 24.04, 8 GPUs, 12 ports`."""
    gpus = number_of(len(outcome.gpus), "GPU") if outcome.gpus else "no GPU"
    return (
        f"{outcome.name}, {outcome.model}, {outcome.os}, {gpus}, "
        f"{number_of(sum(p.card is not None for p in outcome.ports), 'port')}"
    )


def _somebody() -> bool:
    """Whether there is anybody to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def _confirm(keys: Sequence[HostKey], file: str, accept: bool) -> bool:
    click.echo("host keys that nobody has confirmed yet:", err=True)
    for key in keys:
        click.echo(f"  {key.login.known_as}  {key.kind}  {key.fingerprint}", err=True)
    if accept:
        click.echo(f"accepted without a look, by --accept-host-keys: added to {file}", err=True)
        return True
    if not _somebody():
        click.echo(
            "nobody is there to be asked: run it in a terminal, write the keys into the column host_key of a list, "
            "or take --accept-host-keys",
            err=True,
        )
        return False
    click.echo("Compare them at each node's console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", err=True)
    return click.confirm(f"Are they the nodes' own? They are added to {file}", err=True)


def _propose(reads: Sequence[Read], rails: str) -> Proposal:
    from toolkit.scan.propose import propose
    from toolkit.scan.served import Served

    table = project.file("stacks/compatibility.yml")
    known = yaml.safe_load(table.read_text(encoding="utf-8"))
    return propose(reads, rails, Served.of(known), [load_fabric(name) for name in fabric_names()])


def _problems(proposal: Proposal) -> None:
    """Each once; those that have the same problem on one line."""
    same: dict[str, list[str]] = {}
    for one in proposal.problems:
        same.setdefault(one.why, []).append(one.who)
    for why, names in same.items():
        click.echo(f"error: {', '.join(names)}: {why}", err=True)
