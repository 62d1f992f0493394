"""Judging exact products of matrices: on every device each has the digest that whole-number arithmetic gives."""

from __future__ import annotations

from collections import Counter

from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement
from validation.judging.methods import method
from validation.judging.values import bound_of
from validation.measures.compute.rates import ComputeDevice
from validation.measures.compute.rates_judge import devices_of
from validation.model import Judgement, ReasonCode, VerdictName
from validation.rules.criterion import Criterion


@method("exact-products", "digests of exact matrix products of each device", counts="devices")
def judge_exact_products(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each device. Processors are judged too, of virtual nodes as well: exact is exact."""
    bound = bound_of(case, criterion)
    judged, found = devices_of(case, criterion, bound)
    for one in found:
        code, verdict, why = _said(one.device, [other.device for other in found if other is not one])
        wrong = float(len(one.device.wrong))
        summary = Summary(median=wrong, mad=0.0, low=wrong, high=wrong, count=one.device.products)
        judged.append(
            judgement(criterion, one.subject, verdict, code, f"{one.said}: {why}", one.evidence,
                      summary=summary if one.device.products else None, bound=bound)
        )  # fmt: skip
    return judged


def _said(device: ComputeDevice, others: list[ComputeDevice]) -> tuple[ReasonCode, VerdictName, str]:
    if device.wrong:
        which = ", ".join(f"{what} {times} times" for what, times in Counter(device.wrong).items())
        return "not-equal", "fail", f"{len(device.wrong)} of {device.products} products came out wrong: {which}"
    if device.fault:
        return "tool-failed", "not-measured", device.fault
    # What no device of the model can do is a matter of torch and the model, not of this one
    same = [other for other in others if other.name == device.name]
    alone = {p: why for p, why in device.unproved.items() if any(p not in other.unproved for other in same)}
    lost = {p: why for p, why in device.unproved.items() if p in device.lacked_memory} | alone
    if lost or not device.products:
        why = "; ".join(f"{p}: {words}" for p, words in (lost or device.unproved).items())
        return "missing-metric", "not-measured", f"products did not run: {why or 'none was asked for'}"
    not_proved = f"; not tried in {', '.join(device.unproved)}" if device.unproved else ""
    return "within-bounds", "pass", f"all {device.products} products have the one right digest{not_proved}"
