"""What the pool's monitoring has recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from validation.kinds.parsing import Facts, Parsed, ParseError, flag, number, real
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

ROUNDED = 1e-6
"""How far a share may lie beyond 0 or 1: it is a quotient of two sums of floats. Project default."""


def utilisation(doc: ProbeDoc, _params: Mapping[str, Scalar]) -> Parsed:
    """Readings (0 to 1) of what was leased and of what was used. GPUs that give no utilisation have none here.

    A reading that is NaN is left out, and fact `undefined` counts them: the pool's rules divide two sums, and while no
    server reports that is 0/0. Without each reading in its place `step_s` says nothing, and is left out as well.
    """
    facts = doc["facts"]
    samples = []
    undefined: list[str] = []
    gap = False
    for name in ("leased_ratio", "gpu_utilization_ratio", "gpu_memory_ratio"):
        values = facts[name]
        known = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        if len(known) < len(values):
            undefined.append(f"{name}: {len(values) - len(known)} of {len(values)} readings")
            gap |= any(isinstance(value, float) and math.isnan(value) for value in values[-len(known) :])
        for value in known:
            share = math.nan if isinstance(value, str) else real(value, f"utilisation: {name}")
            if not -ROUNDED <= share <= 1 + ROUNDED:
                raise ParseError(f"utilisation: {name}: {value!r} is not a share (0 to 1)")
            samples.append(Sample(metric=name, value=min(max(share, 0.0), 1.0), unit="ratio"))
    if not any(sample.metric == "leased_ratio" for sample in samples):
        raise ParseError("utilisation: nothing recorded yet; monitoring has just started, or Slurm does not answer")
    recorded = number(facts["leased_ratio_from_s"] or 1, "utilisation: recorded seconds")
    kept: Facts = {
        "emulated": flag(facts["emulated"], "utilisation: emulated"),
        "recorded_s": recorded,
        "days": facts["days"],
    }
    kept["undefined"] = undefined
    if "step_s" in facts and not gap:  # how far readings are apart
        kept["step_s"] = number(facts["step_s"], "utilisation: seconds between readings")
    return samples, kept
