"""BMCs of a lab: they describe their nodes, and each planted fault is found by its criterion on its node alone."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.hardware_case import Rack, host_of
from toolkit.commands.lab import lab
from toolkit.errors import LabError
from toolkit.lab import faults, nodes, vm
from toolkit.lab.bmc import rack, serve
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.bmc.settings import BIOS, JOBS, SETTINGS
from toolkit.lab.drillplan import turns
from toolkit.lab.inventory import inventory_document
from toolkit.lab.spec import LabSpec, make_spec
from validation.measures.hardware.bmc_probe import read

pytestmark = pytest.mark.computes
HARDWARE = ("pf.parts", "pf.firmware", "pf.bios", "pf.power", "pf.sel", "pf.bmc")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    """Two machines and two containers with BMCs, as far as files go."""
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    made = make_spec("x", 3, 4, 1, vms=True, bmc=True)
    made.dir.mkdir(parents=True)
    rack.prepare(made, vm.MEMORY_MIB)
    return made


def machines(spec: LabSpec, kind: str = "") -> Rack:
    """The lab's two machines as a site, with a fault on gpu2."""
    site = Rack()
    for name in site.names:
        docs = rack.documents(spec, spec.node(name), vm.MEMORY_MIB)
        unread = [{"what": "gpus", "why": "there is no nvidia-smi, or it does not answer"}]
        site.hosts[name] = {**host_of(docs), "nics": [], "drives": [], "gpus": None, "unread": unread}
        later: dict[str, Any] = BMC_FAULTS[kind].spoil(docs) if kind and name == "gpu2" else {}
        site.docs[name], site.after[name] = docs, {**docs, **later}
    return site


@pytest.mark.parametrize("kind", ["", *BMC_FAULTS])
def test_a_fault_is_found_by_its_criterion_on_its_node_and_nobody_else_is_blamed(spec: LabSpec, kind: str) -> None:
    verdict = machines(spec, kind).verdict()
    said = {c.id: {str(j.subject): j for j in c.judgements} for c in verdict.criteria if c.id in HARDWARE}
    assert set(said) == set(HARDWARE)
    for id_, judged in said.items():
        for name, one in judged.items():
            wanted = "fail" if kind and (id_, name) == (BMC_FAULTS[kind].found_by, "gpu2") else "pass"
            assert one.verdict == wanted, (id_, name, one.reason)
            assert "emulated BMC" in one.reason


def test_a_bmc_answers_from_its_file_and_with_an_event_once_it_was_read(spec: LabSpec) -> None:
    home = rack.folder(spec)
    for path in sorted(home.glob("*.json")):
        if path.stem != "gpu2":
            path.unlink()
    assert ((home / rack.PASSWORD).stat().st_mode & 0o777, home.stat().st_mode & 0o777) == (0o600, 0o700)
    standing: dict[str, serve.Standing] = {}

    def written(kind: str) -> None:
        (spec.dir / "faults.json").write_text(json.dumps({"gpu2": kind} if kind else {}))
        rack.write(spec, spec.node("gpu2"), vm.MEMORY_MIB)
        path = home / "gpu2.json"
        path.write_text(path.read_text().replace(rack.address(spec, spec.node("gpu2")), "127.0.0.1"))
        os.utime(path, ns=(0, len(kind)))
        serve.renew(home, standing, None, 0)

    def asked() -> dict[str, Any]:
        bmc = standing["gpu2"].bmc
        der = ssl.PEM_cert_to_DER_cert((home / rack.CERTIFICATE).read_text())
        mark = hashlib.sha256(der).hexdigest()
        known = {"address": "127.0.0.1", "port": bmc.port, "user": rack.USER, "fingerprint": mark}
        found = read({**known, "password": (home / rack.PASSWORD).read_text()}, 20)
        serve.renew(home, standing, None, 0)
        return found

    written("")
    assert (asked().get("error"), asked()["power"]["redundancy_health"]) == (None, "OK")
    written("psu-not-redundant")
    assert asked()["power"]["redundancy_health"] == "Critical"
    written("bmc-event")
    assert [[event["id"] for event in asked()["events"]] for _ in range(3)] == [["1"], ["1", "2"], ["1", "2"]]
    (home / "gpu2.json").unlink()
    serve.renew(home, standing, None, 0)
    assert not standing


