"""Pictures of a training, read from a storage as the training's loader reads them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import criterion, plan_of, result, verdict_of
from tests.support.storage_documents import alone, healthy_storage, shown_pictures, site
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.storage.pictures import rows
from validation.model import Judgement, Storage
from validation.probes import storage_pictures

pytestmark = pytest.mark.computes


def judged(storage: Storage, pictures: dict[str, Any]) -> Judgement:
    topology = site(storage, names=("gpu1",))
    plan = plan_of(topology, ("storage",))
    results = []
    for m in plan.measurements:
        samples, facts = parse(m.kind, alone(m, pictures=pictures), m.params)
        results.append(result(m, samples, facts=facts) if m.kind == "storage-alone" else healthy_storage(m))
    return criterion(verdict_of(topology, plan, results), "st.loader").judgements[0]


SCRATCH = Storage(name="scratch", path="/scratch")


def test_pictures_are_recorded_and_against_an_order_judged() -> None:
    one = judged(SCRATCH, shown_pictures())
    assert (one.verdict, one.reason_code) == ("not-applicable", "reported")
    assert one.text == "60 pictures a second read and decoded by 2 processes, 600 read alone (JPEG)"
    ordered = SCRATCH.model_copy(update={"images_per_s": 50.0})
    assert judged(ordered, shown_pictures()).verdict == "pass"
    slow = judged(SCRATCH.model_copy(update={"images_per_s": 500.0}), shown_pictures())
    assert (slow.verdict, slow.reason_code) == ("fail", "below-floor")


def test_what_came_from_a_cache_is_no_figure_of_a_storage() -> None:
    one = judged(SCRATCH.model_copy(update={"images_per_s": 1.0}), shown_pictures(cached=0.8))
    assert (one.verdict, "20% of the bytes came from the storage" in one.reason) == ("not-measured", True)


def test_why_there_is_no_figure_is_said() -> None:
    one = judged(SCRATCH, {"error": "/x/000001.jpg cannot be read: OSError: stale"})
    assert (one.verdict, one.reason) == ("not-measured", "gpu1: /x/000001.jpg cannot be read: OSError: stale")
    assert judged(SCRATCH, {}).reason == "gpu1: pictures were not measured"


@pytest.mark.parametrize(
    "change",
    [
        {"processes": 3},
        {"read": {"workers": []}},
        {"read": {"workers": [{"count": 0, "bytes": 0, "seconds": 1.0, "from_storage": 0}] * 2}},
        {"read": {"workers": [{"count": 9, "bytes": 9, "seconds": 60.0, "from_storage": 0}] * 2}},
        {"read": {"workers": [{"count": 9, "bytes": 9, "seconds": -1, "from_storage": 0}] * 2}},
    ],
)
def test_a_report_that_contradicts_itself_is_no_result(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        rows({**shown_pictures(), **change})


def test_real_pictures_are_written_read_and_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_pictures, "PASS_S", 0.2)
    monkeypatch.setattr(storage_pictures, "WORKERS", 2)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        found = storage_pictures.measure(Path(folder))
        files = list(Path(folder).glob("pictures/train/class*/*"))
    assert found["error"] == ""
    assert len(files) == found["count"] == 256
    made = {one["phase"]: one for one in rows(found)}
    assert made["read"]["per_s"] > 0
    assert made["decoded"]["count"] > 0
