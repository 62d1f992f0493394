"""What the acceptance role writes down of a provisioning."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load_filters

record = load_filters("record")["provisioned_record"]
PATH = "/etc/elastic-ai/provisioned.json"


def result(**changes):
    return {"state": "present", "versions": {}, "not_applicable": [], "reboot_required": [], "stand_ins": [], **changes}


def test_results_of_this_run_and_their_sums():
    ledger = {"/var/lib/elastic-ai/ledger/cuda.packages.json": json.dumps({"holds": {"libnccl2": "2.19.3-1"}})}
    written = record(
        ledger,
        {"cuda": result(stand_ins=["cuda"]), "kernel": result(not_applicable=["boot parameters: a container"])},
        "rehearsal",
    )
    assert written["release"] == "rehearsal"
    assert list(written["results"]) == ["cuda", "kernel"]
    assert written["stand_ins"] == ["cuda"]
    assert written["not_applicable"] == ["boot parameters: a container"]
    assert written["pinned"] == {"libnccl2": "2.19.3-1"}


def test_a_partial_run_keeps_what_other_roles_had_published():
    before = {PATH: json.dumps(record({}, {"cuda": result(versions={"nccl": "1"}), "dcgm": result()}, "current"))}
    written = record(before, {"cuda": result(versions={"nccl": "2"})}, "current")
    assert written["results"]["cuda"]["versions"] == {"nccl": "2"}
    assert "dcgm" in written["results"]


def test_a_role_that_was_taken_away_leaves_the_record():
    before = {PATH: json.dumps(record({}, {"dcgm": result(stand_ins=["dcgm"])}, "current"))}
    assert record(before, {"dcgm": result(state="absent")}, "current")["stand_ins"] == []


def test_a_damaged_record_is_named():
    with pytest.raises(AnsibleFilterError, match=r"provisioned\.json is damaged"):
        record({PATH: "{torn"}, {}, "current")


def test_the_order_of_a_set_makes_no_other_record():
    first, again = (record({}, {"repos": result(stand_ins=names)}, "current") for names in (["b", "a"], ["a", "b"]))
    assert first == again


def test_notes_of_a_run_are_no_part_of_what_a_node_is():
    noted = record({}, {"preflight": result(notes=["kernel module nouveau is loaded"])}, "current")
    assert noted == record({}, {"preflight": result(notes=[])}, "current")
