"""infiniband-diags: what sminfo, ibnetdiscover --ports and ibqueryerrors print. Their exit statuses say little.

Forms as in rdma-core's infiniband-diags (sminfo.c, ibnetdiscover.c dump_ports_report, ibqueryerrors.c print_results).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from validation.model import Sample, Scalar
from validation.parsers.common import Facts, Parsed, ParseError
from validation.probes import ProbeDoc

MASTER = re.compile(r"^sminfo: sm lid (\d+) sm guid (0x[0-9a-f]+), activity count \d+ priority (\d+) state \d (\w+)")
LINK = re.compile(
    r"^(SW|CA|RT) +(\d+) +(\d+) (0x[0-9a-f]{16}) (\S+) (\S+)"
    r"(?: - (SW|CA|RT) +(\d+) +(\d+) (0x[0-9a-f]{16}) \( '(.*)' - '(.*)' \)| +'(.*)')\s*$"
)
NODE = re.compile(r'^Errors for (?:0x[0-9a-f]+ )?"(.*)"')
PORT = re.compile(r"^ +GUID (0x[0-9a-f]+) port (\d+|ALL):((?: \[.*\])+)")
COUNTER = re.compile(r"\[(\w+) == (\d+)(?: \([^)]*\))?\]")
SUMMARY = re.compile(r"^## Summary: (\d+) nodes checked, (\d+) bad nodes found")
PORTS = re.compile(r"^## +(\d+) ports checked, (\d+) ports have errors beyond threshold")


Key = tuple[str, str]
"""GUID and number of a port."""


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """(tool, its lines) for each command of the transcript."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line.split()[1], []))
        elif found:
            found[-1][1].append(line)
    return found


@dataclass(frozen=True)
class End:
    """A port as ibnetdiscover lists it: its rate (`4x EDR`), its node's name, and what is behind it, if anything."""

    kind: str
    rate: str
    name: str
    other: Key | None

    def words(self, key: Key) -> str:
        """`NAME port N GUID`."""
        return f"{self.name} port {key[1]} {key[0]}"


