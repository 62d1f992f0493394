"""Every figure of the report: what it draws, marks and tabulates, and what it says where nothing was measured."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.figures_case import added as with_more
from tests.support.figures_case import (
    c4140,
    cells,
    copies,
    crowd,
    fraction,
    learned,
    measurement,
    result,
    rich,
    sweeps,
    utilisation,
)
from tests.support.report_fixture import make_run
from tests.support.site import GPU, NIC, below, with_facts
from tests.support.trees import SERVERS
from tests.unit.test_trees import read as read_tree
from validation.measures.fabric import pairs_figures
from validation.measures.pool.utilisation_figures import utilisation_figure
from validation.measures.rdma.ib_fabric import IbFabricFacts, IbLink, IbPort, IbRate
from validation.measures.rdma.sizes_figures import size_figure
from validation.measures.remoting.section_figures import remoting_figures
from validation.measures.training.jobs_figures import Training, training
from validation.measures.training.training_figures import training_figures
from validation.model import Bom, Endpoint, Finding, Measurement, Result, Sample, Subject
from validation.report.documents import RunDocuments, read_run
from validation.report.fabric_drawing import fabric_figure, link_figure
from validation.report.figures import figures_context
from validation.report.numbers import size_words
from validation.report.script import script
from validation.report.summary import verdict_of
from validation.report.svg.colour import sequential
from validation.report.svg.drawing import Figure
from validation.report.svg.heatmap import Cell, Heatmap, heat_map
from validation.report.svg.plots import Span, interval_chart, ticks
from validation.report.topology_drawing import node_figures
from validation.run.catalogue import load_criteria

CROSS = 'stroke="#b3261e" stroke-width="3" fill="none"'


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return rich(tmp_path_factory.mktemp("rich") / "run")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """A lab's TCP run: no RDMA, no remoting, no recording, no losses."""
    return read_run(make_run(tmp_path_factory.mktemp("bare") / "run"))


def figures(documents: RunDocuments) -> list[Figure]:
    context = figures_context(documents, verdict_of(documents))
    lists = [v for name, v in context.items() if name.endswith("_figures")]
    return [context["size_figure"], *(f for group in lists for f in group)]


def test_every_figure_is_whole_described_and_has_its_numbers(everything: RunDocuments) -> None:
    ids = set()
    for figure in figures(everything):
        if figure.svg is None:
            assert figure.empty or figure.table, figure.id
            continue
        root = ET.fromstring(str(figure.svg))
        assert root.get("role") == "img"
        labelled = root.get("aria-labelledby", "").split()
        named = {e.get("id"): e.text for e in root.iter() if e.get("id")}
        assert len(labelled) == 2
        assert all(named[label] for label in labelled), figure.id
        assert not ids & set(named), "an id stands twice"
        ids |= set(named)
        assert figure.table is not None, f"{figure.id} has no numbers behind it"
        assert figure.table.rows
        assert all(len(row) == len(figure.table.head) for row in figure.table.rows), figure.id
        assert "nan" not in str(figure.svg)
    assert len([f for f in figures(everything) if f.svg]) >= 11


def test_todays_public_rates_stand_beside_those_of_the_documents(bare: RunDocuments) -> None:
    table = next(f for f in figures(bare) if f.id == "throughput").table
    column = {row[0]: row[table.head.index("Today's, public")] for row in table.rows}
    assert column["ResNet-50"].replace("\u2009", "") == "56113 (XE9680, 8 x H100 SXM); 28623 (XE8640, 4 x H100 SXM)"
    assert column["AlexNet"] == "\u2013"
    assert "of MXNet with a batch of its own on ImageNet, not judged: MLPerf Training, 3.0" in table.caption


def throughput(documents: RunDocuments, jobs: Training | None) -> tuple[Figure, dict[str, tuple[str, str]]]:
    """The figure, and of each network what this run has of it and with what."""
    found = next(f for f in training_figures(documents, jobs, verdict_of(documents)) if f.id == "throughput")
    assert found.table is not None
    return found, {row[0]: (row[-2], row[-1]) for row in found.table.rows}


