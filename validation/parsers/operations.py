"""What the pool's monitoring has recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from validation.model import Sample, Scalar
from validation.parsers.common import Facts, Parsed, ParseError, number
from validation.probes import ProbeDoc


def utilisation(doc: ProbeDoc, _params: Mapping[str, Scalar]) -> Parsed:
    """Readings (0 to 1) of what was leased and of what was used. GPUs that give no utilisation have none here."""
    facts = doc["facts"]
    samples = []
    for name in ("leased_ratio", "gpu_utilization_ratio", "gpu_memory_ratio"):
        for value in facts[name]:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ParseError(f"utilisation: {name}: {value!r} is no number")
            if not 0 <= value <= 1:
                raise ParseError(f"utilisation: {name}: {value:g} is no share")
            samples.append(Sample(metric=name, value=float(value), unit="ratio"))
    if not facts["leased_ratio"]:
        raise ParseError("utilisation: nothing has been recorded yet; monitoring has just begun, or Slurm is silent")
    recorded = number(facts["leased_ratio_from_s"] or 1, "utilisation: recorded seconds")
    kept: Facts = {"emulated": facts["emulated"], "recorded_s": recorded, "days": facts["days"]}
    if "step_s" in facts:  # how far readings are apart
        kept["step_s"] = number(facts["step_s"], "utilisation: seconds between readings")
    return samples, kept
