"""Health of a node's GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.measures.gpu.health_facts import GpuHealthFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many GPUs answered, and the facts, which stand in the report too."""
    facts = as_facts(GpuHealthFacts, doc["facts"], "gpu-health")
    if json_object(doc["stdout"], "gpu-health: the report") != doc["facts"]:
        raise ParseError("gpu-health: the facts are not those of the report")
    return [Sample(metric="gpus_seen", value=len(facts.gpus), unit="count")], facts
