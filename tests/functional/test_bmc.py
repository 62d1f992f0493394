"""BMCs read by Redfish over real TLS: whole, slow, broken, refused; the password is in no output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import bmcs
from toolkit.lab.bmc.constructed import MANAGER, SYSTEM, tag
from toolkit.lab.bmc.emulated import EmulatedBmc, Traps
from validation.kinds import parse
from validation.measures.hardware.bmc_probe import read
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.probes import redfish

pytestmark = pytest.mark.computes


def facts(document: dict[str, Any], names: list[str]) -> BmcFacts:
    params = {"nodes": tuple(names)}
    samples, found = parse("bmc", {k: v for k, v in document.items() if k != "output"}, params)
    assert isinstance(found, BmcFacts)
    assert samples[0].value == sum(not one.error for one in found.nodes)
    return found


def one(tmp_path: Path, bmc: EmulatedBmc, deadline_s: float = 10.0, **changed: Any) -> BmcNode:
    """What the probe's reading finds at one BMC, in this process."""
    cert, _, _ = bmcs.certificate(tmp_path)
    given = {"address": "127.0.0.1", "port": bmc.port, "user": bmcs.USER, "password": bmcs.PASSWORD, "ca": str(cert)}
    found = read({**given, **changed}, deadline_s)
    assert bmcs.PASSWORD not in json.dumps(found)
    return BmcNode.model_validate_json(json.dumps({**found, "node": "n1"}))


@pytest.mark.parametrize(("kind", "gpus", "dimms"), [("14G", 4, 12), ("16G", 8, 32), ("17G", 8, 24)])
def test_every_part_of_three_generations_is_read_and_nothing_is_written(
    tmp_path: Path, kind: str, gpus: int, dimms: int
) -> None:
    with bmcs.bmcs(tmp_path, ["n1"], kind=kind) as there:
        found = one(tmp_path, there["n1"])
        bmc = there["n1"]
    assert (found.error, found.missing) == ("", ())
    assert found.server.service_tag == tag(1)
    assert found.emulated
    assert [len(found.of(kind)) for kind in ("cpu", "gpu", "dimm", "nic", "drive", "psu", "fan")] == [
        2, gpus, dimms, 2, 2, 2, 1,
    ]  # fmt: skip
    assert all(part.serial for part in (*found.of("gpu"), *found.of("dimm"), *found.of("drive"), *found.of("psu")))
    assert found.of("nic")[0].macs == ("02:ea:00:00:01:01",)
    assert found.bios is not None
    assert "SetupPassword" not in found.bios
    assert {v.version for v in found.firmware or ()}.isdisjoint({"0.1"})  # former versions are not installed
    assert found.manager is not None
    assert (found.manager.ipmi, found.manager.port) == (False, "Dedicated")
    assert found.power.redundancy_health == "OK"
    assert bmc.writes == []
    assert bmc.sessions == set()  # logged out
    assert {line.split()[0] for line in bmc.requests} == {"GET", "POST", "DELETE"}


def test_the_probe_reads_all_at_once_and_names_those_that_do_not_answer(tmp_path: Path) -> None:
    names = ["n1", "n2", "n3", "n4"]
    with bmcs.bmcs(tmp_path, names, {"n2": Traps(rubbish=("/v1",)), "n3": Traps(dribble=True)}) as there:
        where = bmcs.inventory(tmp_path, there)
        there["n4"].close()
        begin = time.monotonic()
        document = bmcs.probe(where, names, deadline_s=2.5)
        took = time.monotonic() - begin
    assert document["error"] is None, document["output"]
    assert took < 25
    found = {node.node: node for node in facts(document, names).nodes}
    assert found["n1"].error == ""
    assert found["n1"].of("gpu")
    assert "not as Redfish: its answer is no JSON" in found["n2"].error
    assert "the time for this BMC was over" in found["n3"].error
    assert "does not answer on port" in found["n4"].error
    assert bmcs.PASSWORD not in document["output"]


