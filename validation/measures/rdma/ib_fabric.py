"""Facts of an InfiniBand fabric (kind ib-fabric)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError
from validation.kinds.record import Kind
from validation.measures.rdma.ports import on_rdma_ports
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name
from validation.probes import ProbeDoc

Guid = Annotated[str, Field(pattern=r"^0x[0-9a-f]+$")]


class SubnetManager(Model):
    """A subnet manager as sminfo names it; `state` MASTER, STANDBY ..."""

    state: Name
    lid: Count
    guid: Guid
    priority: Count

    def __str__(self) -> str:
        """`MASTER lid 1 guid 0xb8599f0300aa0001 priority 14`."""
        return f"{self.state} lid {self.lid} guid {self.guid} priority {self.priority}"


class IbPort(Model):
    """A port of the fabric and the name of its node."""

    node: str
    guid: Guid
    number: Count

    @property
    def key(self) -> tuple[str, int]:
        """What tells ports apart: nodes may share a name."""
        return self.guid, self.number

    def __str__(self) -> str:
        """`gpu3 mlx5_0 port 1 0xb8599f0300ac0001`."""
        return f"{self.node} port {self.number} {self.guid}"


class IbRate(Model):
    """Width and speed of a link as ibnetdiscover writes them: 4x EDR. `lanes` None where it gives no width."""

    lanes: Annotated[int, Field(gt=0)] | None
    speed: str

    def __str__(self) -> str:
        """`4x EDR`."""
        return f"{self.lanes or '?'}x {self.speed}"


class IbLink(Model):
    """A link, `there` None where nothing is behind the port. More than one rate: its ends or the asked ports differ."""

    here: IbPort
    there: IbPort | None = None
    rates: Annotated[tuple[IbRate, ...], Field(min_length=1)]

    @property
    def rate(self) -> str:
        """Its rate in words: `4x EDR`, or `4x EDR or 1x SDR`."""
        return " or ".join(map(str, self.rates))


class IbErrors(Model):
    """Counters of a port beyond ibqueryerrors' thresholds."""

    port: IbPort
    counters: dict[str, Count]


class IbFabricFacts(Facts):
    """An InfiniBand fabric as the asked ports show it.

    `subnets`: how many fabrics these are in; `links` each once; `unanswered` queries for error counters; `nodes`,
    `ports`: what ibnetdiscover listed at least; `..._checked`: what ibqueryerrors went through, of the asked port where
    most is missing.
    """

    type: Literal["ib-fabric"] = "ib-fabric"
    devices: tuple[str, ...]
    subnet_managers: tuple[SubnetManager, ...]
    subnets: Count
    links: tuple[IbLink, ...]
    errors: tuple[IbErrors, ...]
    unanswered: Count
    nodes: Count
    nodes_checked: Count
    ports: Count
    ports_checked: Count


# ----------------------------------------------------------------------------------------------------------------------
# infiniband-diags: what sminfo, ibnetdiscover --ports and ibqueryerrors print. Their exit statuses say little. Forms
# as in rdma-core's infiniband-diags (sminfo.c, ibnetdiscover.c dump_ports_report, ibqueryerrors.c print_results).


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


Key = tuple[str, int]
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
    """A port as ibnetdiscover lists it: its rate, its node's kind, and what is behind it, if anything."""

    kind: str
    rate: IbRate
    port: IbPort
    other: Key | None


