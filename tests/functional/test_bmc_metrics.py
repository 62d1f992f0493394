"""What BMCs say for Prometheus: emulated ones over real TLS, whole, failing, hostile; and who gets the password."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import bmcs
from tests.support.monitoring_head import role
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.bmc.constructed import CHASSIS, SYSTEM
from toolkit.lab.bmc.emulated import SESSIONS, EmulatedBmc, Traps
from validation.base.project import ROOT
from validation.probes import redfish, redfish_parts

pytestmark = pytest.mark.computes
Found = tuple[dict[tuple[str, ...], float], str | None]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program as a module, with what is beside it on a head."""
    monkeypatch.syspath_prepend(str(ROOT / "roles/monitoring/files"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("bmc_metrics")
    for name in ("bmc_metrics", "textfile"):
        sys.modules.pop(name)


def told(folder: Path, there: dict[str, EmulatedBmc], **changed: str) -> Path:
    """The head's file."""
    cert, _, _ = bmcs.certificate(folder)
    account = {"user": bmcs.USER, "password": bmcs.PASSWORD, "ca": str(cert), "fingerprint": "", **changed}
    rows = [{"node": name, "address": "127.0.0.1", "port": one.port, **account} for name, one in there.items()]
    path = folder / "bmc.json"
    path.write_text(json.dumps({"bmcs": rows}))
    return path


def read(program: Any, reading: Any) -> Found:
    """Samples by name and labels but the node's, as a file that node-exporter takes; and what went wrong."""
    samples, fault = reading()
    text = program.run_command.__globals__["exposition"](program.HELP, samples)
    assert bmcs.PASSWORD not in text + str(fault)
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)), "node-exporter takes no file with the same twice"
    short = {
        (name.removeprefix("elastic_ai_bmc_"), *map(str, labels.values())): value for name, labels, value in samples
    }
    return short, fault


@pytest.mark.parametrize("kind", ["14G", "16G", "17G"])
def test_three_generations_say_how_their_servers_are(program: Any, tmp_path: Path, kind: str) -> None:
    with bmcs.bmcs(tmp_path, ["n1"], kind=kind) as there:
        bmc = there["n1"]
        sensor = f"{CHASSIS}/Sensors/SystemBoardInletTemp"
        bmc.docs[sensor] = {**bmc.docs[sensor], "Thresholds": {"UpperCritical": {"Reading": 47}}}
        bmc.docs[SYSTEM] = {**bmc.docs[SYSTEM], "Status": {"Health": "OK", "HealthRollup": "Warning"}}
        found, fault = read(program, program.Bmcs(told(tmp_path, there)))
        assert bmc.writes == []
        assert bmc.sessions == set(), "it logged out"
    assert fault is None
    assert found == {
        ("up", "n1"): 1,
        ("healthy", "n1"): 0,
        ("redundant", "n1"): 1,
        ("part_healthy", "n1", "psu", "PSU.Slot.1"): 1,
        ("part_healthy", "n1", "psu", "PSU.Slot.2"): 1,
        ("part_healthy", "n1", "fan", "Fan1"): 1,
        ("temperature_celsius", "n1", "Inlet"): 23,
        ("temperature_critical_celsius", "n1", "Inlet"): 47,
        ("power_watts", "n1"): 900,
        ("fan_rpm", "n1", "Fan1"): 9000,
        **({("fan_ratio", "n1", "Fan1"): 0.45} if kind != "14G" else {}),
    }


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        ({"FanName": "F", "Reading": 30, "ReadingUnits": "Percent"}, [("ratio", 0.3)]),
        ({"FanName": "F", "Reading": 9000, "ReadingUnits": "RPM"}, [("rpm", 9000)]),
        ({"FanName": "F", "Reading": 9000, "ReadingUnits": "Furlongs"}, []),
        ({"FanName": "F", "Reading": None, "SpeedPercent": {"Reading": None}}, []),
        ({"FanName": "F", "Status": {"State": "Absent"}, "Reading": 0}, []),
        ({"Name": "F", "SpeedPercent": {"Reading": 0, "SpeedRPM": 0}}, [("ratio", 0), ("rpm", 0)]),
    ],
)
def test_how_fast_a_fan_turns_is_told_in_what_the_bmc_says(doc: dict[str, Any], said: list[tuple[str, float]]) -> None:
    assert [(one["kind"], one["value"]) for one in redfish_parts.speeds(doc)] == said


