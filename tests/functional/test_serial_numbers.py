"""Serial numbers in what a customer gets: report, certificate, bundle; and two runs compared by them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.hardware_case import Rack
from tests.support.page import Page
from tests.support.report_fixture import make_run
from tests.support.signing_case import FORMATS, NEEDS_SSH, make_key, sign
from toolkit.cli import cli
from validation.compare import as_html, as_text, compare
from validation.report.documents import read_run
from validation.report.formats import write_formats
from validation.report.json_entries import ReportDoc
from validation.report.json_report import report_json
from validation.report.render import fill, view
from validation.signing.certificate import certificate_html
from validation.signing.pack import bundle_run
from validation.signing.sign import read_signed
from validation.signing.verify import verify

pytestmark = pytest.mark.computes
BEFORE, AFTER = "2026-11-21T10-15-00Z-tcp10", "2026-12-01T09-00-00Z-tcp10"
SUITES = ("preflight", "transport")
NODES = ("gpu1", "gpu2")
Parts = dict[str, Any]


def rack_parts() -> Parts:
    return {name: parts for name, parts in Rack().hosts.items() if parts is not None}


def made(folder: Path, run: str = BEFORE, spoil: Callable[[Parts], None] | None = None, **more: Any) -> Path:
    """A run of two servers, whose nodes show parts; no BMC was asked."""
    parts = copy.deepcopy(rack_parts())
    if spoil is not None:
        spoil(parts)
    return make_run(
        folder / run, run=run, virtual=False, suites=SUITES, **{"parts": parts, "waive": True, "names": NODES, **more}
    )


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("signed")
    run = made(base)
    write_formats(run, FORMATS)
    sign(run, make_key(base / "key"))
    return run


def test_page_one_and_annex_have_service_tags_serials_and_what_was_not_read(tmp_path: Path) -> None:
    documents = read_run(made(tmp_path))
    page = Page(fill(view(documents))).text
    assert "service tags: EAT0001, EAT0002" in page
    assert (
        "known: 16 of 16 GPUs, 4 of 4 network cards, 4 of 4 drives, 64 of 64 memory modules, power supplies not" in page
    )
    for serial in ("G0001001", "N0002002", "S0001000", "D0002032", "96.00.74.00.01", "22.36.10.10"):
        assert serial in page
    assert "power supplies not read: no BMC was read; a node's own system does not show them" in page
    printed = Page(fill(view(documents), printed=True)).text
    assert "D0002032" in printed


def test_the_report_for_programs_has_every_part(tmp_path: Path) -> None:
    found = ReportDoc.model_validate_json(report_json(read_run(made(tmp_path))))
    assert [one.service_tag for one in found.parts] == ["EAT0001", "EAT0002"]
    assert sum(len(one.parts) for one in found.parts) == 2 * (8 + 32 + 2 + 2)
    assert found.parts[0].reading("psu").by == ()


def test_a_run_from_before_serial_numbers_is_read_and_says_that_none_was(tmp_path: Path) -> None:
    run = made(tmp_path, parts={})
    assert '"parts"' not in (run / "results.jsonl").read_text().replace('"parts":null', "")
    page = Page(fill(view(read_run(run)))).text
    assert "service tags: not read ; parts not read (list: annex E)" in page
    assert "GPU" in page
    found = compare(run, made(tmp_path, AFTER))
    assert (found.parts, found.exit_code) == ((), 0)
    assert f"parts by serial number: not compared: no part was read in {BEFORE}" in as_text(found)
    assert f"Not compared: no part was read in {BEFORE}." in Page(as_html(found)).text


def _hostile(parts: Parts) -> None:
    parts["gpu1"]["nics"][0]["serial"] = "<script>alert(1)</script>\x1b[31m\u202eX"
    parts["gpu1"]["serial"] = "</style><b>EAT\x07"


def test_markup_and_control_characters_of_a_serial_number_are_only_text(tmp_path: Path) -> None:
    documents = read_run(made(tmp_path, spoil=_hostile))
    for html in (fill(view(documents)), fill(view(documents), printed=True)):
        assert "<script>alert" not in html
        assert "</style><b>" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u001b[31m\\u202eX" in html
        assert not {"\x1b", "\u202e", "\x07"} & set(html)
    found = compare(made(tmp_path, AFTER), tmp_path / BEFORE)
    assert "<script>" not in as_html(found)
    assert "\x1b" not in as_text(found)


def _swap(parts: Parts) -> None:
    one, two = parts["gpu1"]["dimms"][2], parts["gpu2"]["dimms"][4]
    one["serial"], two["serial"] = two["serial"], one["serial"]
    parts["gpu2"]["gpus"][3]["serial"] = "G9999"
    del parts["gpu2"]["drives"][1]


@NEEDS_SSH
def test_factory_and_site_are_compared_by_serial_number(signed: Path, tmp_path: Path) -> None:
    found = compare(signed, made(tmp_path, AFTER, _swap))
    text = as_text(found)
    day = "in the report signed on 2026-11-21"
    for line in (
        f"gpu1 slot dimm12: memory module serial D0002005 moved, was in gpu2 slot dimm14 {day}",
        f"gpu2 slot dimm14: memory module serial D0001003 moved, was in gpu1 slot dimm12 {day}",
        f"gpu2 slot gpu5: GPU serial G9999, was G0002004 {day}",
        f"gpu2 slot drive45: drive serial S0002001 {day} is gone",
    ):
        assert line in text, text
    assert found.headline.endswith("; 4 differences by serial number")
    assert found.exit_code == 1
    assert f"was G0002004 {day}" in Page(as_html(found)).text
    again = compare(signed, made(tmp_path / "same", AFTER))
    assert (again.parts, again.exit_code) == ((), 0)
    assert "parts by serial number: no difference in those that both runs read" in as_text(again)


def test_a_site_whose_nodes_were_all_renamed_is_compared_by_service_tag(tmp_path: Path) -> None:
    before = made(tmp_path)
    after = made(tmp_path, AFTER, lambda parts: parts.update(rack1=parts.pop("gpu1"), rack2=parts.pop("gpu2")),
                 names=("rack1", "rack2"))  # fmt: skip
    found = compare(before, after)
    assert [one.words for one in found.parts] == [
        f"rack1: service tag EAT0001, was named gpu1 in run {BEFORE}",
        f"rack2: service tag EAT0002, was named gpu2 in run {BEFORE}",
    ]


def test_two_parts_with_one_serial_number_are_noted(tmp_path: Path) -> None:
    def double(parts: Parts) -> None:
        parts["gpu2"]["dimms"][0]["serial"] = parts["gpu1"]["dimms"][0]["serial"]

    run = made(tmp_path, spoil=double)
    words = "2 memory modules have serial number D0001001: gpu1 dimm10, gpu2 dimm10"
    assert words in Page(fill(view(read_run(run)))).text
    assert any(words in note for note in compare(run, made(tmp_path, AFTER)).notes)


@NEEDS_SSH
def test_the_certificate_names_service_tags_and_counts(signed: Path) -> None:
    statement = read_signed(next((signed / "signatures").glob("*.txt")))
    page = Page(certificate_html(read_run(signed), [statement])).text
    assert "service tags: EAT0001, EAT0002; known: 16 of 16 GPUs" in page
    assert "power supplies not read" in page


@NEEDS_SSH
def test_a_serial_number_that_was_changed_by_hand_is_found_in_run_bundle_and_comparison(
    signed: Path, tmp_path: Path
) -> None:
    assert verify(bundle_run(signed, tmp_path / "whole.zip").path).intact
    run = tmp_path / signed.name
    _copied(signed, run)
    results = run / "results.jsonl"
    results.write_text(results.read_text().replace("G0002004", "G9999"))
    assert "results.jsonl" in verify(run).difference.changed
    found = compare(run, made(tmp_path, AFTER))
    assert any("was signed, but is not as it was signed: results.jsonl: not as signed" in note for note in found.notes)
    assert [one.words for one in found.parts] == [
        f"gpu2 slot gpu5: GPU serial G0002004, was G9999 in run {BEFORE}"  # and no word of a signed report
    ]


def _copied(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            to = target / path.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())


def test_the_command_ends_with_1_where_a_part_is_another(tmp_path: Path) -> None:
    made(tmp_path)
    made(tmp_path, AFTER, _swap)
    done = CliRunner().invoke(cli, ["compare", BEFORE, AFTER, "--runs-dir", str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert "GPU serial G9999, was G0002004" in done.output
    done = CliRunner().invoke(cli, ["compare", BEFORE, AFTER, "--runs-dir", str(tmp_path), "--json"])
    assert {one["what"] for one in json.loads(done.stdout)["parts"]} == {"moved", "replaced", "gone"}
