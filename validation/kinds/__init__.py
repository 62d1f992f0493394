"""One record for each kind of measurement. Everything that differs from kind to kind stands in it.

Every module of the measurements that has `KINDS` adds its records; nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Mapping

from validation.base import discovery
from validation.base.errors import RunError
from validation.kinds.parsing import ParseError, fit, place
from validation.kinds.record import FIRST, Kind
from validation.model import Job, Measurement, Param, Sample, Topology
from validation.model.facts import AnyFacts
from validation.probes import ProbeDoc

__all__ = ["FIRST", "KINDS", "PROBE_PYTHON", "Kind", "by_hand", "job_for", "parse", "title"]

PROBE_PYTHON = "/opt/elastic-ai/acceptance/bin/python"
"""The interpreter that has the probes on a node; role acceptance installs it."""


def _found() -> list[tuple[str, Kind]]:
    every = (kind for module in discovery.modules() for kind in getattr(module, "KINDS", ()) if isinstance(kind, Kind))
    return sorted(((kind.name, kind) for kind in every), key=lambda one: one[0])


KINDS = discovery.Discovered(_found)


def title(kind: str) -> str:
    """A kind of measurement in words; one that this release does not know by its name."""
    return KINDS[kind].title if kind in KINDS else kind


def job_for(m: Measurement, topology: Topology) -> Job:
    """What to run for a measurement; RunError where plan and topology do not fit together."""
    if m.kind not in KINDS:
        why = f"this release has no probe for kind {m.kind!r}; use the release that planned it"
        raise RunError(f"plan.json: {m.id}: {why}")
    try:
        return KINDS[m.kind].job(m, topology)
    except (KeyError, IndexError, ValueError) as fault:
        raise RunError(f"plan.json: {m.id}: does not fit topology.json: {fault}; make a new run") from None


def by_hand(job: Job, topology: Topology) -> list[str]:
    """The command line that takes a measurement again on its node; on one that nobody provisioned, in the checkout."""
    return [PROBE_PYTHON if topology.here is None else "python3", "-m", "validation.probes", *job.probe.words]


def parse(kind: str, doc: ProbeDoc, params: Mapping[str, Param] | None = None) -> tuple[list[Sample], AnyFacts]:
    """Samples and facts of a probe's document. `params` are the measurement's, checked against what the tool did.

    ParseError where the tool failed, did something else, or its output cannot be used whole; where the parser itself
    did not foresee the output, the exception is its cause and the place stands in its words.
    """
    if kind not in KINDS:
        raise ParseError(f"no parser for {kind!r}; known: {', '.join(KINDS)}")
    try:
        if doc["kind"] != kind:
            raise ParseError(f"the probe answered with {doc['kind']!r} instead of {kind!r}")
        if doc["error"]:
            raise ParseError(f"{doc['tool']}: {doc['error']}")
        if doc["returncode"] != 0:
            raise ParseError(f"{doc['tool']} ended with exit status {doc['returncode']}")
        samples, facts = KINDS[kind].parse(doc, params or {})
        fit(samples, facts)
    except ParseError:
        raise
    except Exception as fault:  # whatever it is, it costs this measurement alone
        raise ParseError(f"{kind}: the output is not as this parser knows it ({place(fault)})") from fault
    return samples, facts
