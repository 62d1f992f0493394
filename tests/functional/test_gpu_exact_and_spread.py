"""Exact products of matrices: one digest is right, on torch and by whole numbers. The spread of a fleet of GPUs."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_gpu_compute import judged, named, planned
from tests.support.compute_case import Spoil, slower
from tests.support.site import criterion, hardware, lab, result, verdict_of
from validation.kinds import parse
from validation.probes import exact_products as exact

pytestmark = pytest.mark.engines

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/gpu-compute.json").read_text())
WRONG = "0" * 64


def test_every_partial_sum_is_exact_whatever_its_order() -> None:
    for precision, shape in exact.SHAPES.items():
        bits = 13 if precision == "fp8" else 24
        assert shape.limit**2 * shape.depth < 2**bits
        # the operands have no more bits than the type has
        assert shape.limit <= {"fp32": 2**24, "tf32": 2**11, "bf16": 2**8, "fp16": 2**11, "fp8": 2**4}[precision]
        left, right = exact.operands(precision)
        assert (len(left), len(left[0]), len(right), len(right[0])) == (61, shape.depth, shape.depth, 67)
        values = {number for row in left for number in row}
        assert values == set(range(-shape.limit, shape.limit + 1))
        largest = max(abs(number) for row in exact.sums(precision) for number in row)
        assert 0 < largest < (65504 if shape.out == "fp16" else 2**24)  # as far as the type of the result goes


@pytest.mark.parametrize(
    ("number", "bits"), [(257, 0x4380), (258, 0x4381), (259, 0x4382), (-257, 0xC380), (1, 0x3F80), (0, 0)]
)
def test_bf16_rounds_to_the_nearest_and_ties_to_even(number: int, bits: int) -> None:
    assert exact.written(number, "bf16") == struct.pack("<H", bits)


def test_the_reference_is_the_product_itself_tile_by_tile() -> None:
    size = 130
    left, right = exact.operands("fp16")
    total = hashlib.sha256()
    for i in range(size):
        for j in range(size):
            number = sum(left[i % 61][k] * right[k][j % 67] for k in range(4096)) if (i < 3 and j % 43 == 0) else None
            known = exact.sums("fp16")[i % 61][j % 67]
            assert number in (None, known)
            total.update(struct.pack("<e", known))
    assert total.hexdigest() == exact.reference("fp16", size)


def test_torch_on_processors_came_to_the_digest_of_whole_numbers() -> None:
    """Recorded with another program (torch), other instructions (AMX for bf16) and another order of the sums."""
    (device,) = json.loads(RECORDED["document"]["stdout"])["devices"]
    assert {one["precision"] for one in device["exact"]} == {"fp32", "bf16"}
    for one in device["exact"]:
        assert one["digests"] == {exact.reference(one["precision"], one["size"]): 5}


def test_one_wrong_digest_fails_and_names_the_gpu_the_precision_and_when() -> None:
    fine = judged({}, "co.exactmat")
    assert (fine.verdict, fine.coverage) == ("pass", "4/4 devices")

    def err(device: dict[str, Any]) -> None:
        digests = device["exact"][-1]["digests"]
        (right,) = digests
        digests.update({right: 1, WRONG: 1})

    found = judged({2: err}, "co.exactmat")
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert [j.verdict for j in found.judgements] == ["pass", "pass", "fail", "pass"]
    assert "GPU 2" in found.reason
    assert "serial 1652" in found.reason
    assert "1 of 8 products came out wrong: bf16 hot 1 times" in found.reason


def test_all_gpus_wrong_alike_are_all_wrong() -> None:
    def err(device: dict[str, Any]) -> None:
        for one in device["exact"]:
            one["digests"] = {WRONG: 2}

    found = judged({n: err for n in range(4)}, "co.exactmat")
    assert [j.verdict for j in found.judgements] == ["fail"] * 4


def not_run(why: str) -> Spoil:
    def change(device: dict[str, Any]) -> None:
        for one in device["exact"]:
            if one["precision"] == "bf16":
                del one["digests"]
                one["why"] = why

    return change


def test_a_product_that_did_not_run_is_no_pass_but_what_none_of_the_model_can() -> None:
    one = judged({1: not_run("CUDA out of memory")}, "co.exactmat")
    assert one.judgements[1].verdict == "not-measured"
    every = judged({n: not_run("no kernel") for n in range(4)}, "co.exactmat")
    assert every.verdict == "pass"
    assert "not tried in bf16" in every.judgements[0].reason
    full = judged({n: not_run("CUDA out of memory") for n in range(4)}, "co.exactmat")
    assert full.verdict == "not-measured"


@pytest.mark.parametrize("topology", [lab(("gpu1",)), hardware(("gpu1",))])
def test_processors_are_judged_exactly_wherever_they_are(topology: Any) -> None:
    plan = planned(topology)
    for digest, verdict in ((None, "pass"), (WRONG, "fail")):
        report = json.loads(RECORDED["document"]["stdout"])
        if digest:
            report["devices"][0]["exact"][0]["digests"] = {digest: 5}
        doc = {**RECORDED["document"], "stdout": json.dumps(report)}
        samples, facts = parse("gpu-compute", doc, RECORDED["params"])  # type: ignore[arg-type]
        found = verdict_of(topology, plan, [result(plan.measurements[0], samples, facts=facts)])
        assert criterion(found, "co.exactmat").verdict == verdict
        assert "processors" in criterion(found, "co.exactmat").reason
        assert criterion(found, "co.spread").verdict != "pass"


@pytest.mark.parametrize(
    ("by", "verdict", "code"),
    [
        (0.03, "pass", "within-bounds"),
        (0.04, "pass", "remarked"),
        (0.065, "pass", "remarked"),
        (0.08, "fail", "below-floor"),
    ],
)
def test_a_gpu_left_behind_is_remarked_upon_and_then_fails(by: float, verdict: str, code: str) -> None:
    found = judged({1: slower(by)}, "co.spread", gpus=2, nodes=2)
    assert (found.verdict, found.reason_code) == (verdict, code)
    assert [j.verdict for j in found.judgements].count("fail") == (verdict == "fail")
    if code != "within-bounds":
        assert "gpu1, GPU 1" in found.reason
        assert "serial 1651" in found.reason
        assert f"{-by:+.1%} of the median" in found.reason


def test_one_bad_gpu_moves_no_median_and_three_are_no_fleet() -> None:
    found = judged({0: slower(0.9)}, "co.spread", gpus=4)
    assert [j.verdict for j in found.judgements] == ["fail", "pass", "pass", "pass"]
    assert {j.reason_code for j in found.judgements[1:]} == {"within-bounds"}
    fast = judged({0: slower(-0.5)}, "co.spread", gpus=4)
    assert {j.reason_code for j in fast.judgements} == {"within-bounds"}
    three = judged({0: slower(0.9)}, "co.spread", gpus=3)
    assert (three.verdict, three.reason_code) == ("not-measured", "no-bound")
    other = judged({0: named("NVIDIA Imaginary 200")}, "co.spread", gpus=4)
    assert {j.verdict for j in other.judgements} == {"not-measured"}
