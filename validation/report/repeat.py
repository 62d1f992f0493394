"""How to repeat each kind of measurement by hand, and what this run could not show. From the run's own files."""

from __future__ import annotations

import contextlib
import re
import shlex
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.base.errors import RunError
from validation.kinds import KINDS, by_hand, job_for, title
from validation.model import Measurement, Result, Topology, VerdictDoc
from validation.report import judgement_columns
from validation.report.criteria import slug
from validation.report.documents import RunDocuments

#: What stands on the other end while a client measures; `{d}` is the destination's node.
_SERVERS = {
    "iperf3": "iperf3 -s -p {port}",
    "sockperf": "sockperf server --tcp -p {port}",
    "ibv_rc_pingpong": "the same command without the last word",
    "ucx_perftest": "ucx_perftest -p {port}",
}
_PERFTEST = re.compile(r"ib_\w+_(bw|lat)$")
_TEMPORARY = re.compile(r"/tmp/elastic-ai-[^/\s]+/")  # noqa: S108 - what a probe left in its command line


@dataclass(frozen=True)
class Repeat:
    """One command that was run, as an example of its kind. `server` is what has to run on `other` meanwhile.

    `count` is how many of the kind's results were made with this tool.
    """

    title: str
    tool: str
    node: str
    command: str
    server: str | None
    other: str | None
    measurement: str
    anchor: str
    count: int


def repeats(documents: RunDocuments) -> tuple[Repeat, ...]:
    """For each kind of measurement and tool the command of its first usable result, in the order of the plan."""
    latest = documents.latest
    groups: dict[tuple[str, str], list[tuple[Measurement, Result]]] = {}
    for measurement in documents.plan.measurements:
        result = latest.get(measurement.id)
        if result is not None and result.status == "ok" and result.provenance.command:
            groups.setdefault((measurement.kind, result.provenance.tool), []).append((measurement, result))
    return tuple(_repeat(documents.topology, *group[0], len(group)) for group in groups.values())


def _repeat(topology: Topology, measurement: Measurement, result: Result, count: int) -> Repeat:
    provenance = result.provenance
    words = [_TEMPORARY.sub("/tmp/", word) for word in provenance.command]  # noqa: S108
    node, other, server = measurement.nodes[0], None, None
    if len(measurement.endpoints) == 2:
        node, other = measurement.endpoints[0].node, measurement.endpoints[1].node
        server = _server(words, measurement)
    if measurement.kind in KINDS and KINDS[measurement.kind].repeat_by == "probe":
        with contextlib.suppress(RunError):  # a run of another release: what it recorded has to do
            job = job_for(measurement, topology)
            node, words = job.node, by_hand(job, topology)
            if job.serving:
                end = job.serving[0]
                other, server = end.node, shlex.join([*words[:-2], *end.call.words])
    return Repeat(
        title=title(measurement.kind),
        tool=f"{provenance.tool} {provenance.tool_version}".strip(),
        node=node,
        command=shlex.join(words),
        server=server,
        other=other if server else None,
        measurement=measurement.id,
        anchor=slug(measurement.id),
        count=count,
    )


def _server(words: list[str], measurement: Measurement) -> str | None:
    tool = words[0].rpartition("/")[2]
    if _PERFTEST.fullmatch(tool):
        kept = [w for w in words[:-1] if not w.startswith("--out_json")]
        return shlex.join(kept)
    if tool == "ibv_rc_pingpong":
        return shlex.join(words[:-1])
    pattern = _SERVERS.get(tool)
    return pattern.format(port=measurement.params.get("port", "")) if pattern else None


def limits(documents: RunDocuments, verdict: VerdictDoc) -> tuple[str, ...]:
    """What this run cannot show, in sentences, most important first."""
    out = []
    if verdict.sign_off == "REHEARSAL":
        out.append(
            "Virtual or emulated parts took part: what they measure says how the procedure works, not what "
            "hardware does."
        )
    if documents.constructed:
        out.append("The data were made up: nothing in this report was measured on a machine.")
    if documents.topology.here is not None:
        out.append("No inventory declares this machine: nothing says what it was to be, and nothing is accepted.")
    if documents.info.unit is not None:
        part = documents.info.part
        rest = f": {number_of(len(part.elsewhere), 'other node')} of the site had no part in it" if part else ""
        out.append(f"Only unit {documents.info.unit} was measured{rest}.")
    no_probe = [c.id for c in verdict.criteria if c.reason_code == "no-probe"]
    if no_probe:
        out.append(f"This release has no measurement for: {', '.join(no_probe)}.")
    not_selected = [c.id for c in verdict.criteria if c.reason_code == "not-selected"]
    if not_selected:
        out.append(f"Not part of this run: {', '.join(not_selected)}.")
    ours = [c.id for c in documents.catalogue.values() if c.bound.provisional and _decided(verdict, c.id)]
    if ours:
        out.append(f"Bounds that are this project's judgement and no published figure: {', '.join(ours)}.")
    few = sorted(set().union(*(judgement_columns.samples(c.judgements) for c in verdict.criteria)) - {0})
    if few and few[0] < 5:
        out.append(
            f"Some values rest on {few[0]} sample{'s' if few[0] > 1 else ''} only; their interval says little about "
            "how they differ from run to run."
        )
    out += [f"Left out of the plan: {left.why}." for left in documents.plan.left_out]
    out.append("All samples come from one run: a change of load, temperature or time of day is not in the intervals.")
    return tuple(out)


def _decided(verdict: VerdictDoc, id_: str) -> bool:
    return any(c.id == id_ and c.verdict in ("pass", "fail", "waived") for c in verdict.criteria)
