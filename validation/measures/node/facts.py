"""Facts of a node. A component that is not installed is "", never absent: absent means that nobody looked."""

from __future__ import annotations

from collections.abc import Mapping

from validation.kinds.parsing import Parsed, as_facts
from validation.model import Scalar
from validation.model.node_facts import NodeFacts
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """No samples; the facts, with every key there and of its type."""
    return [], as_facts(NodeFacts, doc["facts"], "facts")