def test_what_processors_trained_stands_in_the_throughput_and_says_so(bare: RunDocuments) -> None:
    jobs = training(bare)
    figure, said = throughput(bare, jobs)
    assert figure.empty is None
    assert said["small network without normalisation, as VGG"] == (
        "1\u2009010",
        "4 ranks on processors, batch 16, fp32",
    )
    assert said["ResNet-50"] == ("not measured", "\u2013")
    assert "Rates of processors, here of a rehearsal, are called so" in figure.caption
    assert jobs is not None
    eight = replace(jobs.rows[0], model="resnet50", ranks=8, average=6000.0, conditions="batch 128, fp16")
    figure, said = throughput(bare, Training((replace(eight, on_gpus=True),), None))
    rate, conditions = said["ResNet-50"]
    assert rate.startswith("6\u2009000 ("), "over the base"
    assert conditions == "8 GPUs, batch 128, fp16"
    assert "processors" not in figure.caption
    figure, said = throughput(bare, Training((replace(eight, on_gpus=False),), None))
    assert said["ResNet-50"] == ("6\u2009000", "8 ranks on processors, batch 128, fp16")
    figure, said = throughput(bare, Training((), None))
    assert figure.empty == "Not measured: no training job has a usable result. The table has what is published."


def test_what_was_not_measured_is_an_empty_frame_with_its_reason(bare: RunDocuments) -> None:
    empty = {f.id: f.empty for f in figures(bare) if f.empty}
    expected = {"sizes", "copies", "fractions", "rm-ratio", "rm-layout", "rm-fraction", "learning"}
    expected |= {"trace", "utilisation", "pool-hours", "gpu-copies", "ranks", "both-ways"}
    expected |= {"answers", "rm-scale", "rm-noise", "model", "move", "pooled"}
    assert set(empty) == expected
    assert all(words.startswith("Not measured: ") for words in empty.values() if words)
    assert all(f.svg is None for f in figures(bare) if f.empty), "a frame that says it is empty has a drawing"


# --- topology --------------------------------------------------------------------------------------------------


def test_fabric_marks_the_suspect_port_and_only_it(bare: RunDocuments, everything: RunDocuments) -> None:
    clean, sick = fabric_figure(bare), fabric_figure(everything)
    assert str(clean.svg).count(CROSS) == 1  # the key's
    assert str(sick.svg).count(CROSS) == 2
    assert "Suspect: port gpu2/fab0." in sick.caption
    assert "No suspect." in clean.caption
    assert "not known" in clean.caption  # switches
    assert "up, MTU 9000" in cells(clean)


def test_fabric_marks_a_suspect_node_and_a_suspect_link(bare: RunDocuments) -> None:

    def named(kind: str, about: Subject) -> Figure:
        finding = Finding.model_validate({"kind": kind, "about": about, "text": "t", "remedy": "r", "criteria": ()})
        verdict = bare.verdict.model_copy(update={"findings": (finding,)})
        return fabric_figure(replace(bare, verdict=verdict))

    ends = (Endpoint(node="gpu1", port="fab0"), Endpoint(node="head", port="fab0"))
    node, link = named("node", Subject.node("gpu1")), named("link", Subject.pair(*ends, both_ways=True))
    assert "node gpu1" in node.caption
    assert str(node.svg).count(CROSS) == 2
    assert "link gpu1/fab0 to head/fab0" in link.caption
    assert str(link.svg).count(CROSS) == 2
    assert 'stroke-dasharray="6 3"' in str(link.svg)


@pytest.mark.parametrize("count", [60, 1000])
def test_fabric_of_many_nodes_stays_small_and_names_the_suspect(everything: RunDocuments, count: int) -> None:
    figure = fabric_figure(crowd(everything, count))
    text = str(figure.svg)
    ET.fromstring(text)
    assert "named by the findings: gpu2" in text
    assert len(text) < 80 * count + 4000
    assert len(figure.table.rows) == count + 4


def test_nodes_that_are_alike_are_drawn_once_and_a_narrow_link_is_marked(bare: RunDocuments) -> None:
    kinds = node_figures(c4140(bare))
    assert [k.caption.partition(":")[0] for k in kinds] == ["gpu1", "gpu2", "head, client1 (2 nodes, alike)"]
    good, narrow, container = kinds
    assert CROSS not in str(good.svg)
    assert str(narrow.svg).count(CROSS) == 1
    assert "Gen3 x8 (BELOW its rating)" in cells(narrow)
    assert "BELOW" not in cells(good)
    assert str(good.svg).count(">GPU</text>") == 4
    assert "NUMA node 1" in str(good.svg)
    assert "NVLink between the GPUs: not known" in good.caption
    assert "a container (systemd-nspawn)" in container.caption
    assert "not known" in cells(container)


