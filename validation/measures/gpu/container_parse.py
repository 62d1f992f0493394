"""GPUs of a container before and after a reload of systemd's units."""

from __future__ import annotations

from collections.abc import Mapping

from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.measures.gpu.container_facts import GpuContainerFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many GPUs were there after it, where it was asked, and the facts, which stand in the report too."""
    facts = as_facts(GpuContainerFacts, doc["facts"], "gpu-container")
    if json_object(doc["stdout"], "gpu-container: the report") != doc["facts"]:
        raise ParseError("gpu-container: the facts are not those of the report")
    if facts.after is not None and (facts.before is None or facts.unmade):
        raise ParseError("gpu-container: asked after a reload that was not made")
    if facts.before is None and not facts.unmade:
        raise ParseError("gpu-container: nothing was asked, and nothing says why")
    after = [] if facts.after is None else [Sample(metric="gpus_after_reload", value=facts.after.gpus, unit="count")]
    return after, facts
