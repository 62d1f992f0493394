"""Models that share the set of their fields' names are the same models, and take less."""

from __future__ import annotations

import sys

from tests.support.report_large import make_large_run
from validation.model import Endpoint, Measurement
from validation.model.base import lighten
from validation.run.read import read


def test_models_that_share_their_set_say_and_copy_the_same():
    whole = {"id": "a", "suite": "s", "kind": "k", "nodes": (), "endpoints": (), "params": {}, "criteria": ()}
    one, other = (Measurement(**whole, estimated_s=at, timeout_s=2) for at in (1, 2))
    part = Endpoint(node="a") if not Endpoint.model_fields["port"].is_required() else Endpoint(node="a", port="")
    before = [(m.model_dump_json(), m.model_dump(exclude_unset=True), hash(str(m))) for m in (one, other)]
    given = set(part.model_fields_set)
    lighten((one, other, part))
    assert [(m.model_dump_json(), m.model_dump(exclude_unset=True), hash(str(m))) for m in (one, other)] == before
    assert one.model_fields_set is other.model_fields_set
    assert part.model_fields_set == given
    copy = one.model_copy(update={"suite": "t"})
    assert copy.model_fields_set == one.model_fields_set
    assert copy != one
    assert copy.model_copy(update={"suite": "s"}) == one


def test_a_runs_plan_results_and_verdict_share_theirs(tmp_path):
    """Of 1,000 nodes with 200 metrics these sets took 600 MB."""
    run = read(make_large_run(tmp_path / "run", 3, 4))
    results, plan, verdict = run.results, run.plan, run.verdict
    judged = [j for c in verdict.criteria for j in c.judgements]
    for things in (
        results, [r.provenance for r in results], [s for r in results for s in r.samples],
        [log for r in results for log in r.provenance.raw], plan.measurements,
        [end for m in plan.measurements for end in m.endpoints], judged, [j.about for j in judged],
    ):  # fmt: skip
        assert len(things) > 5
        sets = {id(thing.model_fields_set): sys.getsizeof(thing.model_fields_set) for thing in things}
        assert len(sets) <= 2, sets