def test_cards_behind_one_port_of_the_host_and_behind_several_are_not_alike(bare: RunDocuments) -> None:
    """Addresses differ between nodes of one kind; which cards share a port does not."""

    def attached(name: str, roots: tuple[str, str]) -> tuple[Measurement, Result]:
        m = bare.plan.measurement(f"facts.{name}")
        gpus = [{**GPU, "address": f"0000:{root}:01.{i}", **below(root)} for i, root in enumerate(roots)]
        return m, with_facts(bare.latest[m.id], pci=[*gpus, NIC], virt="none", model="PowerEdge C4140", gpu_count=2)

    alike = with_more(bare, [attached("gpu1", ("16", "16")), attached("gpu2", ("57", "57"))])
    assert "gpu1, gpu2 (2 nodes, alike)" in node_figures(alike)[0].caption
    assert "Ports of the host that the GPUs share: 1 (" in node_figures(alike)[0].caption
    apart = with_more(bare, [attached("gpu1", ("16", "16")), attached("gpu2", ("57", "ae"))])
    assert [k.caption.partition(":")[0] for k in node_figures(apart)][:2] == ["gpu1", "gpu2"]
    assert "share: 2 (" in node_figures(apart)[1].caption


def test_many_kinds_of_nodes_are_drawn_no_more_and_all_listed(bare: RunDocuments) -> None:
    nodes = tuple(
        bare.topology.nodes[0].model_copy(update={"name": f"odd{i}", "bom": Bom(model=f"model {i}", gpu_count=i % 30)})
        for i in range(200)
    )
    documents = replace(bare, topology=bare.topology.model_copy(update={"nodes": nodes}))
    found = node_figures(documents)
    assert len(found) == 7
    assert sum(f.svg is not None for f in found) == 6
    assert found[-1].table is not None
    assert len(found[-1].table.rows) == 194
    assert "The first 20 of 30 cards are drawn" in found[0].caption


def test_node_without_facts_shows_what_is_declared_as_declared(tmp_path: Path) -> None:
    documents = read_run(make_run(tmp_path / "run", dead="gpu2"))
    kind = next(k for k in node_figures(documents) if k.caption.startswith("gpu2"))
    assert "no facts were collected" in kind.caption
    assert "the inventory only" in cells(kind)


def test_links_of_an_infiniband_fabric_are_listed(bare: RunDocuments) -> None:
    assert link_figure(bare) is None
    m = measurement("ib-fabric", "gpu1", ("gpu1",))
    one, two = (IbPort(node="sw", guid="0x1", number=number) for number in (1, 2))
    other = IbPort(node="gpu1", guid="0x2", number=1)
    edr = (IbRate(lanes=4, speed="EDR"),)
    links = (IbLink(here=one, there=other, rates=edr), IbLink(here=two, rates=edr))
    facts = IbFabricFacts(
        devices=(), subnet_managers=(), subnets=1, links=links, errors=(), unanswered=0, nodes=2, nodes_checked=2,
        ports=3, ports_checked=3,
    )  # fmt: skip
    figure = link_figure(with_more(bare, [(m, result(m).model_copy(update={"facts": facts}))]))
    assert "4x EDR | sw port 1 0x1 | gpu1 port 1 0x2" in cells(figure)


# --- fabric ----------------------------------------------------------------------------------------------------


def _map(count: int) -> str:
    labels = tuple(Endpoint(node=f"n{i:04d}", port="fab0") for i in range(count))
    values = {(a, b): 1.0 for a in labels for b in labels if a != b}
    values[labels[3], labels[7]] = 0.2
    made = {pair: Cell("1", "t", "fail" if v < 0.5 else "ok", v) for pair, v in values.items()}
    return str(heat_map(Heatmap("m", "T", "D.", labels, made, "Gbit/s", 1.0, "1", suspect=frozenset({labels[3]}))))


def test_large_heat_map_is_binned_and_keeps_the_failed_and_the_suspect() -> None:
    small, large = _map(64), _map(200)
    assert "worst of the pairs of 4 by 4 neighbouring ports" in large
    assert "neighbouring" not in small
    for text in (small, large):
        ET.fromstring(text)
        assert len(text) < 60_000
        assert text.count("h-6l6 6z") == 1, "the failed pair lost its corner"
        assert text.count('stroke-width="2.5"') == 3  # row and column of the suspect, and the key


def test_cell_that_pairs_share_shows_the_worst_of_them() -> None:
    labels = tuple(Endpoint(node=f"n{i:04d}", port="fab0") for i in range(130))
    values = {(labels[0], labels[60]): Cell("1", "t", "ok", 1.0), (labels[1], labels[60]): Cell("0", "t", "ok", 0.0)}

    def fills(high_is_bad: bool) -> str:
        made = Heatmap("m", "T", "D.", labels, values, "u", 1.0, "1", high_is_bad=high_is_bad)
        return str(heat_map(made)).partition("<rect x=")[0]  # before the legend, which has every colour

    assert f'fill="{sequential(0)}"' in fills(high_is_bad=False)
    assert f'fill="{sequential(1)}"' not in fills(high_is_bad=False)
    assert f'fill="{sequential(1)}"' in fills(high_is_bad=True)


