"""Page one is one page, whatever a customer brings and whatever failed, and pages that follow say nothing twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.page import Page
from tests.support.pages import beyond, laid_out
from tests.support.report_fixture import make_run
from tests.support.site import NAMES
from validation.model import Endpoint
from validation.report.customer import NAME, adopt
from validation.report.delivered import delivered, network
from validation.report.documents import RunDocuments, read_run
from validation.report.fabric_drawing import fabric_figure
from validation.report.front_lines import worst_link
from validation.report.numbers import typeset
from validation.report.render import fill, view
from validation.report.summary_page import Front
from validation.report.svg.charts import ScalingBar, scaling
from validation.report.words import front_words

pytestmark = pytest.mark.systems

LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 60"><rect width="300" height="60" fill="#114488"/></svg>'
)
CUSTOMER = """customer: Muster Maschinenbau GmbH & Co. KG
site: Rechenzentrum Nord
project: Elastische GPU-Infrastruktur 2026
contact: Erika Musterfrau
logo: logo.svg
language: de
"""


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    base = tmp_path_factory.mktemp("german")
    run = make_run(base / "run", virtual=False, waive=True)
    (base / "logo.svg").write_text(LOGO)
    (base / NAME).write_text(CUSTOMER)
    adopt(base / NAME, run)
    return read_run(run)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return read_run(make_run(tmp_path_factory.mktemp("failed") / "run", slow="gpu2"))


def ends(views: dict[str, Any]) -> tuple[int, float]:
    """How many pages page one takes, and where on the first its text ends, as a share of the page's content."""
    html = fill(views, printed=True).partition('<nav class="toc"')[0] + "</main></body></html>"
    document = laid_out(html)
    assert beyond(document) == []
    page = document.pages[0]._page_box
    body = [b for child in page.children if type(child).__name__ != "MarginBox" for b in child.descendants()]
    end = max(b.position_y + b.height for b in body if type(b).__name__ == "TextBox")
    return len(document.pages), (end - page.content_box_y()) / page.height


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("long", [False, True])
def test_page_one_is_one_page_and_fills_it(
    german: RunDocuments, failed: RunDocuments, tmp_path: Path, rows: int, long: bool
) -> None:
    pytest.importorskip("weasyprint")
    views, other = view(german), view(failed)["front"]
    front: Front = views["front"] if long else other
    missing = ("26 of 50 planned measurements have no usable result.", f"Undecided: {'tr.tcpbw, ' * 10}.")
    waivers = views["front"].waivers[:1]
    serials = f"GPU serials: {', '.join(f'032401801234{n}' for n in range(8))}"
    full = replace(
        front,
        failed=other.failed[:1] * rows,
        failed_more=2 if rows == 3 else 0,
        waivers=waivers * min(rows, 2),
        missing=missing if rows else (),
        delivered=tuple(replace(line, serials=serials if at < 2 else "") for at, line in enumerate(front.delivered)),
    )
    pages, end = ends({**views, "front": full})
    assert pages == 1
    assert end > 2 / 3, "an empty third"


def test_a_customers_own_page_one_is_one_page(german: RunDocuments) -> None:
    pytest.importorskip("weasyprint")
    assert ends(view(german))[0] == 1


def test_waived_criteria_stand_together_by_decision(german: RunDocuments) -> None:
    page = Page(fill(view(german))).text
    assert page.count("not part of this delivery: ") == 1
    assert re.search(r"\d+ criteria waived by A\. Example on 2026-11-20 until 2027-11-20: not part of this", page)


def test_of_many_nodes_the_slowest_link_is_marked_too(tmp_path: Path) -> None:
    names = (*NAMES, *(f"gpu{n}" for n in range(3, 18)))
    documents = read_run(make_run(tmp_path / "run", names=names, slow="gpu7", suites=("preflight", "transport")))
    worst, views = worst_link(documents), view(documents)
    assert worst is not None
    drawn = str(views["topology_figures"][0].svg)
    assert f"slowest measured link: {worst.source} to {worst.destination}" in drawn
    assert drawn.count("an end of the slowest measured link") == 2
    assert "It is marked in the drawing." in Page(fill(views)).text
    bare = (replace(views["topology_figures"][0], svg=None), *views["topology_figures"][1:])
    assert "It is marked in the drawing." not in Page(fill({**views, "topology_figures": bare})).text


