"""`toolkit check` finds what is not the part that was signed: BMCs answer over TLS, the run is signed by ssh-keygen."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.support import hardware_case
from tests.support.asbuilt_rack import Rack
from tests.support.bmcs import PASSWORD, USER, bmcs, certificate
from tests.support.hardware_case import reading
from tests.support.local_launcher import LocalLauncher
from tests.support.report_fixture import make_run
from tests.support.signing_case import FORMATS, NEEDS_SSH, make_key, sign
from tests.support.warm import command
from toolkit.answer_forms.site import CheckedParts
from toolkit.inventory import read_inventory
from toolkit.lab.bmc.constructed import CHASSIS, SYSTEM, server
from toolkit.lab.bmc.emulated import EmulatedBmc
from toolkit.serials import PartsChecked, Signed, checked, newest_signed, read_now
from validation.analysis.part_changes import DIFFERENT
from validation.model import Node
from validation.probes.controller import INVENTORY
from validation.report.formats import write_formats
from validation.signing.pack import bundle_run
from validation.signing.record import Record
from validation.signing.sign import sign_run

pytestmark = [pytest.mark.computes, NEEDS_SSH]
RUN = "2026-11-21T10-15-00Z-tcp10"
DAY = "in the report signed on 2026-11-21"
LATER = datetime(2026, 11, 25, 12, 0, tzinfo=timezone.utc)
Docs = dict[str, dict[str, Any]]


class Lost(LocalLauncher):
    """No node can be reached; what this machine asks of BMCs works."""

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        return {node.name: "No route to host" for node in nodes}


class Site:
    """A site of head, client1 and gpu1 with a signed run, in which the BMC of gpu1 was read."""

    def __init__(self, folder: Path, there: dict[str, EmulatedBmc]) -> None:
        self.rack, self.there, self.folder = Rack(folder), there, folder
        cert, _, _ = certificate(folder)
        bmc = {"address": "127.0.0.1", "port": there["gpu1"].port, "user": USER, "ca": str(cert)}
        self.rack.declare(gpu1={"bmc": bmc})
        self.run = make_run(
            folder / "runs" / RUN, run=RUN, virtual=False, names=("gpu1", "gpu2"), waive=True, site="site",
            suites=("preflight", "transport"), bmcs={f"gpu{n}": reading(server(n, "16G", f"gpu{n}")) for n in (1, 2)},
        )  # fmt: skip

    def sign(self) -> None:
        write_formats(self.run, FORMATS)
        sign(self.run, make_key(self.folder / "key"))

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.rack.environment(), "ELASTIC_AI_BMC_PASSWORD": PASSWORD}
        return command(self.folder, ("check", "-i", "site", "--limit", "gpu1", *arguments), environment)

    def change(self, edit: Callable[[Docs], None]) -> None:
        edit(self.there["gpu1"].docs)

    def checked(self) -> PartsChecked:
        """What the command says of parts, without its other checks."""
        topology = read_inventory(self.folder / "site")
        nodes = tuple(node for node in topology.nodes if node.name == "gpu1")
        signed = newest_signed(self.folder / "runs", topology.site)
        if signed.why:
            return PartsChecked(signed, 0)
        now = asyncio.run(read_now(Lost(), topology, nodes))
        return checked(signed, now, whole=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", PASSWORD)
    monkeypatch.setenv(INVENTORY, str(tmp_path / "site"))
    with bmcs(tmp_path, ["gpu1"]) as there:
        yield Site(tmp_path, there)


AS_SIGNED = f"serial numbers  ok: 46 parts with a serial number {DAY} (run {RUN})"
HOLDS = "signed paper  ok: holds until 2027-11-21"


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("serial numbers")]


def test_parts_that_are_the_signed_ones_are_one_line(site: Site) -> None:
    site.sign()
    found = site.checked()
    assert found.lines() == [AS_SIGNED, HOLDS]
    assert found.exit_code == 0


def _other_firmware(docs: Docs) -> None:
    docs[f"{CHASSIS}/NetworkAdapters/NIC.Slot.2"]["Controllers"][0]["FirmwarePackageVersion"] = "99.1.2"


def test_other_firmware_ends_the_signed_paper(site: Site) -> None:
    site.sign()
    site.change(_other_firmware)
    found = site.checked()
    assert found.lines()[0] == AS_SIGNED
    assert re.fullmatch(
        rf"signed paper  ENDED: gpu1 slot NIC.Slot.2: .* firmware 99.1.2, was .* {DAY}", found.lines()[1]
    )
    assert found.lines()[2] == "signed paper  what to do: validate the site again, and sign that run"
    assert found.exit_code == 3
    assert found.document()["ended_by"]


def test_a_paper_whose_last_day_has_passed_is_expired_in_lines_document_and_code() -> None:
    found = PartsChecked(Signed(Record("run", "2024-11-21", "", "2025-11-21"), (), ""), 0)
    assert found.lines()[1] == "signed paper  EXPIRED: its last day was 2025-11-21"
    assert (found.exit_code, found.document()["expired"]) == (3, True)


def _other_parts(docs: Docs) -> None:
    docs[f"{CHASSIS}/NetworkAdapters/NIC.Slot.2"]["SerialNumber"] = "<b>X\x1b[2J\u202e"
    docs[f"{SYSTEM}/Memory/DIMM.Socket.A3"]["SerialNumber"] = "D0002005"  # of gpu2
    docs[f"{SYSTEM}/Storage/CPU.1"]["Drives"].pop()


def test_another_part_one_that_moved_and_one_that_is_gone_are_named(site: Site) -> None:
    site.sign()
    site.change(_other_parts)
    done = site.check("--junit", "out.xml")
    assert lines(done)[0].startswith("serial numbers  FAILED: 4 differences, 46 parts with a serial number "), (
        done.stderr
    )
    expected = {
        f"gpu1 slot NIC.Slot.2: network card serial <b>X\\u001b[2J\\u202e, was N0001002 {DAY}",
        f"gpu1 slot DIMM.Socket.A3: memory module serial D0002005 moved, was in gpu2 slot DIMM.Socket.A5 {DAY}",
        f"gpu1 slot DIMM.Socket.A3: memory module serial D0001003 {DAY} is gone; in its place is serial D0002005, "
        "which moved there",
        f"gpu1 slot Disk.Bay.1: drive serial S0001001 {DAY} is gone",
    }
    assert set(lines(done)[1:]) == {f"serial numbers  FAILED {words}" for words in expected}
    assert not {"\x1b", "\u202e"} & set(done.stdout)
    assert done.returncode == 1
    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(site.folder / "out.xml"))}
    assert (suites["serial numbers"].failures, suites["serial numbers"].errors) == (4, 0)
    answer = CheckedParts.model_validate(site.checked().document())
    assert (answer.state, answer.run, answer.signed_on) == ("different", RUN, "2026-11-21")
    assert len([one for one in answer.changes if one.what in DIFFERENT]) == 4


def test_a_bmc_that_does_not_answer_confirms_nothing_and_nothing_is_gone(site: Site) -> None:
    site.sign()
    site.rack.declare(gpu1={"bmc": {"address": "127.0.0.1", "port": 1, "user": USER}})
    found = site.checked()
    assert (found.exit_code, found.different) == (3, ())
    assert found.lines()[0].startswith("serial numbers  INCOMPLETE: 6 readings missing, 46 parts")
    assert all(" NOT READ gpu1: " in line for line in found.lines()[1:-1])
    words = "memory module serial numbers of 32 are not confirmed: not read now (the BMC: "
    assert any(words in line for line in found.lines())


def test_a_signed_run_that_was_changed_by_hand_is_no_record(site: Site) -> None:
    site.sign()
    results = site.run / "results.jsonl"
    results.write_text(results.read_text().replace("N0001002", "X777"))
    site.change(_other_parts)
    found = site.checked()
    assert (found.exit_code, found.changes) == (3, ())
    (line,) = found.lines()
    assert line.startswith(f"serial numbers  NOT COMPARED: {RUN} was signed, but is not as it was signed: results")
    assert line.endswith(f"Next: toolkit verify {site.run}")


def test_the_newest_signed_run_of_the_site_that_has_parts_is_the_record(site: Site) -> None:
    site.sign()
    folder = site.folder / "runs"
    later, other, bare = (f"2026-11-2{day}T10-15-00Z-tcp10" for day in (2, 3, 4))
    make_run(folder / later, run=later, virtual=False, names=("gpu1",), suites=("preflight",), site="site")
    elsewhere = {"parts": {"gpu1": hardware_case.Rack().hosts["gpu1"]}}
    for run, name, more in ((other, "elsewhere", elsewhere), (bare, "site", {})):
        make_run(
            folder / run, run=run, virtual=False, names=("gpu1",), suites=("preflight",), site=name, waive=True, **more
        )
        write_formats(folder / run, FORMATS)
        sign_run(folder / run, site.folder / "key", "A. Example", "Example AG", moment=LATER)
    (folder / "2026-11-25T10-15-00Z-tcp10").mkdir()
    (folder / "2026-11-25T10-15-00Z-tcp10/run.json").write_text("{")
    signed = newest_signed(folder, "site")
    assert signed.record is not None
    assert signed.record.run == RUN  # not the unsigned one, another site's, one without parts, or one that is damaged


@pytest.mark.parametrize("edit", ["elsewhere", None])
def test_a_signed_run_whose_run_json_was_changed_is_not_passed_over(site: Site, edit: str | None) -> None:
    site.sign()
    info = site.run / "run.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "site": edit}) if edit else "{")
    found = site.checked()
    assert (found.state, found.exit_code) == ("not-compared", 3)
    assert "run.json" in found.lines()[0]


def test_a_packed_bundle_in_the_folder_of_runs_is_the_record_too(site: Site) -> None:
    site.sign()
    bundle_run(site.run, site.folder / "runs" / f"{RUN}.zip")
    shutil.rmtree(site.run)
    (site.folder / "runs/2026-11-29T10-15-00Z-tcp10.zip").write_bytes(b"no bundle")
    (site.folder / "runs/notes.zip").write_bytes(b"no bundle")
    assert site.checked().lines() == [AS_SIGNED, HOLDS]
    site.change(_other_parts)
    assert (site.checked().state, site.checked().exit_code) == ("different", 1)


def test_a_bundle_counts_beside_its_run_that_lost_its_signatures(site: Site) -> None:
    site.sign()
    bundle_run(site.run, site.folder / "runs" / f"{RUN}.zip")
    shutil.rmtree(site.run / "signatures")
    (site.run / "MANIFEST.sha256").unlink()
    assert site.checked().lines() == [AS_SIGNED, HOLDS]


def test_a_run_whose_signatures_were_taken_away_is_not_passed_over_for_an_older_one(site: Site) -> None:
    site.sign()
    newer = site.folder / "runs/2026-11-22T10-15-00Z-tcp10"
    shutil.copytree(site.run, newer)
    info = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps({**info, "run": newer.name}))
    shutil.rmtree(newer / "signatures")
    found = site.checked()
    assert (found.state, found.exit_code) == ("not-compared", 3)
    (line,) = found.lines()
    assert f"{newer.name} has a MANIFEST.sha256 and no signatures" in line
    (newer / "MANIFEST.sha256").unlink()  # an unsigned copy, as toolkit validate advises to make one
    assert site.checked().state == "same"


def test_two_bundles_are_compared_without_unpacking_them(site: Site) -> None:
    site.sign()
    packed = site.folder / "factory.zip"
    bundle_run(site.run, packed)
    before = sorted(site.folder.rglob("*"))
    done = command(site.folder, ("compare", "factory.zip", str(site.run)), {})
    assert done.returncode == 0, done.stderr
    assert RUN in done.stdout
    assert sorted(site.folder.rglob("*")) == before
    packed.write_bytes(packed.read_bytes()[:-1])
    done = command(site.folder, ("compare", "factory.zip", str(site.run)), {})
    assert (done.returncode, "factory.zip: is not a bundle, or its end was cut" in done.stderr) == (2, True)
