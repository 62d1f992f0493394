"""How many of its things a criterion says that it judged: none of which there is nothing to judge, and no more than
there are.
"""

from __future__ import annotations

import re

from tests.support.site import BOM, hardware, healthy, plan_of, verdict_of

COUNTS = {"head": 0, "client1": 0, "gpu1": 1, "gpu2": 2, "gpu3": 4}


def criteria():
    """Of a healthy site whose GPU servers have one, two and four GPUs."""
    site = hardware(tuple(COUNTS))
    nodes = tuple(
        n.model_copy(update={"bom": BOM.model_copy(update={"gpu_count": COUNTS[n.name]})}) for n in site.nodes
    )
    site = site.model_copy(update={"nodes": nodes})
    plan = plan_of(site, ("transport",))
    results = [healthy(m, link_gbps=9.95) for m in plan.measurements]
    return {c.id: c for c in verdict_of(site, plan, results).criteria}


def test_nothing_is_missing_where_there_is_nothing_to_judge() -> None:
    """A server with one GPU has no pair of GPUs."""
    found = criteria()["tr.p2p"]
    beside = [j for j in found.judgements if j.verdict == "not-applicable"]
    assert [j.subject.partition(",")[0] for j in beside] == ["gpu1"]
    assert (found.verdict, found.coverage) == ("pass", "14/14 pairs")
    assert found.reason == "all 14 pairs pass, and of 1 more nothing is judged"


def test_no_criterion_counts_more_gpus_than_there_are() -> None:
    for id_, found in criteria().items():
        said = re.match(r"(?:\d+/)?(\d+) GPUs$", found.coverage)
        assert said is None or int(said[1]) <= sum(COUNTS.values()), (id_, found.coverage)