def test_heat_map_of_a_thousand_ports_has_a_line_for_each_port(bare: RunDocuments) -> None:
    matrix = pairs_figures.matrices(crowd(bare, 1000))[0]
    assert len(matrix.table.rows) == 1004
    assert not matrix.table.in_figure
    first = dict(zip(matrix.table.head, matrix.table.rows[0], strict=True))
    assert first["Port"] == "head/fab0"
    assert float(first["Worst"]) > 0.9
    assert matrix.table.rows[-1][1] == "not measured"


def test_table_behind_a_heat_map_has_every_pair(everything: RunDocuments) -> None:
    matrix = pairs_figures.matrices(everything)[0]
    assert [row[0] for row in matrix.table.rows] == ["head/fab0", "client1/fab0", "gpu1/fab0", "gpu2/fab0"]
    words = [cell for row in matrix.table.rows for cell in row[1:]]
    assert sum(w.endswith("(bound missed)") for w in words) == 6
    assert words.count("\u2013") == 4


def test_size_curve_shows_median_worst_and_the_line_rate(bare: RunDocuments) -> None:
    ports = [f"{n.name}/{p.interface}" for n in bare.topology.nodes for p in n.ports]
    figure = size_figure(with_more(bare, list(sweeps(ports))))
    assert len(figure.table.rows) == 23
    last = dict(zip(figure.table.head, figure.table.rows[-1], strict=True))
    assert last["Size"] == "8 MiB"
    assert "gpu2" in last["Pair"]
    assert float(last["Worst"]) == pytest.approx(0.3 * 0.93, rel=0.01)
    assert float(last["Best"]) == pytest.approx(0.93, rel=0.01)
    assert "declared rate of the lab link" in str(figure.svg)


def test_size_curve_of_single_runs_joins_them_by_size(bare: RunDocuments) -> None:
    """In a rehearsal a few sizes are measured one by one instead of a sweep."""
    pairs = []
    for size, rate in ((256, 0.01), (65536, 0.2), (1048576, 0.22)):
        m = measurement("rdma-bandwidth", f"write-{size}", ("gpu1", "gpu2"), params={"op": "write", "size_bytes": size})
        pairs.append((m, result(m, (Sample(metric="rdma_write_bandwidth_gbps", value=rate, unit="Gbit/s"),))))
    figure = size_figure(with_more(bare, pairs))
    assert [row[1] for row in figure.table.rows] == ["256 B", "64 KiB", "1 MiB"]
    assert size_figure(with_more(bare, pairs[:1])).svg is None, "one size is no curve"


# --- training, remoting, operation -----------------------------------------------------------------------------


def _named(documents: RunDocuments, id_: str) -> Figure:
    return next(f for f in figures(documents) if f.id == id_)


def test_scaling_has_the_published_as_reference_and_says_that_it_is_another_job(bare: RunDocuments) -> None:
    figure = _named(bare, "scaling-published")
    assert "this run, across nodes | 4 | 1\u2009010 | 2.451 | 61.3 % | measured" in cells(figure)
    assert "C4140-K, V100 SXM2, ResNet-50 | 8 | 4\u2009500 | 7.188 | 89.9 % | Dell whitepaper" in cells(figure)
    assert "Only the shape can be compared" in figure.caption


def test_scaling_without_two_jobs_draws_nothing(bare: RunDocuments) -> None:
    alone = replace(bare, results=tuple(r for r in bare.results if r.measurement != "training-short.1"))
    figure = training_figures(alone, training(alone), verdict_of(alone))[0]
    assert figure.svg is None
    assert "this run" not in cells(figure)


def test_learning_curve_draws_each_jobs_losses(bare: RunDocuments) -> None:
    figure = _named(with_more(bare, learned(bare)), "learning")
    assert str(figure.svg).count('<path d="M') >= 3
    assert "one rank (1) | 1 | 2.400" in cells(figure)
    assert "first 10 steps are warm-up" in figure.caption