def test_an_inventory_declares_the_bmcs_and_holds_no_password(spec: LabSpec, tmp_path: Path) -> None:
    class Served:
        repos, fingerprint = (), ""

    where = (tmp_path / ".lab/id", tmp_path / "known", Served(), tmp_path / "keys")
    document = inventory_document(spec, *where)  # type: ignore[arg-type]
    hosts = {n: v for group in document["all"]["children"].values() for n, v in group["hosts"].items()}
    assert {name: one["bmc"]["address"] for name, one in hosts.items()} == {
        "head": "10.77.3.101", "client1": "10.77.3.102", "gpu1": "10.77.3.103", "gpu2": "10.77.3.104",
    }  # fmt: skip
    assert (rack.folder(spec) / rack.PASSWORD).read_text() not in json.dumps(document)
    plain = inventory_document(make_spec("y", 3, 4, 1), *where)  # type: ignore[arg-type]
    assert "bmc" not in json.dumps(plain)


def test_faults_of_bmcs_need_a_lab_that_has_them(spec: LabSpec) -> None:
    bare = make_spec("y", 3, 4, 1, vms=True)
    for kind in BMC_FAULTS:
        faults.check(spec, spec.node("gpu2"), kind)
        with pytest.raises(LabError, match=f"gpu2 has no BMC, and {kind} is reported by one; 'toolkit lab up --bmc'"):
            faults.check(bare, bare.node("gpu2"), kind)
    (event,) = turns(spec, ["bmc-event"])
    assert event.suites == ("preflight", "transport")  # an event has to come between two suites


def test_a_node_that_joins_is_not_given_another_lab(spec: LabSpec) -> None:
    refused = CliRunner().invoke(lab, ["up", "--add", "gpu3", "--bmc"])
    assert refused.exit_code != 0
    assert "omit --bmc" in str(refused.exception) + refused.output


def test_the_bmc_of_a_container_carries_a_bios_job_out_at_a_start_and_that_of_a_machine_takes_none(
    spec: LabSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: dict[str, int | None] = {"client1": 17}
    monkeypatch.setattr(serve, "start_mark", lambda lab, name: marks[name])
    home, standing = rack.folder(spec), dict[str, serve.Standing]()
    for path in sorted(home.glob("*.json")):
        if path.stem in ("client1", "gpu2"):
            path.write_text(path.read_text().replace(rack.address(spec, spec.node(path.stem)), "127.0.0.1"))
        else:
            path.unlink()
    serve.renew(home, standing, None, 0)
    bmc, machine = standing["client1"].bmc, standing["gpu2"].bmc
    for one in (bmc, machine):
        one.sessions.add("t")
    wanted = json.dumps({"Attributes": {"LogicalProc": "Disabled"}}).encode()
    assert machine.answer("PATCH", SETTINGS, "t", wanted)[0] == 405
    assert bmc.answer("PATCH", SETTINGS, "t", wanted)[0] == 200
    job = bmc.answer("POST", JOBS, "t", b"{}")[2]["Location"]
    for mark, state in ((17, "Scheduled"), (None, "Scheduled"), (18, "Running")):
        marks["client1"] = mark
        assert bmc.answer("GET", job, "t", b"")[1]["JobState"] == state
    time.sleep(0.3)
    assert bmc.answer("GET", job, "t", b"")[1]["JobState"] == "Completed"
    assert bmc.answer("GET", BIOS, "t", b"")[1]["Attributes"]["LogicalProc"] == "Disabled"
    for one in standing.values():
        one.bmc.close()


def test_a_start_of_a_container_is_known_by_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["systemd-nspawn", "-c", "import time; time.sleep(60)", "--machine=x"]
    with subprocess.Popen(words, executable=sys.executable) as container, subprocess.Popen(["sleep", "60"]) as other:
        try:
            monkeypatch.setattr(nodes, "processes", lambda lab, node: {container.pid, other.pid})
            for _ in range(100):  # until it is that program
                if nodes.start_mark("x", "n") is not None:
                    break
                time.sleep(0.05)
            assert nodes.start_mark("x", "n") == container.pid
            monkeypatch.setattr(nodes, "processes", lambda lab, node: {other.pid})
            assert nodes.start_mark("x", "n") is None
        finally:
            container.kill()
            other.kill()
