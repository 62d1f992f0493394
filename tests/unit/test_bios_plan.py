"""Which BIOS attributes are set in which order, and what odd BMCs answer; without a network."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from toolkit.lab.bmc.constructed import BIOS, BIOS_OF, MANAGER, ROOT, SYSTEM, server
from toolkit.lab.bmc.registry import VALUES, followed, registry
from toolkit.lab.bmc.settings import JOBS, SETTINGS, Settings, SettingTraps
from validation.measures.hardware.bios_wishes import WISHES

bios: Any = load("plugins/plugin_utils/bios.py")
acts: Any = load("plugins/plugin_utils/bios_acts.py")
bmc: Any = sys.modules[acts.Machine.__module__]
NAMES = {name: "" for name in "ABC"}


def entry(name: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"AttributeName": name, "Type": "Enumeration", "Value": [{"ValueName": v} for v in values], **more}


def rule(name: str, what: str, value: Any, *terms: tuple[str, str, str, str]) -> dict[str, Any]:
    sources = [
        {"MapTerms": join, "MapFromAttribute": source, "MapFromCondition": condition, "MapFromValue": wanted}
        for join, source, condition, wanted in terms
    ]
    return {"Dependency": {"MapFrom": sources, "MapToAttribute": name, "MapToProperty": what, "MapToValue": value}}


def made(*rules: dict[str, Any], **entries: Any) -> Any:
    attributes = [entry(name, "0", "1", **entries) for name in NAMES]
    return bios.registry_of({"RegistryEntries": {"Attributes": attributes, "Dependencies": list(rules)}}, "it")


def plan(found: Any, now: str, **wished: str) -> Any:
    return bios.plan_of(dict(zip(NAMES, now, strict=True)), found, bios.wishes_of({}, wished))


def test_what_others_depend_on_comes_first() -> None:
    chain = made(
        rule("A", "ReadOnly", True, ("AND", "B", "NEQ", "1")), rule("B", "ReadOnly", True, ("AND", "C", "NEQ", "1"))
    )
    assert plan(chain, "000", A="1", B="1", C="1").steps == [{"C": "1"}, {"B": "1"}, {"A": "1"}]
    assert plan(chain, "011", A="1", B="1", C="1").steps == [{"A": "1"}]
    assert plan(chain, "000", A="1").faults == ["A cannot be 1: it is read-only while B is 0"]


def test_attributes_that_need_each_other_are_set_at_once_or_refused() -> None:
    circle = made(
        rule("A", "ReadOnly", True, ("AND", "B", "EQU", "1")), rule("B", "ReadOnly", True, ("AND", "A", "EQU", "1"))
    )
    assert plan(circle, "000", A="1", B="1").steps == [{"A": "1", "B": "1"}]


@pytest.mark.parametrize(("join", "now", "locked"), [("AND", "010", False), ("OR", "010", True), ("AND", "011", True)])
def test_conditions_are_joined_as_the_registry_says(join: str, now: str, locked: bool) -> None:
    both = made(rule("A", "ReadOnly", True, ("AND", "B", "EQU", "1"), (join, "C", "EQU", "1")))
    assert bool(plan(both, now, A="1").faults) == locked


def test_a_value_that_another_attribute_takes_back_is_refused() -> None:
    found = made(rule("A", "CurrentValue", "0", ("AND", "B", "EQU", "1")))
    assert plan(found, "100", A="1", B="1").faults == ["A cannot be 1: it becomes 0 by another attribute that is set"]


def test_a_value_for_gpu_nodes_that_another_attribute_takes_back_is_reported_and_the_others_are_set() -> None:
    found = made(rule("A", "CurrentValue", "0", ("AND", "B", "EQU", "1")))
    wishes = bios.wishes_of({"A": (("1",), ""), "C": (("1",), "")}, {"B": "1"})
    done = bios.plan_of(dict(zip(NAMES, "000", strict=True)), found, wishes)
    assert (done.steps, done.faults) == ([{"B": "1", "C": "1"}], [])
    assert done.notes == ["A cannot be 1: it becomes 0 by another attribute that is set"]


def test_a_value_that_yaml_read_as_a_truth_is_named() -> None:
    switch = bios.registry_of({"RegistryEntries": {"Attributes": [entry("A", "On", "Off", "Last")]}}, "it")
    faults = bios.plan_of({"A": "Last"}, switch, bios.wishes_of({}, {"A": True})).faults
    assert faults == ["A has no value True, only On, Off, Last; YAML reads On as True: write it in quotes"]


def test_a_condition_of_an_unknown_kind_locks_nothing_and_a_rubbish_registry_is_none() -> None:
    assert plan(made(rule("A", "ReadOnly", True, ("AND", "B", "LIKE", "1"))), "010", A="1").steps == [{"A": "1"}]
    assert plan(made(rule("A", "ReadOnly", True, ("AND", "B", "GTR", 1))), "010", A="1").steps == [{"A": "1"}]  # type: ignore[arg-type]
    rubbish: Any
    for rubbish in ({}, {"RegistryEntries": []}, {"RegistryEntries": {"Attributes": "x", "Dependencies": [1, {}]}}):
        assert not bios.registry_of(rubbish, "it").attributes


def test_a_wish_for_gpu_nodes_is_left_out_where_the_bios_has_it_not_and_the_inventory_comes_first() -> None:
    wishes = bios.wishes_of({"A": (("2",), ""), "B": (("1",), ""), "Z": (("1",), "")}, {"B": 0})
    found = bios.plan_of(dict(zip(NAMES, "000", strict=True)), made(), wishes)
    assert (found.steps, found.faults, found.notes) == ([], [], ["A is 0: A has no value 2, only 0, 1"])


def test_the_constructed_registry_offers_what_gpu_nodes_want() -> None:
    """In one order or another, from every profile, on both makes of processors."""
    for make, profile in itertools.product(BIOS_OF, VALUES["SysProfile"]):
        now = {**BIOS, **BIOS_OF[make], "SysProfile": profile, "ProcPwrPerf": "SysDbpm", "PcieAspmL1": "Enabled"}
        now = followed(now)
        found = bios.plan_of(now, bios.registry_of(registry(now), make), bios.wishes_of(WISHES, {}))
        assert found.faults == []
        after = {**now, **{name: new for name, (_, new) in found.changes.items()}}
        assert all(after[name] in values for name, (values, _) in WISHES.items() if name in after), profile


class Direct:
    """A session that asks no network. `lost`: the ending of a path whose change is made, and whose answer is lost."""

    def __init__(self, traps: SettingTraps | None = None, lost: str = "no") -> None:
        self.docs = server(1)
        self.settings = Settings(lambda: 0, traps=traps)
        self.lost, self.sent = lost, 0

    def left_s(self) -> float:
        return 0.0

    def get(self, path: str) -> dict[str, Any]:
        plain, _, query = path.partition("?")
        if plain not in self.docs:
            raise bmc.redfish.Unread("it has no such resource", absent=True)
        found = self.docs[plain]
        if query.startswith("$expand"):
            found = {**found, "Members": [self.docs[one["@odata.id"]] for one in found["Members"]]}
        return found

    def get_all(self, paths: list[str]) -> list[Any]:
        return [self.docs.get(path) or bmc.redfish.Unread("gone", absent=True) for path in paths]

    def send(self, method: str, path: str, document: Any) -> Any:
        self.sent += 1
        status, found, headers = self.settings.write(self.docs, method, path, json.dumps(document).encode())
        if path.endswith(self.lost):
            raise bmc.redfish.Unread("no answer within 20 s")
        return bmc.redfish.Sent(status, headers.get("Location", ""), found)


def result(session: Direct, folder: Path) -> Any:
    wishes = bios.wishes_of({}, {"LogicalProc": "Disabled"})
    return acts.present(bmc.Machine(session), wishes, acts.Store(folder / "p.json"), False)


def test_a_job_that_was_made_although_its_answer_was_lost_is_found(tmp_path: Path) -> None:
    assert result(Direct(lost=JOBS), tmp_path).waiting
    with pytest.raises(bmc.Fault, match="no answer within 20 s and makes no job"):
        result(Direct(SettingTraps(no_job=True), lost=JOBS), tmp_path)


@pytest.mark.parametrize("kind", ["14G", "16G"])
def test_a_job_of_somebody_else_is_found_on_a_later_page_of_the_list(tmp_path: Path, kind: str) -> None:
    session = Direct()
    session.docs = server(1, kind)
    bare = {"@odata.id": f"{JOBS}/gone"}
    done = {"@odata.id": f"{JOBS}/1", "Id": "JID_1", "JobType": "BIOSConfiguration", "JobState": "Completed"}
    waits = {**done, "@odata.id": f"{JOBS}/2", "Id": "JID_2", "JobState": "Scheduled"}
    session.docs[JOBS] = {"Members": [done], "Members@odata.nextLink": f"{JOBS}/more"}
    session.docs[f"{JOBS}/more"] = {"Members": [{"@odata.id": f"{JOBS}/2"}, bare] if kind == "14G" else [waits]}
    session.docs[f"{JOBS}/1"], session.docs[f"{JOBS}/2"] = done, waits
    session.docs[JOBS]["Members"] = [{"@odata.id": f"{JOBS}/1"}]
    with pytest.raises(bmc.Fault, match=r"another job of the BMC changes the BIOS: JID_2 \(BIOSConfig"):
        result(session, tmp_path)


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        (f"{SYSTEM}/Bios/BiosRegistry", None, "the BMC does not show the attribute registry: it has no such resource"),
        (SYSTEM, {"Bios": {}}, "the BMC has no Bios: its BIOS is not set by Redfish"),
        (f"{ROOT}/Systems", {"Members": []}, "the BMC has no first"),
        (MANAGER, {"Links": {}}, "the BMC has no Jobs: its BIOS is not set by Redfish"),
        (MANAGER, {"Actions": {}}, "no action ExportSystemConfiguration: its profile is neither kept nor put back"),
        (f"{SYSTEM}/Bios/BiosRegistry", {"RegistryEntries": {}}, "shows no BIOS attributes, or no registry of them"),
    ],
)
def test_a_bmc_without_what_is_needed_is_one_sentence_and_gets_no_value(
    tmp_path: Path, path: str, change: dict[str, Any] | None, words: str
) -> None:
    session = Direct()
    if change is None:
        session.docs.pop(path)
    else:
        session.docs[path] |= change
    with pytest.raises(bmc.Fault, match=words):
        result(session, tmp_path)
    assert session.sent == 0
    assert not list(tmp_path.iterdir())


def test_a_damaged_profile_is_named_and_not_put_back(tmp_path: Path) -> None:
    store = acts.Store(tmp_path / "p.json")
    for text in ("{", "[]", '{"SystemConfiguration": {"Components": [{"FQDD": "NIC.1"}]}}'):
        store.path.write_text(text)
        with pytest.raises(bmc.Fault, match=r"p\.json: this profile"):
            acts.absent(bmc.Machine(Direct()), {}, store, False)


def test_what_a_bmc_says_of_a_refusal_is_read_whatever_its_form() -> None:
    words = [bmc.redfish.Sent(400, "", document).words() for document in (
        {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.8.RAC0679", "Message": "Busy."}]}},
        {"error": "no"}, {"error": {"@Message.ExtendedInfo": [1]}}, {},
    )]  # fmt: skip
    assert words == ["status 400, RAC0679: Busy.", *["status 400"] * 3]


class Ending(Direct):
    """A BMC whose job ends while it is read, right after the values."""

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, *fault: object) -> None:
        """Nothing is open."""

    def get(self, path: str) -> dict[str, Any]:
        found = json.loads(json.dumps(super().get(path)))
        if path == f"{SYSTEM}/Bios":
            self.docs[JOBS]["Members"] = []
            self.docs[path]["Attributes"]["LogicalProc"] = "Disabled"
        return dict(found)


def test_values_from_before_the_end_of_a_job_are_not_taken_for_what_it_left() -> None:
    session = Ending()
    job = {"@odata.id": f"{JOBS}/1", "Id": "JID_1", "JobType": "BIOSConfiguration", "JobState": "Running"}
    session.docs |= {f"{JOBS}/1": job, JOBS: {"Members": [{"@odata.id": f"{JOBS}/1"}]}}
    wishes = bios.wishes_of({}, {"LogicalProc": "Disabled"})
    acts.settled(lambda seconds: session, 2.0, lambda machine: acts.unmet(machine, wishes, []))


def test_a_run_that_ended_between_pending_values_and_job_is_continued(tmp_path: Path) -> None:
    session = Direct()
    session.docs[SETTINGS]["Attributes"] = {"LogicalProc": "Disabled"}
    assert result(session, tmp_path).changed
    assert len(session.docs[JOBS]["Members"]) == 2, "the export, and the job"
    again = result(session, tmp_path)
    assert (again.changed, again.waiting) == (False, True)
    session.docs[SETTINGS]["Attributes"] = {"LogicalProc": "Disabled", "MmioAbove4Gb": "Disabled"}
    with pytest.raises(bmc.Fault, match=r"wait for a start of the host by job JID_0+2 .*: LogicalProc, MmioAbove4Gb\."):
        result(session, tmp_path)


def test_pending_values_that_stay_are_named(tmp_path: Path) -> None:
    session = Direct(SettingTraps(running=True))
    session.docs[SETTINGS].pop("Actions")
    with pytest.raises(bmc.Fault, match=r"RAC0679.*could not be taken back: clear them in the BMC"):
        result(session, tmp_path)


def test_a_boot_mode_is_not_put_back(tmp_path: Path) -> None:
    session, store = Direct(), acts.Store(tmp_path / "p.json")
    session.docs[f"{SYSTEM}/Bios"]["Attributes"]["BootMode"] = "Bios"
    profile = bmc.Machine(session).profile()
    store.keep(profile)
    session.docs[f"{SYSTEM}/Bios"]["Attributes"] |= {"BootMode": "Uefi", "LogicalProc": "Disabled"}
    done = acts.absent(bmc.Machine(session), {}, store, False)
    assert done.changes == ["LogicalProc is Disabled, not Enabled"]
    assert [note for note in done.notes if note.startswith("BootMode is Uefi, was Bios, and is not put back: ")]
    (sent,) = session.settings._imports.values()
    assert sent["LogicalProc"] == "Enabled"
    assert "BootMode" not in sent
    assert store.read() == profile


def test_a_job_of_somebody_else_is_not_deleted(tmp_path: Path) -> None:
    """One for a password: its pending value is not looked at."""
    session, store = Direct(), acts.Store(tmp_path / "p.json")
    store.keep(bmc.Machine(session).profile())
    session.docs[SETTINGS]["Attributes"] = {"SetupPassword": "x"}
    assert session.send("POST", JOBS, {}).right
    sent = session.sent
    with pytest.raises(bmc.Fault, match="another job of the BMC changes the BIOS"):
        acts.absent(bmc.Machine(session), {}, store, False)
    assert session.sent == sent


def test_a_profile_that_cannot_be_written_is_one_sentence_and_nothing_is_set() -> None:
    session = Direct()
    with pytest.raises(bmc.Fault, match=r"p\.json: the profile cannot be written here: .*, so nothing is changed"):
        result(session, Path("/proc/none"))  # where nobody makes a folder
    assert session.docs[SETTINGS]["Attributes"] == {}
