"""Documents of a run that say more, or otherwise, to a reader than what is read of them: one line for each.

What the toolkit reads is bound to what was signed by the verdict and the reports. A comment, a number in another
spelling or an escaped word is read by people alone, so it is held against the one form that a run is kept in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validation.model import Node, RunInfo, Topology
from validation.model.base import Model
from validation.model.load import ConfigError, load_json, read_source
from validation.plan.suites import numbers, words
from validation.report.customer import FILES as BROUGHT
from validation.report.customer import NAME as REPORT_YML
from validation.report.customer import Customer, customer_of
from validation.report.formats import FILES
from validation.report.pdf_record import NAME as PDF_RECORD
from validation.report.pdf_record import PdfRecord
from validation.run.kept import odd_json, odd_lines, odd_yaml
from validation.run.names import ACCEPTED, BUILT, FABRIC, INVENTORY, PLAN, PROFILE, RESULTS, RUN, TOPOLOGY, VERDICT
from validation.run.read import Run

_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:~-]{0,39}")
_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REPLACED = re.compile(r"rules of toolkit [\w.+-]{1,40}, copied in at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
_MOST = 3


def odd_forms(run: Run) -> Iterator[str]:
    """Of the documents of a run; ConfigError where one cannot be read."""
    for name in [*run.info.documents, *([REPORT_YML] if (run.folder / REPORT_YML).is_file() else [])]:
        if name.endswith(".yml"):
            odd = odd_yaml(read_source(run.folder / name).text)
            if odd is not None:
                yield f"{name}: {odd}"
    yield from _own_words(run.info)
    yield from _brought(customer_of(run.folder))
    for name, document in _documents(run):
        odd = odd_json(read_source(run.folder / name).text, document)
        if odd is not None:
            yield f"{name}: {odd}"
    lines = list(odd_lines(run.text, run.whole_results))
    if lines:
        shown = ", ".join(map(str, lines[:_MOST])) + (f" and {len(lines) - _MOST} more" if lines[_MOST:] else "")
        yield f"{RESULTS}: line {shown}: is not as the toolkit writes it"
    if (run.folder / INVENTORY).is_file():
        yield from _inventory(read_source(run.folder / INVENTORY).text, run.topology)


def _own_words(info: RunInfo) -> Iterator[str]:
    """Where run.json has words of somebody's in a place that has the toolkit's."""
    if info.replaced is not None and _REPLACED.fullmatch(info.replaced) is None:
        yield f"{RUN}: replaced: is not what the toolkit says of rules that were replaced"
    if info.command[:1] != ("toolkit",):
        yield f"{RUN}: command: is none of the toolkit's"
    odd = sorted({*info.options} - {*numbers(), *words()})
    if odd:
        yield f"{RUN}: options: no option of the toolkit: {', '.join(odd[:_MOST])}"
    if not set(info.origins) <= {FABRIC, PROFILE}:
        yield f"{RUN}: origins: names other things than {FABRIC} and {PROFILE}"


def _brought(customer: Customer) -> Iterator[str]:
    """Where report.yml names files that are not called as the toolkit calls what it takes over."""
    if customer.logo not in (None, f"{BROUGHT}/logo.png", f"{BROUGHT}/logo.svg"):
        yield f"{REPORT_YML}: logo: is no file that the toolkit has taken over"
    if customer.templates not in (None, f"{BROUGHT}/templates"):
        yield f"{REPORT_YML}: templates: is no folder that the toolkit has taken over"


def own_words(folder: Path) -> str:
    """What report.yml has a report say and show, on one line."""
    said = customer_of(folder).model_dump(exclude_none=True, exclude={"language", "templates"})
    return ", ".join(f"{key} {value!r}" for key, value in said.items()) or "none of its words"


def _documents(run: Run) -> Iterator[tuple[str, Model]]:
    yield from ((RUN, run.info), (TOPOLOGY, run.topology), (PLAN, run.plan))
    if (run.folder / VERDICT).is_file():
        yield VERDICT, run.verdict
    if run.built is not None:
        yield BUILT, run.built
    if run.accepted is not None:
        yield ACCEPTED, run.accepted
    if (run.folder / PDF_RECORD).is_file() and (run.folder / FILES["pdf"]).is_file():
        yield PDF_RECORD, load_json(run.folder / PDF_RECORD, PdfRecord)


def _inventory(text: str, topology: Topology) -> Iterator[str]:
    """Where inventory.json says of its hosts what the topology does not, or holds what no inventory's record holds."""
    try:
        said = json.loads(text)
        if text.removesuffix("\n") != json.dumps(said, indent=2, ensure_ascii=False):
            yield f"{INVENTORY}: is not as the toolkit writes it"
        hosts = {host["name"]: host for host in said["hosts"]}
        rest = {key: value for key, value in said.items() if key not in ("format", "hosts", "acceptance_profile")}
        about = topology.model_dump(mode="json", include={"site", "lab_link"})
        odd = [] if rest == about and len(hosts) == len(said["hosts"]) else ["what it says of the site"]
        names = {node.name: node for node in topology.nodes}
        odd += [str(name) for name in sorted({*hosts, *names}) if not _same(hosts.get(name), names.get(name))]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigError(f"{INVENTORY}: is no record of an inventory; restore it from a copy of the run") from None
    if odd:
        yield f"{INVENTORY}: is not what {TOPOLOGY} says: {', '.join(odd[:_MOST])}"


def _same(host: dict[str, Any] | None, node: Node | None) -> bool:
    if host is None or node is None:
        return False
    ours = node.model_dump(
        mode="json",
        include={"name", "slots", "bom", "platform", "stack", "virtual", "emulated", "hypervisor_host", "os_stand_in"},
    )
    ours |= {"address": node.ssh.host, "ssh_port": node.ssh.port, "ssh_user": node.ssh.user}
    ours["ports"] = [
        {"interface": p.interface, "address": f"{p.address}/{p.prefix}", "rate_gbps": p.rate_gbps, "rdma": p.rdma}
        for p in node.ports
    ]
    free = {"groups", "variables", "left_out"}
    return (
        {key: value for key, value in host.items() if key not in free} == ours
        and free <= set(host)
        and all(_GROUP.fullmatch(group) for group in host["groups"])
        and all(
            _VARIABLE.fullmatch(name) and (isinstance(v, (bool, int, float)) or _VALUE.fullmatch(v))
            for name, v in host["variables"].items()
        )
        and isinstance(host["left_out"], int)
    )
