"""Tables of a report: GPUs of two models, jobs of two numbers of ranks, runs of two numbers of queue pairs apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.healthy_nodes import gpu_copies
from tests.support.report_fixture import make_run
from tests.support.site import hardware, plan_of
from validation.measures.collectives.collectives_figures import collective_figures
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.copies_figures import _sizes
from validation.measures.rdma.sizes_figures import _run
from validation.model import Bom
from validation.report.documents import read_run
from validation.report.summary import verdict_of

BOM = Bom(gpu_count=2, gpu_model="V100", model="PowerEdge C4140", fabric_port_count=1, nic_model="x")


def copies(model: str) -> GpuCopyFacts:
    topology = hardware(("gpu1", "gpu2"), bom=BOM)
    m = next(m for m in plan_of(topology, ("transport",)).measurements if m.kind == "gpu-copies")
    facts = gpu_copies(m).facts_of(GpuCopyFacts)
    assert facts is not None
    return facts.model_copy(update={"gpus": tuple(g.model_copy(update={"name": model}) for g in facts.gpus)})


def test_copies_of_two_models_of_gpus_have_rows_of_their_own() -> None:
    one = _sizes([("m", copies("V100"))]).table  # type: ignore[list-item]
    two = _sizes([("m", copies("V100")), ("n", copies("P40"))]).table  # type: ignore[list-item]
    assert one is not None
    assert two is not None
    assert "Model" not in one.head
    assert two.head[1] == "Model"
    assert {row[1] for row in two.rows} == {"V100", "P40"}
    assert len(two.rows) == 2 * len(one.rows)


def test_collectives_of_two_numbers_of_ranks_have_figures_of_their_own(tmp_path: Path) -> None:
    documents = read_run(make_run(tmp_path / "run", virtual=False, waive=True))
    verdict = verdict_of(documents)
    before = [figure.id for figure in collective_figures(documents, verdict)]
    first = next(r for r in documents.results if r.measurement.startswith("collectives.inside"))
    facts = first.facts_of(CollectivesFacts)
    assert facts is not None
    more = first.model_copy(update={"facts": facts.model_copy(update={"world_size": 3})})
    results = tuple(more if r is first else r for r in documents.results)
    after = [figure.id for figure in collective_figures(replace(documents, results=results), verdict)]
    assert before.count("collectives-inside") == 1
    assert {"collectives-inside-3", "collectives-inside-2"} <= set(after)
    assert len(after) == len(before) + 1


def test_a_curve_over_sizes_is_of_one_number_of_queue_pairs() -> None:
    runs = {
        _run(m)
        for m in plan_of(hardware(("gpu1", "gpu2")), ("transport",), "roce40").measurements
        if m.kind == "rdma-bandwidth" and m.params["op"] == "write" and not m.params.get("bidirectional")
    }
    assert runs == {"write, 1 queue pair", "write, 4 queue pairs"}