def test_a_wrong_password_is_one_sentence_and_is_tried_once(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        where = bmcs.inventory(tmp_path, there)
        document = bmcs.probe(where, ["n1"], ELASTIC_AI_BMC_PASSWORD="Wr0ng-0ne")
        requests = there["n1"].requests
    (found,) = facts(document, ["n1"]).nodes
    assert found.error == "it refuses the login of user acceptance: wrong user or password, or no right"
    assert len(requests) == 1  # a second try could lock the account
    assert "Wr0ng-0ne" not in document["output"]


def test_a_password_of_a_vault_is_found_and_without_its_key_or_any_it_says_so(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        where = bmcs.inventory(tmp_path, there, password="{{ of_the_vault }}")
        key = tmp_path / "key"
        key.write_text("the key of this vault\n")
        vault = tmp_path / "group_vars/all/vault.yml"
        vault.parent.mkdir(parents=True)
        vault.write_text(f"of_the_vault: {bmcs.PASSWORD}\n")
        sealing = [Path(sys.executable).with_name("ansible-vault"), "encrypt", "--vault-password-file", key, vault]
        subprocess.run(sealing, check=True, capture_output=True)
        assert vault.read_text().startswith("$ANSIBLE_VAULT;")
        opened = bmcs.probe(where, ["n1"], ELASTIC_AI_BMC_PASSWORD="", ANSIBLE_VAULT_PASSWORD_FILE=str(key))
        assert facts(opened, ["n1"]).nodes[0].error == ""
        shut = bmcs.probe(where, ["n1"], ELASTIC_AI_BMC_PASSWORD="")
        assert shut["error"].startswith("Ansible cannot read the inventory"), shut["error"]  # the reason, no number
        vault.unlink()
        (found,) = facts(bmcs.probe(bmcs.inventory(tmp_path, there), ["n1"], ELASTIC_AI_BMC_PASSWORD=""), ["n1"]).nodes
    assert "there is no password" in found.error
    assert bmcs.PASSWORD not in opened["output"] + shut["output"]


def test_nothing_is_sent_to_a_bmc_whose_certificate_is_not_the_one(tmp_path: Path) -> None:
    _, _, print_ = bmcs.certificate(tmp_path)
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        bmc = there["n1"]
        untrusted = one(tmp_path, bmc, ca="")
        assert "its certificate is not trusted" in untrusted.error
        assert print_ in untrusted.error  # to be compared with what the BMC's own page shows
        other = one(tmp_path, bmc, ca="", fingerprint="0" * 64)
        assert "its certificate is another" in other.error
        assert bmc.requests == []
        assert one(tmp_path, bmc, ca="", fingerprint=":".join(print_[i : i + 2] for i in range(0, 64, 2))).error == ""


def test_what_is_broken_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    traps = Traps(
        rubbish=("/Memory",), cut=("/Storage",), status={"/FirmwareInventory": 500, "CPU.Socket.1": 404}, busy=1
    )
    with bmcs.bmcs(tmp_path, ["n1"], {"n1": traps}, kind="14G") as there:
        docs = there["n1"].docs
        docs[f"{SYSTEM}/Processors/Video.Slot.2-1"]["SerialNumber"] = 17
        docs[f"{SYSTEM}/Bios"] = {"Attributes": ["no", "object"]}
        found = one(tmp_path, there["n1"])
    missing = {one.what: one.why for one in found.missing}
    assert missing["Memory"] == "its answer is no JSON"
    assert missing["Storage"] == "its answer ends before its end"
    assert missing["FirmwareInventory"] == "status 500"
    assert missing["processor CPU.Socket.1"] == "it has no such resource"
    assert missing["processor Video.Slot.2-1"] == "SerialNumber is '17', no text"
    assert missing["Bios"] == "Attributes is \"['no', 'object']\", no object"
    assert len(found.of("gpu")) == 3
    assert len(found.of("psu")) == 2
    assert found.bios is None


@pytest.mark.parametrize("port", ["abc", 0, 70000, -1, 443.5, True, [443]])
def test_a_port_that_is_none_is_one_sentence_about_the_inventory(tmp_path: Path, port: Any) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        found = one(tmp_path, there["n1"], port=port)
    assert found.error == f"bmc.port of the inventory is {port!r}; a port is a number from 1 to 65535"


def test_another_operation_that_runs_on_is_named_and_not_waited_for_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "OPERATION_S", 1.5)
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        bmc, answer = there["n1"], there["n1"].answer

        def busy(method: str, path: str, token: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
            if path.partition("?")[0].endswith("/Memory"):
                told = [{"MessageId": "IDRAC.2.8.RAC0679", "Message": "A job operation is already running."}]
                return 503, {"error": {"@Message.ExtendedInfo": told}}, {}
            return answer(method, path, token, body)

        monkeypatch.setattr(bmc, "answer", busy)
        begin = time.monotonic()
        found = one(tmp_path, bmc, deadline_s=120.0)
        took = time.monotonic() - begin
    assert took < 60
    why = "another operation of the BMC runs (status 503, RAC0679); run this again later"
    assert {one.what: one.why for one in found.missing}["Memory"] == why
    assert found.server.service_tag == tag(1)


@pytest.mark.parametrize("link", ["https://elsewhere/redfish/v1/x", "/other", "/redfish/v1/a b\r\nX: y", ""])
def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path, link: str) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        there["n1"].docs[SYSTEM]["Memory"] = {"@odata.id": link}
        found = one(tmp_path, there["n1"])
    assert [one.why for one in found.missing if one.what == "Memory"] == [f"{link!r} is no path of Redfish"]


def test_a_slow_bmc_ends_with_its_deadline_and_what_was_read_is_kept(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"], {"n1": Traps(delay_s=0.15)}, kind="14G") as there:
        begin = time.monotonic()
        found = one(tmp_path, there["n1"], deadline_s=1.2)
        took = time.monotonic() - begin
    assert took < 8
    assert found.error == ""
    assert found.server.service_tag == tag(1)
    assert any("time for this BMC was over" in one.why for one in found.missing)


def test_a_header_that_comes_byte_by_byte_ends_with_the_deadline_and_the_session_is_closed(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"], {"n1": Traps(drip=("/Memory",))}) as there:
        begin = time.monotonic()
        found = one(tmp_path, there["n1"], deadline_s=2.0)
        took = time.monotonic() - begin
        assert there["n1"].sessions == set()
    assert took < 8
    assert {one.what: one.why for one in found.missing}["Memory"] == "the time for this BMC was over"
    assert found.server.service_tag == tag(1)


def test_a_number_or_text_that_no_document_can_hold_costs_itself_alone(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1", "n2"]) as there:
        docs = there["n1"].docs
        docs[SYSTEM]["Model"] = "Power\ud800Edge"
        docs[f"{SYSTEM}/Memory/DIMM.Socket.A1"]["CapacityMiB"] = float("inf")
        docs[f"{SYSTEM}/Memory/DIMM.Socket.A2"]["CapacityMiB"] = 10**400
        docs[f"{SYSTEM}/Bios"]["Attributes"] |= {"Odd": float("nan"), "Odd\udfff": "\udfff"}
        document = bmcs.probe(bmcs.inventory(tmp_path, there), ["n1", "n2"])
    first, second = facts(document, ["n1", "n2"]).nodes
    assert (first.error, first.missing, second.error) == ("", (), "")
    assert first.server.model == "Power?Edge"
    assert [part.size for part in first.of("dimm")][:3] == [None, None, 64.0]
    assert first.bios is not None
    assert (first.bios["Odd"], first.bios["Odd?"]) == (None, "?")


def test_an_event_log_is_read_page_by_page(tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        path = f"{MANAGER}/LogServices/Sel/Entries"
        docs = there["n1"].docs
        docs[path]["Members@odata.nextLink"] = f"{path}/more"
        docs[f"{path}/more"] = {"Members": [{"Id": "2", "Severity": "Critical", "Message": "Correctable error"}]}
        found = one(tmp_path, there["n1"])
    assert [event.id for event in found.events or ()] == ["1", "2"]
