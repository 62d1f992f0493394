"""One number of GPUs, ports and nodes in all documents of a run; what is emulated is called so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.counted import disagreements
from tests.support.site import NAMES, lab, plan_of, results_of, write_run
from validation.report.documents import RunDocuments, read_run
from validation.report.fabric_drawing import _node
from validation.report.system import system

SUITES = ("preflight", "transport")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """A lab whose GPU servers have four emulated GPUs each."""
    site = lab(NAMES)
    nodes = tuple(n.model_copy(update={"emulated_gpus": 4}) if "gpu_servers" in n.groups else n for n in site.nodes)
    topology = site.model_copy(update={"nodes": nodes})
    plan = plan_of(topology, SUITES)
    return read_run(write_run(tmp_path_factory.mktemp("lab") / "run", topology, plan, results_of(plan)))


def test_a_lab_counts_its_emulated_gpus_everywhere_and_calls_them_so(emulated: RunDocuments) -> None:
    assert disagreements(emulated) == []
    rows = [row for row in system(emulated).materials if row.part == "GPUs"]
    assert {(row.declared, row.found) for row in rows} == {("0", "0"), ("0, and 4 emulated", "0, and 4 emulated")}
    (fact,) = [row for row in system(emulated).facts if row.name == "GPUs"]
    assert {value.value for value in fact.values} == {"0", "0, and 4 emulated"}
    drawn = "".join(_node(emulated.topology.node("gpu1"), 0, 0, 400, 60, False))
    assert "4 emulated GPUs" in drawn


def test_a_run_without_gpus_agrees_with_itself(tmp_path: Path) -> None:
    topology = lab(NAMES)
    plan = plan_of(topology, SUITES)
    assert disagreements(read_run(write_run(tmp_path / "run", topology, plan, results_of(plan)))) == []


def test_numbers_that_disagree_are_found(emulated: RunDocuments) -> None:
    """Or the other tests would pass whatever a run says."""
    more = tuple(n.model_copy(update={"emulated_gpus": 5}) if n.name == "gpu1" else n for n in emulated.topology.nodes)
    other = replace(emulated, topology=emulated.topology.model_copy(update={"nodes": more}))
    assert any("asks for 4 GPUs, 5 are to be there" in words for words in disagreements(other))
    fewer = emulated.topology.nodes[:-1]
    short = replace(emulated, topology=emulated.topology.model_copy(update={"nodes": fewer}))
    assert any("that the topology has not" in words for words in disagreements(short))
    bare = tuple(n.model_copy(update={"ports": ()}) for n in emulated.topology.nodes)
    assert any("1 port declared, 0 listed" in words for words in disagreements(
        replace(emulated, topology=emulated.topology.model_copy(update={"nodes": bare}))
    ))  # fmt: skip