def test_the_slowest_link_says_by_which_operation(failed: RunDocuments) -> None:
    views = view(failed)
    assert "RDMA read" not in Page(fill(views)).text
    read = replace(views["worst"], op="read", criterion="tr.rdmabw")
    assert "RDMA read, tr.rdmabw" in Page(fill({**views, "worst": read})).text
    verdict = failed.verdict
    assert verdict is not None
    changed = [
        c.model_copy(
            update={
                "judgements": tuple(
                    j.model_copy(update={"about": j.about.model_copy(update={"op": "send"})}) for j in c.judgements
                )
            }
        )
        for c in verdict.criteria
    ]
    worst = worst_link(replace(failed, verdict=verdict.model_copy(update={"criteria": tuple(changed)})))
    assert worst is not None
    assert worst.op == "send"


def test_a_rate_stands_once_beside_the_fabrics_name(german: RunDocuments, failed: RunDocuments) -> None:
    head = Page(fill(view(german))).text.partition("Die wichtigsten Zahlen")[0]
    assert re.search("Netz 10 Gbit/s Ethernet, TCP ?; Switch nicht angegeben", head)
    assert network(failed, front_words("en")) == "virtual links of 1 Gbit/s, no switch"
    own = replace(german, fabric=german.fabric.model_copy(update={"title": "The blue one"}))
    assert re.search("The blue one, 10 Gbit/s ?; Switch", Page(fill(view(own))).text)


def test_names_of_machines_are_set_apart_from_their_parts(failed: RunDocuments) -> None:
    (line,) = [one for one in delivered(failed, front_words("en")) if "gpu1" in one.nodes]
    assert f"{line.adapter} (gpu1, gpu2)" in Page(fill(view(failed))).text


def test_a_note_and_a_reason_are_two_clauses(failed: RunDocuments) -> None:
    assert re.search(r"bound ≥ 95 % ?; virtual hardware cannot prove it", Page(fill(view(failed))).text)


def test_what_is_to_be_typed_is_in_quotes_and_names_the_run(tmp_path: Path) -> None:
    documents = read_run(make_run(tmp_path / "run", dead="gpu2"))
    page = Page(fill(view(documents))).text
    assert f"“toolkit validate --resume {documents.info.run}”" in page
    assert "`" not in page
    assert typeset("see `a > b`") == "see “a > b”"


def test_labels_of_bars_are_inside_their_frame() -> None:
    label = "ResNet-50, batch 128, fp16, inside a node (4)"
    bars = [ScalingBar(label, 3000.0, 3200.0, 0.94), ScalingBar("one rank (1)", 800.0, 800.0, None)]
    svg = str(scaling(bars))
    x = float(re.search(r'<text x="([\d.]+)"[^>]*>ResNet-50, batch 128', svg)[1])  # type: ignore[index]
    assert x > len(label) * 12.5 * 0.5, "it would begin left of the frame"
    assert label in svg
    longer = str(scaling([ScalingBar(label * 2, 3000.0, 3200.0, 0.94)]))
    assert "…" in longer


def test_words_of_the_drawing_are_whole(tmp_path: Path) -> None:
    documents = read_run(make_run(tmp_path / "run", slow="gpu2"))
    long = {"interface": "enp225s0f1np1"}
    nodes = tuple(
        n.model_copy(update={"ports": tuple(p.model_copy(update=long) for p in n.ports), "emulated_gpus": 4, "gpus": 4})
        for n in documents.topology.nodes[:3]
    )
    few = replace(documents, topology=documents.topology.model_copy(update={"nodes": nodes}))
    one, other = (Endpoint(node=n, port=long["interface"]) for n in ("head", "gpu1"))
    worst = worst_link(documents)
    assert worst is not None
    drawn = str(fabric_figure(few, replace(worst, source=str(one), destination=str(other))).svg)
    shown = re.sub(r"<(desc|title)\b.*?</\1>", "", drawn, flags=re.DOTALL)
    assert f"slowest measured link: {one} to {other}" in shown
    assert "4 emulated GPUs" in shown
    assert "…" not in re.sub(r"enp225\S*", "", shown)


def test_claims_are_counted_in_whole_sentences(german: RunDocuments, failed: RunDocuments) -> None:
    assert re.search(
        r"\d+ claims of the reference architecture concern this site: \d+ confirmed, \d+ missed, \d+ not measured\. "
        r"\d+ more concern other fabrics or machines\.",
        Page(fill(view(german))).text,
    )
    assert re.search(
        r"A rehearsal confirms no claim\. \d+ claims of the reference architecture concern this site: \d+ rehearsed",
        Page(fill(view(failed))).text,
    )
