"""Which jobs a training plans: by default, and of what was asked for; what cannot be is said before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.site import ALL, CRITERIA, hardware, lab, plan_of
from toolkit.cli import cli
from validation.model import Bom, Measurement, Plan
from validation.plan.suites import PlanError, make_plan
from validation.plan.training_choice import Config, least_bytes
from validation.probes.train_networks import NETWORKS
from validation.rules.fabric import load_fabric

V100 = Bom(gpu_model="Tesla V100-SXM2-16GB", gpu_count=4)


def site(**changes: Any) -> Any:
    return hardware(("head", "gpu1", "gpu2"), slots=4, bom=V100, **changes)


def planned(options: dict[str, Any], topology: Any = None) -> Plan:
    return make_plan("r", topology or site(), load_fabric("tcp10"), CRITERIA, ("training",), options)


def jobs(plan: Plan) -> list[Measurement]:
    """Without those of the other servers, which are there to compare with."""
    return [m for m in plan.measurements if m.kind == "training-short" and m.params["hosts"] != ("gpu2",)]


def test_servers_with_gpus_train_resnet_50_as_the_whitepaper_did() -> None:
    found = jobs(plan_of(site(), ALL))
    assert [m.id for m in found] == [f"training-short.resnet50-b128-fp16.{label}" for label in ("1", "intra", "inter")]
    assert [m.params["ranks"] for m in found] == [1, 4, 8]
    assert {m.params["device"] for m in found} == {"gpu"}


def test_servers_without_train_the_small_network_on_processors() -> None:
    for topology, device in ((lab(), "cpu"), (hardware(), "any")):
        found = jobs(plan_of(topology, ALL))
        assert [m.id for m in found] == [f"training-short.{label}" for label in ("1", "intra", "inter")]
        assert {(m.params["model"], m.params["precision"], m.params["device"]) for m in found} == {
            ("small", "fp32", device)
        }


def test_every_network_batch_and_number_of_gpus_that_is_asked_for() -> None:
    asked = {"models": "resnet50,vgg16", "batches": "64,128", "gpus": "1,2,4,8", "precisions": "bf16"}
    plan = planned(asked)
    assert len(jobs(plan)) == 2 * 2 * 4
    of_vgg = [m for m in jobs(plan) if m.params["model"] == "vgg16" and m.params["batch"] == 64]
    assert [(m.params["label"], m.params["ranks"], m.params["hosts"]) for m in of_vgg] == [
        ("1", 1, ("gpu1",)), ("2", 2, ("gpu1",)), ("intra", 4, ("gpu1",)), ("inter", 8, ("gpu1", "gpu2")),
    ]  # fmt: skip
    assert "tn.intra" in of_vgg[1].criteria
    assert "tn.inter" in of_vgg[3].criteria
    assert len({m.id for m in plan.measurements}) == len(plan.measurements)
    short = [m for m in plan.measurements if m.kind == "training-short"]
    others = [m.id for m in short if m.params["hosts"] == ("gpu2",)]
    assert len(others) == 4, "each network and batch on the other server, too"
    # one rank is always measured, for every efficiency is over it
    assert [m.params["ranks"] for m in jobs(planned({"gpus": "8"}))] == [1, 8]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"models": "resnet5"}, "unknown network 'resnet5'; did you mean resnet50"),
        ({"models": "Inception-v4"}, "did you mean inception4"),
        ({"models": "bert,zzz"}, "unknown network 'bert'; there are: alexnet"),
        ({"models": "vgg16,,vgg19"}, "one comma between"),
        ({"models": " "}, "one comma between"),
        ({"precisions": "fp17"}, "unknown number format 'fp17'; did you mean fp1"),
        ({"batches": "0"}, "--batch 0: no whole number"),
        ({"batches": "1e3"}, "--batch 1e3: no whole number"),
        ({"batches": "\u0662"}, "no whole number"),
        ({"gpus": "16"}, "--gpus 16: there are 8, 2 servers with 4 each"),
        ({"gpus": "6"}, "--gpus 6: several servers are taken whole: 4, 8, or less than 4"),
        ({"models": "vgg16", "batches": "2048"}, "takes at least 5. GB, and a Tesla V100-SXM2-16GB has 17 GB"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        planned(asked)


def test_a_batch_that_fits_on_no_gpu_is_refused_where_theirs_is_not_known() -> None:
    unknown = hardware(("gpu1",), bom=Bom(gpu_count=4, gpu_model="New GPU"), slots=4)
    planned({"models": "vgg16", "batches": "2048"}, unknown)
    with pytest.raises(PlanError, match="no GPU has that"):
        planned({"models": "vgg16", "batches": "20480"}, unknown)


def test_processors_train_in_no_format_that_only_gpus_have() -> None:
    with pytest.raises(PlanError, match="--dtype fp16: processors do not train in it"):
        planned({"precisions": "fp16"}, lab())
    assert jobs(planned({"precisions": "bf16", "models": "small-resnet"}, lab()))


def test_the_choice_is_of_suite_training() -> None:
    with pytest.raises(PlanError, match="add --suite training"):
        make_plan("r", site(), load_fabric("tcp10"), CRITERIA, ("transport",), {"models": "vgg16"})


def test_memory_is_never_estimated_above_what_training_takes() -> None:
    # ResNet-50 at batch 128 in fp16 takes about 9 GB of a V100, VGG-16 at 64 in fp32 about 9 (published runs)
    assert 2e9 < least_bytes(Config("resnet50", 128, "fp16")) < 9e9
    assert 2e9 < least_bytes(Config("vgg16", 64, "fp32")) < 9e9
    assert all(least_bytes(Config(name, 1, "fp32")) < 3e9 for name in NETWORKS)


def test_the_command_line_suggests_the_nearest_network(tmp_path: Any) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all:\n  children:\n    gpu_servers:\n      hosts:\n        gpu1:\n          ansible_host: 10.0.0.1\n"
        "          fabric_ports: [{interface: fab0, address: 10.1.0.1/24}]\n"
    )
    asked = ["validate", "--fabric", "tcp10", "-i", str(inventory), "--suite", "training", "--models", "vg16"]
    found = CliRunner().invoke(cli, [*asked, "--dry-run"])
    assert found.exit_code != 0
    assert "did you mean vgg16" in found.output + str(found.exception)


@pytest.mark.parametrize("topology", [lab(), hardware(("gpu1",), slots=1), site()], ids=["lab", "one", "gpus"])
def test_what_is_not_planned_of_a_training_says_its_own_reason(topology: Any) -> None:
    plan = planned({}, topology)
    served = {id_ for m in plan.measurements for id_ in m.criteria}
    fabric = load_fabric("tcp10")
    for known in (c for c in CRITERIA if c.suite == "training" and c.id.startswith("tn.") and c.id not in served):
        if known.applies is None or fabric.transport in known.applies.transports:
            said = [left.why for left in plan.left_out if known.id in left.criteria]
            assert any(f"({known.id})" in why or known.id in why for why in said), (known.id, said)
