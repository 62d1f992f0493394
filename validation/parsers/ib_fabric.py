"""infiniband-diags: what sminfo, ibnetdiscover --ports and ibqueryerrors print. Their exit statuses say little.

Forms as in rdma-core's infiniband-diags (sminfo.c, ibnetdiscover.c dump_ports_report, ibqueryerrors.c print_results).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """(tool, its lines) for each command of the transcript."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line.split()[1], []))
        elif found:
            found[-1][1].append(line)
    return found


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples: how many links and ports with errors. Facts: `subnet_managers` (`STATE lid 1 guid 0x.. priority 14`),
    `links` (`4x EDR | NAME port N GUID | NAME port N GUID`, each once; a port without a link has nothing behind it),
    `errors` (`NAME port N: SymbolErrorCounter 37, ...`), `unanswered` (queries that no port answered).
    """
    managers: list[str] = []
    links: dict[tuple[str, ...], str] = {}
    errors: list[str] = []
    unanswered = 0
    complete = {"sminfo": 0, "ibnetdiscover": 0, "ibqueryerrors": 0}
    for tool, lines in _sections(doc["stdout"]):
        if tool == "sminfo":
            managers += _manager(lines)
        elif tool == "ibnetdiscover":
            links.update(_links(lines))
        elif tool == "ibqueryerrors":
            unanswered += _errors(lines, errors)
        else:
            raise ParseError(f"ib-fabric: output of an unknown tool {tool!r}")
        complete[tool] += 1
    asked = len(doc["facts"]["interfaces"])
    for tool, times in complete.items():
        if times != asked:
            raise ParseError(f"ib-fabric: {tool} was run {times} times for {asked} ports")
    facts: Facts = {
        "devices": [str(device) for device in doc["facts"]["devices"]],
        "subnet_managers": managers,
        "links": list(links.values()),
        "errors": list(dict.fromkeys(errors)),
        "unanswered": unanswered,
    }
    return [
        Sample(metric="ib_links", value=len(links), unit="links"),
        Sample(metric="ib_error_ports", value=len(set(errors)), unit="ports"),
    ], facts


def _manager(lines: list[str]) -> list[str]:
    for line in lines:
        found = MASTER.match(line)
        if found:
            return [f"{found[4].removeprefix('SMINFO_')} lid {found[1]} guid {found[2]} priority {found[3]}"]
    raise ParseError("sminfo: it names no subnet manager")


def _links(lines: list[str]) -> dict[tuple[str, ...], str]:
    links: dict[tuple[str, ...], str] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        found = LINK.match(line)
        if found is None:
            raise ParseError(f"ibnetdiscover: a line of the ports report that cannot be read: {line.strip()[:80]!r}")
        here = (found[4], found[3])
        if found[7] is None:
            links[here] = f"{found[5]} {found[6]} | {found[13]} port {found[3]} {found[4]} |"
            continue
        key = tuple(word for end in sorted((here, (found[10], found[9]))) for word in end)
        links.setdefault(
            key,
            f"{found[5]} {found[6]} | {found[11]} port {found[3]} {found[4]} | {found[12]} port {found[9]} {found[10]}",
        )
    if not links:
        raise ParseError("ibnetdiscover: its ports report is empty")
    return links


def _errors(lines: list[str], errors: list[str]) -> int:
    """Ports with error counters are added to `errors`; returns the number of queries that failed."""
    node, summary, counted, failed = "", None, None, 0
    mine = 0
    for line in lines:
        if heading := NODE.match(line):
            node = heading[1]
        elif port := PORT.match(line):
            counters = COUNTER.findall(port[3])
            if port[2] == "ALL":
                continue  # the sum over a switch's ports, each of which has its own line
            mine += 1
            errors.append(f"{node} port {port[2]}: " + ", ".join(f"{name} {value}" for name, value in counters))
        elif said := SUMMARY.match(line):
            summary = said
        elif said := PORTS.match(line):
            counted = said
        elif said := re.match(r"^## +(\d+) PMA query failures", line):
            failed = int(said[1])
    if summary is None or counted is None:
        raise ParseError("ibqueryerrors: no summary; it did not come to its end")
    if int(counted[1]) == 0:
        raise ParseError("ibqueryerrors: it checked no port")
    if mine != int(counted[2]):
        raise ParseError(f"ibqueryerrors: {counted[2]} ports with errors in its summary, {mine} in its list")
    return failed
