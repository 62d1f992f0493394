"""Which runs make up no sum, what a sum does not cover, and the nodes of a unit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import UsageFault
from toolkit.inventory import read_site
from toolkit.validate.units import of_unit
from validation.base.project import ROOT
from validation.model import VerdictDoc
from validation.model.listed_parts import ServerParts
from validation.model.load import ConfigError
from validation.model.points import PointState
from validation.signing.sums import SumSigner, SumUnit, Unit, sum_of


def unit(name: str, *nodes: str, **changes: Any) -> Unit:
    said = SumUnit(
        run=name, unit=name, day="2026-11-21", nodes=nodes, profile="training", headline="ACCEPTED: all pass", passed=3,
        waived=(), not_measured=(), points=(), last_day="2027-11-21",
        signers=(SumSigner(name="A", company="B", time="2026-11-21T12:00:00Z", key="SHA256:x"),), manifest_sha256="0",
    )  # fmt: skip
    verdict = VerdictDoc.model_construct(sign_off="ACCEPTED", outcome="passed", headline="all pass", points=())
    servers = tuple(ServerParts(node=node, service_tag=f"TAG-{node}", read=()) for node in nodes)
    found = Unit(path=name, site="s", fabric="roce100", toolkit="1", rules_sha256="r", answer="intact", why="",
                 verdict=verdict, of=said, servers=servers)  # fmt: skip
    return replace(found, **changes)


ONE = unit("rack1", "gpu1", "gpu2")
OTHER = unit("rack2", "gpu3", "gpu4")
DONE = {"state": "closed", "closed_by": "rack1", "elsewhere": False}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (unit("rack2", "gpu2", "gpu3"), "rack1 and rack2: share 1 node: gpu2; each node is in one unit"),
        (replace(OTHER, servers=(ServerParts(node="gpu3", service_tag="tag-GPU1", read=()),)),
         "share a server: gpu3 has service tag tag-GPU1, as gpu1 has"),
        (replace(OTHER, toolkit="2"), "differ in release of the toolkit: 1 and 2"),
        (replace(OTHER, rules_sha256="q"), "differ in criteria and rules (sha256): r and q"),
        (replace(OTHER, fabric="tcp10"), "differ in fabric: roce100 and tcp10"),
        (replace(OTHER, site="t"), "differ in site: s and t"),
        (replace(OTHER, answer="not-signed"), "rack2: nobody has signed it; sign it first"),
        (replace(OTHER, answer="not-intact", why="is not as signed (x: changed)"), "rack2: is not as signed (x"),
        (replace(OTHER, answer="not-checked", expired=True), "rack2: its last day, 2027-11-21, has passed"),
        (replace(OTHER, answer="not-checked", other_rules=("criterion tr.tcpbw",)),
         "rack2: was judged by rules that no release has (criterion tr.tcpbw)"),
        (unit("rack2", "GPU2", "gpu3"), "rack1 and rack2: share 1 node: gpu2"),
        (replace(OTHER, verdict=OTHER.verdict.model_copy(update={"sign_off": "REJECTED", "outcome": "failed"})),
         "rack2: is REJECTED, failed; a sum adds up what passed"),
        (replace(OTHER, verdict=OTHER.verdict.model_copy(update={"sign_off": "REHEARSAL"})),
         "differ in sign-off: ACCEPTED and REHEARSAL"),
        (ONE, "are the same run"),
    ],
)  # fmt: skip
def test_runs_that_make_up_no_sum_are_refused_in_one_sentence(other: Unit, words: str) -> None:
    with pytest.raises(ConfigError) as fault:
        sum_of((ONE, other), None)
    assert words in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_sum_that_was_signed_is_added_up_again_after_its_last_day() -> None:
    units = (ONE, replace(OTHER, answer="expired", expired=True))
    assert sum_of(units, None, again=True) == sum_of((ONE, OTHER), None)


def test_one_run_is_no_sum() -> None:
    with pytest.raises(ConfigError, match="two runs or more"):
        sum_of((ONE,), None)


def test_a_sum_names_what_no_unit_covers() -> None:
    later = unit("rack2", "gpu3", "gpu4")
    changes = {"day": "2026-12-01", "last_day": "2027-12-01", "waived": ("pf.stack",), "not_measured": ("tr.h2d",)}
    later = replace(later, of=later.of.model_copy(update=changes))
    found = sum_of((later, ONE), ["gpu1", "gpu2", "gpu3", "gpu4", "gpu5"])
    assert [one.run for one in found.units] == ["rack1", "rack2"]
    assert (found.nodes, found.last_day) == (4, "2027-11-21")
    said = " ".join(found.not_covered)
    for words in ("4 pairs of nodes of two units", "2 days (2026-11-21 to 2026-12-01), never at once",
                  "1 node of the inventory is in no unit: gpu5.", "Waived in a unit at least: pf.stack.",
                  "Not measured in a unit at least: tr.h2d."):  # fmt: skip
        assert words in said


def test_a_point_of_another_unit_is_no_open_point_of_the_sum_where_that_unit_is_in_it() -> None:
    state = PointState(
        id="P1", grade="A", text="slow", criterion="tr.tcpbw", node="gpu1", owner="A", due="2026-12-01", blocking=True,
        opened="2026-11-01", opened_by=None, state="open", closed_by=None, why="", reopened=False, late=False,
        elsewhere=True,
    )  # fmt: skip
    done = replace(ONE, of=ONE.of.model_copy(update={"points": (state.model_copy(update=DONE),)}))
    later = replace(OTHER, of=OTHER.of.model_copy(update={"points": (state,)}))
    assert not [line for line in sum_of((done, later), None).not_covered if "punch list" in line]
    (said,) = [line for line in sum_of((ONE, later), None).not_covered if "punch list" in line]
    assert "P1 of rack2" in said


def test_a_unit_is_the_nodes_of_a_group(tmp_path: Path) -> None:
    site = read_site(ROOT / "tests/data/walk/three-nodes")
    assert of_unit(site, None) is site
    rack = of_unit(site, "gpu_servers")
    assert [node.name for node in rack.topology.nodes] == ["gpu1", "gpu2"]
    assert [host.name for host in rack.record.hosts] == ["gpu1", "gpu2"]
    with pytest.raises(UsageFault, match="no nodes in a group 'gpu_server'; did you mean gpu_servers"):
        of_unit(site, "gpu_server")


def test_a_rack_is_a_group_that_a_site_adds_for_itself(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/data/walk/three-nodes", tmp_path / "site")
    racks = "all: {children: {rack1: {hosts: {gpu1: {}}}, rack2: {hosts: {gpu2: {}}}}}\n"
    (tmp_path / "site/racks.yml").write_text(racks)
    site = read_site(tmp_path / "site")
    assert [node.name for node in of_unit(site, "rack1").topology.nodes] == ["gpu1"]
    assert [node.name for node in of_unit(site, "rack2").topology.nodes] == ["gpu2"]
    part = of_unit(site, "gpu_servers").part
    assert part is not None
    assert part.elsewhere == ("client1",)
    assert {"gpu_servers", "rack1", "rack2"} <= set(part.within)
    assert "clients" in part.apart
    assert "all" not in {*part.within, *part.apart}
    with pytest.raises(UsageFault, match="no nodes in a group 'rack3'; "):
        of_unit(site, "rack3")
