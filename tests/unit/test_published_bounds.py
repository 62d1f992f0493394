"""Bounds by platform and fabric: the machines of the documents pass by their own figures."""

from __future__ import annotations

import pytest

from tests.support.site import ALL, CRITERIA, around, criterion, hardware, plan_of, real_results, result, trained
from tests.support.site import verdict_of as judged_by
from validation.model import Bom, CriterionVerdict, Measurement, Result
from validation.rules.bounds import bounds_of
from validation.rules.criterion import Limit
from validation.rules.fabric import fabric_names, load_fabric
from validation.rules.reference import packaged

K = Bom(model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", cpu_model="Xeon Silver 4116", gpu_root_ports=1)
P100 = Bom(model="PowerEdge C4130", gpu_model="Tesla P100-PCIE-16GB")
PUBLISHED = {"k": {1: 626, 4: 2425, 8: 4500}, "p100": {1: 283, 4: 1099, 8: 2075}}


def scaling(rates: dict[int, int], bom: Bom | None) -> CriterionVerdict:
    """tn.inter on two nodes of 4 ranks that train at these images/s by number of ranks, steps varying by 1 %."""
    site = hardware(["gpu1", "gpu2"], slots=4, **({"bom": bom} if bom else {}))
    plan = plan_of(site, ALL)

    def train(m: Measurement) -> Result | None:
        if m.kind != "training-short":
            return None
        rate = rates[int(str(m.params["ranks"]))]
        return result(m, around(rate, 100, "images/s", "images_per_s", 0.01), facts=trained(m))

    return criterion(judged_by(site, plan, real_results(plan, spoil=train)), "tn.inter")


@pytest.mark.parametrize(("rates", "bom"), [("k", K), ("k", None), ("p100", P100), ("p100", None)])
def test_the_published_machines_pass_by_their_own_figures(rates: str, bom: Bom | None) -> None:
    found = scaling(PUBLISHED[rates], bom)
    assert (found.verdict, found.reason_code) == ("pass", "within-bounds"), found.reason


def test_a_declared_machine_is_held_to_what_was_published_of_it() -> None:
    slower = {**PUBLISHED["p100"], 8: 2030}  # 0.8966: enough for a C4140-K
    found = scaling(slower, P100)
    assert (found.verdict, found.reason_code) == ("fail", "below-floor")
    bound = found.judgements[0].bound
    assert bound is not None
    assert bound.floor == packaged().claim("whitepaper.inter-p100").limit == 0.9115
    assert "the inventory declares C4130, P100-16GB PCIe" in bound.derivation[0]
    assert scaling(slower, None).verdict == "pass"
    assert scaling(slower, K).verdict == "pass"
    assert scaling({**PUBLISHED["k"], 8: 4400}, None).verdict == "fail"


def bound(id_: str) -> Limit:
    return next(c.bound for c in CRITERIA if c.id == id_)


def test_layouts_are_held_to_the_ratio_of_their_fabric() -> None:
    assert bound("rm.layout").said(load_fabric("tcp10")).startswith("L4, L2R2, R4 >= 0.8 x N4")
    assert bound("rm.layout").said(load_fabric("roce100")).startswith("L4, L2R2, R4 >= 0.95 x N4")


@pytest.mark.parametrize("name", fabric_names())
def test_every_fabric_has_a_ratio_of_remote_to_native_speed(name: str) -> None:
    fabric = load_fabric(name)
    ratio = bounds_of(fabric)["remote_ratio"]
    slow = fabric.transport == "tcp" or (fabric.transport == "roce" and fabric.line_rate_gbps < 40)
    assert ratio.floor == (0.9 if name == "pvrdma100" else 0.8 if slow else 0.95)
    stated = fabric.remote_ratio
    assert stated is not None
    published = name in ("tcp10", "vmxnet3-10", "roce100")
    assert stated.provisional != published
    assert stated.source.startswith("derived") == (not published and name != "pvrdma100")


def test_the_long_test_is_judged_by_model_on_the_training_data() -> None:
    said = bound("tn.long").words
    assert "on the training data top-5 >= 91.5 % for ResNet-50 and Inception-v4 (92-96 % printed), VGG-19" in said


def test_copies_between_gpus_over_pcie_are_held_against_what_was_published() -> None:
    assert bound("tr.p2p").value == 5
    assert "5-6 GB/s over PCIe" in bound("tr.p2p").words
