"""Facts of a node that several measurements read agree, or a note of the report says that they do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import gpu_health_case
from tests.support.counted import disagreements
from tests.support.report_fixture import RUNS, make_run
from tests.support.site import NAMES, lab, plan_of, result, results_of, write_run
from tests.support.told import contradicted, told
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.gpu.health import GpuHealthFacts
from validation.model import Measurement, Result
from validation.model.node_facts import NodeFacts
from validation.report.agreement import contradictions, readings
from validation.report.documents import RunDocuments, read_run
from validation.report.evidence import notes
from validation.report.summary import verdict_of
from validation.report.system import system


def _measurement(kind: str, *nodes: str) -> Measurement:
    return Measurement(
        id=f"{kind}.{'.'.join(nodes)}",
        suite="preflight",
        kind=kind,
        nodes=nodes,
        criteria=(),
        estimated_s=1,
        timeout_s=1,
    )


def with_more(documents: RunDocuments, *more: tuple[Measurement, object]) -> RunDocuments:
    """The documents with further results."""
    plan = documents.plan
    results = tuple(result(m).model_copy(update={"facts": facts, "status": "ok"}) for m, facts in more)
    plan = plan.model_copy(update={"measurements": (*plan.measurements, *(m for m, _ in more))})
    return replace(documents, plan=plan, results=(*documents.results, *results))


def health(**changes: object) -> GpuHealthFacts:
    return GpuHealthFacts.model_validate({**gpu_health_case.facts(4), **changes})


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """A lab of four nodes whose GPU servers have four emulated GPUs each, which show themselves."""
    site = lab(NAMES)
    nodes = tuple(n.model_copy(update={"emulated_gpus": 4}) if "gpu_servers" in n.groups else n for n in site.nodes)
    topology = site.model_copy(update={"nodes": nodes})
    plan = plan_of(topology, ("preflight", "transport"))
    found = read_run(write_run(tmp_path_factory.mktemp("lab") / "run", topology, plan, results_of(plan)))
    model = {"model": "Emulated V100-SXM2-32GB", "emulated": True}
    shown = GpuHealthFacts.model_validate({**gpu_health_case.facts(4, **model), "driver": "580.173.02-emulated"})
    servers = [n.name for n in topology.nodes if n.emulated_gpus]
    return with_more(found, *((_measurement("gpu-health", name), shown) for name in servers))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return read_run(make_run(tmp_path_factory.mktemp("real") / "run", **RUNS["real"]))


def test_emulated_gpus_stand_beside_what_the_node_has_and_are_called_so(rehearsal: RunDocuments) -> None:
    assert not [line for line in contradictions(rehearsal) if "its GPU" in line or "of GPUs" in line]
    rows = {row.name: {value.value for value in row.values} for row in system(rehearsal).facts}
    assert "none (emulated GPUs: Emulated V100-SXM2-32GB)" in rows["GPU model"]
    assert any("(emulated GPUs: 580.173.02-emulated)" in text for text in rows["NVIDIA driver"])
    assert "none" in rows["GPU model"], "a node without any has none"


def test_the_speed_of_a_virtual_port_is_said_to_be_its_drivers(rehearsal: RunDocuments) -> None:
    def at_10(one: Result) -> Result:
        facts = one.facts
        if not isinstance(facts, NodeFacts):
            return one
        ports = tuple(port.model_copy(update={"speed_mbit": 10_000}) for port in facts.fabric_ports)
        return one.model_copy(update={"facts": facts.model_copy(update={"fabric_ports": ports})})

    found = replace(rehearsal, results=tuple(map(at_10, rehearsal.results)))
    (row,) = [row for row in system(found).facts if row.name == "Fabric ports"]
    for value in row.values:
        assert "10000 Mbit/s (a constant of the virtual port's driver; the link is shaped to 1 Gbit/s)" in value.value


def test_memory_is_written_the_same_in_both_tables(real: RunDocuments) -> None:
    found = system(real)
    (fact,) = [row for row in found.facts if row.name == "Memory, GiB"] or [None]
    parts = {row.found for row in found.materials if row.part == "Memory, GiB"} - {None}
    if fact is not None:
        assert parts <= {value.value for value in fact.values}
    assert not any(text.endswith(".0") for text in parts if text)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            health,
            lambda: health(driver="440.1.1"),
            "NVIDIA driver: .*440.1.1 ",
        ),
        (health, lambda: health(gpus=gpu_health_case.facts(3)["gpus"]), "number of GPUs: 4 (.*); 3 "),
        (
            health,
            lambda: GpuHealthFacts.model_validate(gpu_health_case.facts(4, model="Tesla P40")),
            "GPU model: .*P40",
        ),
        (
            health,
            lambda: GpuHealthFacts.model_validate(gpu_health_case.facts(4, serial="7")),
            "serial number of the GPU",
        ),
    ],
)
def test_what_does_not_agree_is_a_note_of_the_report(
    real: RunDocuments, first: Callable[[], GpuHealthFacts], second: Callable[[], GpuHealthFacts], words: str
) -> None:
    wanted = re.compile(f"^gpu1: measurements do not agree on its {words}")
    one, other = _measurement("gpu-health", "gpu1"), _measurement("gpu-load", "gpu1")
    assert not list(filter(wanted.search, contradictions(with_more(real, (one, first()), (other, first())))))
    found = with_more(real, (one, first()), (other, second()))
    lines = contradictions(found)
    assert list(filter(wanted.search, lines)), lines
    assert set(lines) <= set(notes(found, verdict_of(found)))


def test_a_version_is_the_same_however_it_is_written(real: RunDocuments) -> None:
    known = readings(real)["gpu1"]["PyTorch"]
    for torch, fresh in ((f"{next(iter(known))}a0+gitunknown", set()), ("9.9.9", {"9.9.9"})):
        job = CollectivesFacts.model_construct(torch=torch, nccl="")
        found = with_more(real, (_measurement("collectives", "gpu1", "gpu2"), job))
        for node in ("gpu1", "gpu2"):
            assert set(readings(found)[node]["PyTorch"]) - set(known) == fresh
        assert [line for line in contradictions(found) if "9.9.9" in line] == [] or fresh


@pytest.mark.parametrize("name", ["clean", "slow", "dead", "real"])
def test_every_format_and_page_tells_the_same_of_a_run(tmp_path: Path, name: str) -> None:
    documents = read_run(make_run(tmp_path / "run", **RUNS[name]))
    assert contradicted(documents) == []
    assert disagreements(documents) == []
    places = {place for fact, place, _ in told(documents) if fact == "planned"}
    assert places == {"json", "junit", "metrics", "screen", "paper"}, "or it would be held against nothing"