@dataclass
class View:
    """What one asked port shows: the fabric's master, its ports, and how much of it was asked for errors."""

    manager: str = ""
    ports: dict[Key, End] = field(default_factory=dict)
    errors: dict[Key, str] = field(default_factory=dict)
    nodes_checked: int = 0
    ports_checked: int = 0
    unanswered: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are at least: an adapter's ports have a GUID each, so its name counts."""
        return len({key[0] if end.kind == "SW" else end.name for key, end in self.ports.items()})

    @property
    def unchecked(self) -> tuple[int, int]:
        """How many listed ports, and nodes, were not asked for errors. A switch's own port 0 is not listed."""
        return len(self.ports) - self.ports_checked, self.nodes - self.nodes_checked


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples: how many links and ports with errors. Facts: `subnet_managers` (`STATE lid 1 guid 0x.. priority 14`),
    `subnets` (how many fabrics the asked ports are in), `links` (`4x EDR | NAME port N GUID | NAME port N GUID`, each
    once; a port without a link has nothing behind it; where the ends or the asked ports tell different rates, the rate
    is both in words), `errors` (`NAME port N GUID: SymbolErrorCounter 37, ...`), `unanswered` (queries that no port
    answered), and `nodes`, `nodes_checked`, `ports`, `ports_checked`: what ibnetdiscover listed at least, and what
    ibqueryerrors went through, of the asked port where most is missing.
    """
    tools = ("sminfo", "ibnetdiscover", "ibqueryerrors")
    outputs: dict[str, list[list[str]]] = {tool: [] for tool in tools}
    for tool, lines in _sections(doc["stdout"]):
        if tool not in outputs:
            raise ParseError(f"ib-fabric: output of an unknown tool {tool!r}")
        outputs[tool].append(lines)
    asked = len(doc["facts"]["interfaces"])
    if asked == 0:
        raise ParseError("ib-fabric: no port was asked")
    for tool, found in outputs.items():
        if len(found) != asked:
            raise ParseError(f"ib-fabric: {tool} was run {len(found)} times for {asked} ports")
    views = [_view(*parts) for parts in zip(*outputs.values(), strict=True)]
    errors: dict[str, None] = {}
    for view in views:
        errors.update(dict.fromkeys(view.errors.values()))
    links = _links(views)
    worst = max(views, key=lambda view: view.unchecked)
    facts: Facts = {
        "devices": [str(device) for device in doc["facts"]["devices"]],
        "subnet_managers": list(dict.fromkeys(view.manager for view in views)),
        "subnets": _subnets(views),
        "links": links,
        "errors": list(errors),
        "unanswered": sum(view.unanswered for view in views),
        "nodes": worst.nodes,
        "nodes_checked": worst.nodes_checked,
        "ports": len(worst.ports),
        "ports_checked": worst.ports_checked,
    }
    return [
        Sample(metric="ib_links", value=sum(not line.endswith("|") for line in links), unit="links"),
        Sample(metric="ib_error_ports", value=len(errors), unit="ports"),
    ], facts


def _view(sminfo: list[str], ibnetdiscover: list[str], ibqueryerrors: list[str]) -> View:
    view = View(manager=_manager(sminfo), ports=_ports(ibnetdiscover))
    _errors(ibqueryerrors, view)
    return view


def _manager(lines: list[str]) -> str:
    for line in lines:
        found = MASTER.match(line)
        if found:
            return f"{found[4].removeprefix('SMINFO_')} lid {found[1]} guid {found[2]} priority {found[3]}"
    raise ParseError("sminfo: it names no subnet manager")


def _ports(lines: list[str]) -> dict[Key, End]:
    """The ports report: each port once, and each link from both of its ends."""
    ports: dict[Key, End] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        found = LINK.match(line)
        if found is None:
            raise ParseError(f"ibnetdiscover: a line of the ports report that cannot be read: {line.strip()[:80]!r}")
        here = (found[4], found[3])
        if here in ports:
            raise ParseError(f"ibnetdiscover: port {found[3]} of {found[4]} stands there twice")
        other = (found[10], found[9]) if found[7] is not None else None
        ports[here] = End(found[1], f"{found[5]} {found[6]}", found[13] if other is None else found[11], other)
    if not ports:
        raise ParseError("ibnetdiscover: its ports report is empty")
    for key, end in ports.items():
        if end.other is not None and (end.other not in ports or ports[end.other].other != key):
            raise ParseError(f"ibnetdiscover: the link of {end.words(key)} is not told by the port at the other end")
    return ports


def _links(views: list[View]) -> list[str]:
    """Each link once, as all asked ports and both of its ends tell it."""
    rates: dict[tuple[str, ...], list[str]] = {}
    words: dict[tuple[str, ...], str] = {}
    for view in views:
        for key, end in view.ports.items():
            if end.other is None:
                link: tuple[str, ...] = key
                words.setdefault(link, f"{end.words(key)} |")
                said = [end.rate]
            else:
                one, two = sorted((key, end.other))
                link, far = (*one, *two), view.ports[end.other]
                words.setdefault(link, f"{end.words(key)} | {far.words(end.other)}")
                ends = (view.ports[one].rate, view.ports[two].rate)
                said = [end.rate if len(set(ends)) == 1 else f"{ends[0]} at one end and {ends[1]} at the other"]
            rates.setdefault(link, []).extend(rate for rate in said if rate not in rates.get(link, ()))
    return [f"{' or '.join(rates[link])} | {ends}" for link, ends in words.items()]


def _subnets(views: list[View]) -> int:
    """How many fabrics the views show: two views of one have ports in common."""
    apart: list[set[Key]] = []
    for view in views:
        mine = set(view.ports)
        for group in [group for group in apart if group & mine]:
            apart.remove(group)
            mine |= group
        apart.append(mine)
    return len(apart)


def _errors(lines: list[str], view: View) -> None:
    """What ibqueryerrors went through, and the ports whose counters are beyond its thresholds."""
    node, summary, counted, headings = "", None, None, 0
    for line in lines:
        if heading := NODE.match(line):
            node = heading[1]
            headings += 1
        elif port := PORT.match(line):
            counters = COUNTER.findall(port[3])
            if not counters or len(counters) != port[3].count("["):
                raise ParseError(f"ibqueryerrors: a counter that cannot be read: {port[3].strip()[:80]!r}")
            if port[2] == "ALL":
                continue  # the sum over a switch's ports, each of which has its own line
            said = ", ".join(f"{name} {value}" for name, value in counters)
            if (port[1], port[2]) in view.errors:
                raise ParseError(f"ibqueryerrors: port {port[2]} of {port[1]} stands there twice")
            view.errors[port[1], port[2]] = f"{node} port {port[2]} {port[1]}: {said}"
        elif line.startswith((" ", "\t")) and "GUID" in line:
            raise ParseError(f"ibqueryerrors: a counter that cannot be read: {line.strip()[:80]!r}")
        elif found := SUMMARY.match(line):
            summary = found
        elif found := PORTS.match(line):
            counted = found
        elif found := re.match(r"^## +(\d+) PMA query failures", line):
            view.unanswered = int(found[1])
    if summary is None or counted is None:
        raise ParseError("ibqueryerrors: no summary; it did not come to its end")
    view.nodes_checked, view.ports_checked = int(summary[1]), int(counted[1])
    if view.ports_checked == 0:
        raise ParseError("ibqueryerrors: it checked no port")
    if len(view.errors) != int(counted[2]):
        raise ParseError(
            f"ibqueryerrors: {counted[2]} ports with errors in its summary, {len(view.errors)} in its list"
        )
    if headings != int(summary[2]):
        raise ParseError(f"ibqueryerrors: {summary[2]} bad nodes in its summary, {headings} in its list")
