"""What healthy nodes give of measurements whose documents are larger than a few samples."""

from __future__ import annotations

from typing import Any

from tests.support import gpu_copies_documents as copies
from tests.support.site import result
from validation.kinds import parse
from validation.measures.asbuilt.facts import AsBuiltFacts, CheckOutcome, ConvergedFacts
from validation.measures.gpu.kinds import EMULATED
from validation.model import Measurement, Result, Sample
from validation.model.built import NodeBuilt


def gpu_copies(measurement: Measurement) -> Result:
    """Copies of a node's GPUs, emulated ones of the lab by what is asked of them."""
    params = measurement.params
    emulated = params["largest_bytes"] == EMULATED["largest_bytes"]
    found = copies.report(params, int(str(params["gpus"])) or 2, emulated=emulated)
    samples, facts = parse("gpu-copies", copies.document(found), params)  # type: ignore[arg-type]
    return result(measurement, samples, facts=facts)


def as_built(measurement: Measurement) -> Result:
    """Every check passed, and nothing would change."""
    node = measurement.nodes[0]
    if measurement.kind == "as-built":
        names = tuple(measurement.params["checks"])  # type: ignore[arg-type]
        found = [CheckOutcome(name=name, outcome="passed") for name in names]
        counted = [("checks_passed", len(names)), ("checks_not_passed", 0)]
        facts: Any = AsBuiltFacts(node=node, checks=tuple(found), checks_sha256="0" * 64)
    else:
        nodes = tuple(NodeBuilt(node=name, outcome="ok", ok=120, changed=0) for name in measurement.nodes)
        counted, facts = [("changed_tasks", 0)], ConvergedFacts(nodes=nodes, version="toolkit 0.1.0")
    return result(measurement, [Sample(metric=m, value=v, unit="count") for m, v in counted], facts=facts)