def test_a_power_supply_without_input_is_named(program: Any, tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1", "n2"]) as there:
        BMC_FAULTS["psu-not-redundant"].spoil(there["n2"].docs)
        found, fault = read(program, program.Bmcs(told(tmp_path, there)))
    assert fault is None
    assert {key for key, value in found.items() if value == 0} == {
        ("redundant", "n2"),
        ("part_healthy", "n2", "psu", "PSU.Slot.2"),
    }


def test_two_parts_of_one_name_are_one_figure(program: Any, tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"], kind="14G") as there:
        docs = there["n1"].docs
        fans = docs[f"{CHASSIS}/Thermal"]["Fans"]
        docs[f"{CHASSIS}/Thermal"] = {"Fans": [*fans, *fans, {**fans[0], "FanName": 'odd "name"\n' * 50}]}
        found, _ = read(program, program.Bmcs(told(tmp_path, there)))
    assert len([key for key in found if "fan" in key]) == 2


@pytest.mark.parametrize(
    ("traps", "why"),
    [
        (Traps(rubbish=("/v1",)), "not as Redfish"),
        (Traps(status={"/v1": 500}), "not as Redfish"),
        (Traps(dribble=True), "the time for this BMC was over"),
        (Traps(drip=("/v1",)), "the time for this BMC was over"),
    ],
    ids=["garbage", "error", "slow body", "slow header"],
)
def test_a_bmc_that_misbehaves_is_down_and_costs_no_other(program: Any, tmp_path: Path, traps: Traps, why: str) -> None:
    with bmcs.bmcs(tmp_path, ["n1", "n2"], {"n1": traps}) as there:
        found, fault = read(program, program.Bmcs(told(tmp_path, there), deadline_s=4.0))
    assert (found["up", "n1"], found["up", "n2"]) == (0, 1)
    assert [key for key in found if key[1] == "n1"] == [("up", "n1")]
    assert fault is not None
    assert why in fault


@pytest.mark.parametrize("huge", [True, False], ids=["huge", "cut"])
def test_a_section_that_cannot_be_read_has_no_figures(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, huge: bool
) -> None:
    monkeypatch.setattr(redfish, "MOST_BYTES", 1 << 16)
    with bmcs.bmcs(tmp_path, ["n1"], {} if huge else {"n1": Traps(cut=("/Sensors",))}) as there:
        if huge:
            docs = there["n1"].docs
            docs[f"{CHASSIS}/Sensors"] = {**docs[f"{CHASSIS}/Sensors"], "Filler": "x" * (1 << 20)}
        found, fault = read(program, program.Bmcs(told(tmp_path, there)))
    assert found["up", "n1"] == 1
    assert not [key for key in found if key[0].startswith("temperature")]
    assert fault is not None
    assert "temperatures: its answer" in fault


def test_a_login_that_is_refused_is_tried_once(program: Any, tmp_path: Path) -> None:
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        reading = program.Bmcs(told(tmp_path, there, password="Wr0ng-0ne"))
        for _ in range(3):
            found, fault = read(program, reading)
            assert found == {("up", "n1"): 0}
            assert fault is not None
            assert "it refuses the login of user acceptance" in fault
            assert "Wr0ng-0ne" not in fault
        assert there["n1"].requests == [f"POST {SESSIONS}"]


def test_nobody_else_gets_the_password(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where a BMC sends elsewhere, nor one with another certificate."""
    got: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.path)

        do_GET = do_POST

    other = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    place = {"Location": f"http://127.0.0.1:{other.server_port}{SESSIONS}"}
    with bmcs.bmcs(tmp_path, ["n1"]) as there:
        whole = there["n1"].answer
        monkeypatch.setattr(
            there["n1"], "answer", lambda *given: (307, {}, place) if given[0] == "POST" else whole(*given)
        )
        found, fault = read(program, program.Bmcs(told(tmp_path, there)))
        assert found == {("up", "n1"): 0}
        assert fault == "n1: it gives no session: status 307, no X-Auth-Token"
        there["n1"].requests.clear()
        found, fault = read(program, program.Bmcs(told(tmp_path, there, ca="", fingerprint="0" * 64)))
        assert found == {("up", "n1"): 0}
        assert fault is not None
        assert "its certificate is another" in fault
        assert there["n1"].requests == []
    other.shutdown()
    other.server_close()
    assert got == []


# --- the role --------------------------------------------------------------------------------------------------------

FILE, CA = "/etc/elastic-ai/monitoring/bmc.json", "/etc/elastic-ai/monitoring/bmc-ca.pem"
UNIT = "/etc/systemd/system/elastic-ai-bmc-metrics.service"


def test_the_role_brings_the_read_only_account_alone_and_prints_no_password(tmp_path: Path) -> None:
    """At its most talkative, too; the account that may write is in no file."""
    cert, _, _ = bmcs.certificate(tmp_path)
    bmc = {"address": "192.0.2.99", "user": "root", "password": "may-write-77", "ca": str(cert)}
    files, _, said = role(tmp_path, bmc=bmc, monitoring_bmc={"user": "monitor", "password": "may-read-88"})
    assert (files[FILE]["mode"], files[FILE]["secret"], files[FILE]["state"]) == ("0600", True, "present")
    assert json.loads(files[FILE]["content"]) == {
        "bmcs": [{"node": "node1", "address": "192.0.2.99", "port": 443, "user": "monitor", "password": "may-read-88",
                  "ca": CA, "fingerprint": ""}]
    }  # fmt: skip
    assert files[CA]["content"].strip() == cert.read_text().strip()
    assert files[UNIT]["state"] == "present"
    assert "--interval 300" in files[UNIT]["content"]
    assert "may-write-77" not in json.dumps(files)
    assert "may-read-88" not in said


def test_without_an_account_no_bmc_is_read(tmp_path: Path) -> None:
    files, _, _ = role(tmp_path, bmc={"address": "192.0.2.99", "user": "root", "password": "x"})
    assert FILE not in files
    assert files.get(UNIT, {}).get("state") != "present"


def test_an_account_without_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="password"):
        role(tmp_path, monitoring_bmc={"user": "monitor"})
