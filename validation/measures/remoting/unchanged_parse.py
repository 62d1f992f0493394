"""One program natively, remotely and on a part, and its client before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object
from validation.measures.remoting.remoting_unchanged_probe import WAYS
from validation.measures.remoting.unchanged_facts import UnchangedFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`changes`: how many things were not the same. ParseError where a program did not run as its way says: natively
    by the driver's own library, remotely by another, on a part with less memory; or where its data were wrong."""
    raw = doc["facts"]
    said: Mapping[str, Any] = json_object(doc["stdout"], "unchanged")
    for key in ("server", "part"):
        expect(params, key, raw[key], f"unchanged: {key}")
    flag(raw["emulated"], "emulated")
    runs = []
    for run in said["runs"]:
        sent, back = run["sent_sha256"], run["back_sha256"]
        if not isinstance(sent, str) or sent != back:
            raise ParseError(f"unchanged: {run['way']}: other data came back from the GPU than were sent")
        runs.append({key: value for key, value in run.items() if key not in ("sent_sha256", "back_sha256")})
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "server", "part")}
    facts = as_facts(UnchangedFacts, {**known, **said, "runs": runs}, "unchanged")
    if tuple(run.way for run in facts.runs) != WAYS:
        raise ParseError(f"unchanged: {', '.join(run.way for run in facts.runs)} ran, not {', '.join(WAYS)}")
    if len({run["sent_sha256"] for run in said["runs"]}) != 1:
        raise ParseError("unchanged: the program did not copy the same data each time")
    native, remote, part = facts.runs
    if native.library == remote.library or remote.library != part.library:
        raise ParseError("unchanged: natively and remotely the program found the same library, or two remotely")
    if not part.told_bytes < remote.told_bytes:
        raise ParseError("unchanged: the part has no less memory than the whole")
    if (facts.before.packages == facts.after.packages) == bool(facts.packages):
        raise ParseError("unchanged: the packages' digests and differences contradict each other")
    return [Sample(metric="changes", value=len(facts.changes()), unit="count")], facts