@dataclass
class View:
    """What one asked port shows: the fabric's master, its ports, and how much of it was asked for errors."""

    manager: SubnetManager
    ports: dict[Key, End]
    errors: dict[Key, IbErrors] = field(default_factory=dict)
    nodes_checked: int = 0
    ports_checked: int = 0
    unanswered: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are at least: an adapter's ports have a GUID each, so its name counts."""
        return len({key[0] if end.kind == "SW" else end.port.node for key, end in self.ports.items()})

    @property
    def unchecked(self) -> tuple[int, int]:
        """How many listed ports, and nodes, were not asked for errors. A switch's own port 0 is not listed."""
        return len(self.ports) - self.ports_checked, self.nodes - self.nodes_checked


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples: how many links and ports with errors; the facts are an IbFabricFacts."""
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
            raise ParseError(f"ib-fabric: {tool} was run {len(found)} times for {number_of(asked, 'port')}")
    views = [_view(*parts) for parts in zip(*outputs.values(), strict=True)]
    errors: list[IbErrors] = []
    for view in views:
        errors += [one for one in view.errors.values() if one not in errors]
    links = _links(views)
    worst = max(views, key=lambda view: view.unchecked)
    facts = IbFabricFacts(
        devices=tuple(str(device) for device in doc["facts"]["devices"]),
        subnet_managers=tuple(dict.fromkeys(view.manager for view in views)),
        subnets=_subnets(views),
        links=links,
        errors=tuple(errors),
        unanswered=sum(view.unanswered for view in views),
        nodes=worst.nodes,
        nodes_checked=worst.nodes_checked,
        ports=len(worst.ports),
        ports_checked=worst.ports_checked,
    )
    return [
        Sample(metric="ib_links", value=sum(link.there is not None for link in links), unit="links"),
        Sample(metric="ib_error_ports", value=len(errors), unit="ports"),
    ], facts


def _view(sminfo: list[str], ibnetdiscover: list[str], ibqueryerrors: list[str]) -> View:
    view = View(manager=_manager(sminfo), ports=_ports(ibnetdiscover))
    _errors(ibqueryerrors, view)
    return view


def _manager(lines: list[str]) -> SubnetManager:
    for line in lines:
        found = MASTER.match(line)
        if found:
            state = found[4].removeprefix("SMINFO_")
            return SubnetManager(state=state, lid=int(found[1]), guid=found[2], priority=int(found[3]))
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
        other = (found[10], int(found[9])) if found[7] is not None else None
        here = IbPort(node=found[13] if other is None else found[11], guid=found[4], number=int(found[3]))
        if here.key in ports:
            raise ParseError(f"ibnetdiscover: port {found[3]} of {found[4]} stands there twice")
        lanes = re.fullmatch(r"(\d+)x", found[5])
        ports[here.key] = End(found[1], IbRate(lanes=int(lanes[1]) if lanes else None, speed=found[6]), here, other)
    if not ports:
        raise ParseError("ibnetdiscover: its ports report is empty")
    for key, end in ports.items():
        if end.other is not None and (end.other not in ports or ports[end.other].other != key):
            raise ParseError(f"ibnetdiscover: the link of {end.port} is not reported by the port at the other end")
    return ports


def _links(views: list[View]) -> tuple[IbLink, ...]:
    """Each link once, with every rate that the asked ports and both of its ends tell."""
    rates: dict[tuple[Key, ...], list[IbRate]] = {}
    ends: dict[tuple[Key, ...], tuple[IbPort, IbPort | None]] = {}
    for view in views:
        for key, end in view.ports.items():
            link = (key,) if end.other is None else tuple(sorted((key, end.other)))
            far = view.ports[end.other].port if end.other is not None else None
            ends.setdefault(link, (end.port, far))
            told = rates.setdefault(link, [])
            told += [end.rate] if end.rate not in told else []
    return tuple(IbLink(here=one, there=two, rates=tuple(rates[link])) for link, (one, two) in ends.items())


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
            mine = IbPort(node=node, guid=port[1], number=int(port[2]))
            if mine.key in view.errors:
                raise ParseError(f"ibqueryerrors: port {port[2]} of {port[1]} stands there twice")
            view.errors[mine.key] = IbErrors(port=mine, counters={name: int(value) for name, value in counters})
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
            f"ibqueryerrors: {number_of(counted[2], 'port')} with errors in its summary, {len(view.errors)} in its list"
        )
    if headings != int(summary[2]):
        raise ParseError(f"ibqueryerrors: {summary[2]} bad nodes in its summary, {headings} in its list")


KINDS = (
    Kind(
        name="ib-fabric",
        title="InfiniBand fabric: subnet manager, links, errors",
        measures="Reads subnet manager, links and error counters of an InfiniBand fabric, before the load and after "
        "it.",
        tool="sminfo, ibnetdiscover and ibqueryerrors",
        more="explanation/measuring/nodes.md",
        job=on_rdma_ports,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