def test_copies_become_two_matrices_with_every_pair(bare: RunDocuments) -> None:
    found = [f for f in remoting_figures(with_more(bare, [copies()]), verdict_of(bare)) if f.id.startswith("copies")]
    assert len(found) == 2
    for figure in found:
        assert "GPUs are emulated." in figure.caption
        words = [cell for row in (figure.table.rows if figure.table else ()) for cell in row[1:]]
        assert len(words) == 81
        assert words.count("\u2013") == 1  # host to host
    assert "logarithmic" in str(found[0].svg)


def test_copies_without_facts_are_not_drawn(bare: RunDocuments) -> None:
    m, _ = copies()
    figure = remoting_figures(with_more(bare, [(m, result(m))]), verdict_of(bare))[0]
    assert figure.empty == "Not measured: its result has no facts."


def test_fractions_are_drawn_to_scale(bare: RunDocuments) -> None:
    documents = with_more(bare, [fraction(("1/2", "1/2"), [128, 128]), fraction(("3/4", "5/20"), [192, 64], "gpu2")])
    figure = next(f for f in remoting_figures(documents, verdict_of(bare)) if f.id == "fractions")
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)" height="22"', str(figure.svg))]
    assert widths[0] == widths[1]
    assert widths[2] == pytest.approx(3 * widths[3], rel=0.01)
    assert "gpu2 | reference 0.1.0 | 3/4 + 5/20 | 192 + 64 | 0.5000 | 256 | 0.5000" in cells(figure)


def test_failed_fraction_stands_in_the_table_with_its_reason(bare: RunDocuments) -> None:
    m, _ = fraction(("1/2", "1/2"), [128, 128])
    failed = result(m, status="timeout").model_copy(update={"error": "took too long"})
    figure = next(f for f in remoting_figures(with_more(bare, [(m, failed)]), verdict_of(bare)) if f.id == "fractions")
    assert figure.svg is None
    assert "took too long" in cells(figure)


def test_interval_chart_keeps_everything_inside_its_frame() -> None:
    for value, low, high in ((0.95, 0.94, 0.96), (1e-6, 1e-6, 1e-6), (120.0, 1.0, 900.0)):
        text = str(
            interval_chart("i", "T", "D", [Span("a case with a name " * 4, value, low, high)], "x", (value, "bound"))
        )
        width = float(re.findall(r'viewBox="0 0 ([\d.]+)', text)[0])
        assert all(0 <= float(x) <= width for x in re.findall(r' x="([-\d.]+)"', text))


def test_utilisation_is_drawn_from_two_readings_on(bare: RunDocuments) -> None:
    assert utilisation_figure(with_more(bare, [utilisation(120)])).svg is not None
    one = utilisation_figure(with_more(bare, [utilisation(1)]))
    assert one.svg is None
    assert one.empty
    assert "1 reading was recorded so far" in one.empty
    assert "50 %" in cells(one)
    assert "GPUs are emulated" in one.caption


# --- small things ----------------------------------------------------------------------------------------------


def test_ticks_are_round_and_cover_the_axis() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0, 1.12) == [0, 0.25, 0.5, 0.75, 1.0]
    assert len(ticks(0, 8.32)) in range(4, 8)
    assert ticks(3, 3) == [3]
    assert [size_words(v) for v in (2, 1024, 65536, 8 << 20)] == ["2 B", "1 KiB", "64 KiB", "8 MiB"]


def test_script_is_one_text_with_its_hash_and_makes_no_markup() -> None:
    text, source = script()
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", source)
    for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest", "</"):
        assert word not in text


def test_every_criterion_named_by_a_figure_is_in_the_catalogue(everything: RunDocuments) -> None:
    known = {c.id for c in load_criteria()}
    assert {id_ for f in figures(everything) for id_ in f.criteria} <= known


def test_cards_behind_one_switch_are_drawn_below_one_bar(bare: RunDocuments, tmp_path: Path) -> None:
    """One bar between each two neighbours below a switch; none where each GPU has a port of the host's own."""

    def drawn(name: str) -> Figure:
        sysfs = read_tree(SERVERS[name], tmp_path / name)
        m = bare.plan.measurement("facts.gpu1")
        return node_figures(with_more(bare, [(m, with_facts(bare.latest[m.id], **sysfs))]))[0]

    bar = 'stroke-width="5"'
    switched, direct = drawn("C4140-K"), drawn("C4140-M")
    assert (str(switched.svg).count(bar), str(direct.svg).count(bar)) == (3, 0)
    assert ("Thick bar" in switched.caption, "Thick bar" in direct.caption) == (True, False)
    assert str(switched.svg).count("NVLink 6 up") == 4
    assert "Laid out as C4140 configuration K." in switched.caption
    assert "ib0 NODE" in cells(switched)
