"""The machines that the founding documents name: each inventory from its plan to the sign-off that its nodes deserve.

The nodes are those of tests/data/walk/machines.py: constructed facts of real machines, tools' outputs in their forms.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import machines
from tests.support.beside_progress import beside_progress
from tests.support.warm import REPO, command
from validation.model import VerdictDoc
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes

PROGRAM = REPO / "tests/data/walk/machines.py"
TODAY = datetime.datetime.now().astimezone().date()
UNMEASURED = {c.id for c in load_criteria() if c.no_probe is not None and c.required}
UNMEASURED |= {"tn.long"}  # of hours, and has to be asked for
UNMEASURED |= {"tr.nccl"}  # of none of these machines' GPUs, so many in a node, is a floor published
VIRTUAL = {"pf.pcie", "pf.numa"}  # which a virtual machine cannot show
SITES: dict[str, tuple[str, str, set[str]]] = {
    "c4130-fdr": ("elastic", "elastic-quick", set()),
    "c4140-roce40": ("elastic", "elastic-quick", set()),
    "c4140-2018": ("training", "training-quick", set()),
    "vmware-vmxnet3-10": ("network", "network", VIRTUAL),
    "vmware-roce100": ("network", "network", VIRTUAL),
    "vmware-pvrdma100": ("network", "network", {*VIRTUAL, "pf.lossless"}),
}
"""Inventory -> the profile that it declares, one that this release measures as a whole, and what has to be waived."""
CLAIMS: dict[str, set[str]] = {
    "c4130-fdr": {"C4130, PCIe GPUs", "ib-fdr"},
    "c4140-roce40": {"roce40"},
    "c4140-2018": {"C4140-K, V100 SXM2", "R740, P40", "ib-edr"},
    "vmware-vmxnet3-10": {"vmxnet3-10"},
    "vmware-roce100": {"roce100"},
    "vmware-pvrdma100": {"pvrdma100"},
}
"""Inventory -> machines and fabrics of the claims that are its own."""
MADE_UP = "CONSTRUCTED EXAMPLE"
BRIEF = ("--json", "--format", "json")
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed here")


def toolkit(desk: Path, *arguments: str, replaced: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in the folder `desk`, with the named machines as nodes; `replaced` nodes are other machines."""
    path = os.pathsep.join((str(desk / "no-pdf"), str(REPO)))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "WALK_MACHINES": json.dumps(replaced or {})}
    return command(desk, arguments, environment, PROGRAM)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder to work in, without the PDF, which takes longer than all the rest."""
    (tmp_path / "no-pdf").mkdir()
    (tmp_path / "no-pdf" / "weasyprint.py").write_text("raise ImportError\n")
    return tmp_path


def copied(desk: Path, site: str) -> Path:
    """The inventory as it is shipped."""
    shutil.copytree(REPO / "inventories" / site, desk / site)
    return desk / site


def judged(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The verdict that the command printed."""
    assert done.stdout.startswith("{"), done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def of(verdict: dict[str, Any], word: str) -> set[str]:
    """Criteria with that verdict that are owed."""
    return {c["id"] for c in verdict["criteria"] if c["verdict"] == word and c["owed"]}


def own(claims: list[dict[str, Any]]) -> set[str]:
    """Machines and fabrics that a site's own claims were made on, as far as the site has them."""
    mine = [c for c in claims if c["state"] != "elsewhere"]
    known = {word for words in CLAIMS.values() for word in words}
    return {word for c in mine for word in (*c["machines"], *(c["fabrics"] if len(c["fabrics"]) == 1 else ()))} & known


def waive(desk: Path, criteria: set[str]) -> tuple[str, ...]:
    """Waivers of a customer, as arguments."""
    who = {"who": "C. Customer, Example Bank", "when": TODAY.isoformat(), "why": "looked at on the hypervisor's host"}
    until = (TODAY + datetime.timedelta(days=60)).isoformat()
    waivers = [{"criterion": id_, **who, "expires": until} for id_ in sorted(criteria)]
    (desk / "waivers.yml").write_text(json.dumps({"waivers": waivers}))
    return ("--waivers", "waivers.yml") if criteria else ()


@needs_ssh
@pytest.mark.parametrize("site", SITES)
def test_from_the_plan_of_an_inventory_to_a_signed_example_that_passes(desk: Path, site: str) -> None:
    declared, measurable, waived = SITES[site]
    copied(desk, site)
    verdict = judged(toolkit(desk, "validate", "-i", site, *BRIEF))
    (run,) = (desk / "runs").iterdir()
    assert verdict["profile"]["name"] == declared
    assert (verdict["sign_off"], verdict["outcome"]) == (MADE_UP, "incomplete"), verdict["reason"]
    assert not of(verdict, "fail")
    assert of(verdict, "not-measured") - UNMEASURED == waived, [
        (c["id"], c["reason"])
        for c in verdict["criteria"]
        if c["verdict"] == "not-measured" and c["id"] not in UNMEASURED
    ]

    done = toolkit(desk, "validate", "--rejudge", str(run), "--profile", measurable, *waive(desk, waived), "--json")
    verdict = judged(done)
    short = [(c["id"], c["verdict"], c["reason"]) for c in verdict["criteria"] if c["owed"] and c["verdict"] != "pass"]
    assert (verdict["sign_off"], verdict["outcome"], done.returncode) == (MADE_UP, "passed", 0), short
    assert of(verdict, "waived") == waived
    assert of(verdict, "pass") >= {"pf.bom", "pf.stack", "pf.mtu", "tr.netlat"}
    if site != "vmware-vmxnet3-10":  # all other fabrics of the documents have RDMA, and it has a bound on each
        assert of(verdict, "pass") >= {"tr.rdmafn", "tr.rdmabw", "tr.rdmalat"}

    claims = json.loads((run / "report.json").read_text())["conformance"]
    assert claims["rehearsal"]
    assert claims["counts"]["confirmed"] == 0
    assert own(claims["claims"]) == CLAIMS[site]
    passed = {c["criterion"] for c in claims["claims"] if c["state"] == "rehearsed"}
    done_well = {c["id"] for c in verdict["criteria"] if c["verdict"] == "pass" or c["reason_code"] == "reported"}
    assert passed <= done_well  # nothing that a waiver lifted, and nothing without a criterion
    assert claims["counts"]["missed"] == 0

    page = (run / "report.html").read_text()
    for machine in machines.SITES[site].values():
        assert machine.model in page
        assert machine.cpu[0].replace("@", "&#64;") in page or machine.cpu[0] in page
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", desk / "key"], check=True)
    assert toolkit(desk, "sign", str(run), "--key", "key", "--as", "C. Customer, Example Bank").returncode == 0
    (statement,) = (run / "signatures").glob("*.txt")
    assert statement.read_text().startswith("# CONSTRUCTED EXAMPLE. Its data were made up; no machine was measured;")
    assert toolkit(desk, "bundle", str(run)).returncode == 0
    (desk / "signers").write_text(f"c@example.com {(desk / 'key.pub').read_text()}")
    done = toolkit(desk, "verify", f"runs/{run.name}.zip", "--allowed-signers", "signers")
    assert (done.returncode, beside_progress(done.stderr)) == (0, "")
    assert done.stdout.startswith("CONSTRUCTED EXAMPLE: its data were made up; a signature here is not an acceptance\n")
    assert done.stdout.splitlines()[-1].startswith("VERIFIED: ")


LOOK = ("validate", "-i", "c4140-2018", "--suite", "preflight", "--profile", "network-quick", *BRIEF)


def document(verdict: dict[str, Any]) -> VerdictDoc:
    """What was printed, without what the command adds to the judge's words."""
    return VerdictDoc.model_validate({key: value for key, value in verdict.items() if key in VerdictDoc.model_fields})


def reasons(verdict: dict[str, Any], id_: str) -> dict[str, str]:
    """Node -> why it failed that criterion."""
    (criterion,) = (c for c in document(verdict).criteria if c.id == id_)
    return {j.subject: j.reason for j in criterion.judgements if j.verdict == "fail"}


def test_configuration_m_in_place_of_k_is_found_by_its_processors_and_by_how_gpus_are_attached(desk: Path) -> None:
    copied(desk, "c4140-2018")
    assert judged(toolkit(desk, *LOOK))["outcome"] == "passed"
    verdict = judged(toolkit(desk, *LOOK, replaced={"gpu1": "C4140_M", "gpu2": "C4140_M"}))
    assert verdict["outcome"] == "failed"
    found = reasons(verdict, "pf.bom")
    assert set(found) == {"gpu1", "gpu2"}
    assert f"cpu_model is {machines.GOLD}, {machines.SILVER} declared" in found["gpu1"]
    assert "cpu_cores is 40, 24 declared" in found["gpu1"]
    assert "gpu_root_ports is 4, 1 declared" in found["gpu2"]


def test_configuration_m_is_accepted_where_it_was_ordered_with_its_distance_waived(desk: Path) -> None:
    """Two of its GPUs sit at the other processor than the one adapter."""
    hosts = copied(desk, "c4140-2018") / "hosts.yml"
    text = (
        hosts.read_text().replace("c4140_k:\n", "c4140_m:\n").replace("        c4140_m: {}\n", "        c4140_k: {}\n")
    )
    hosts.write_text(text)
    ordered = {"gpu1": "C4140_M", "gpu2": "C4140_M"}
    verdict = judged(toolkit(desk, *LOOK, replaced=ordered))
    assert of(verdict, "fail") == {"pf.numa"}
    assert "is on NUMA node 1, its ports elsewhere (ib0 on 0)" in reasons(verdict, "pf.numa")["gpu1"]
    verdict = judged(toolkit(desk, *LOOK, *waive(desk, {"pf.numa"}), replaced=ordered))
    assert verdict["outcome"] == "passed", verdict["reason"]
    verdict = judged(toolkit(desk, *LOOK, *waive(desk, {"pf.numa"})))  # and K in place of M
    assert "gpu_root_ports is 1, 4 declared" in reasons(verdict, "pf.bom")["gpu1"]


def test_one_node_of_the_other_configuration_is_named_alone(desk: Path) -> None:
    copied(desk, "c4140-2018")
    verdict = judged(toolkit(desk, *LOOK, replaced={"gpu2": "C4140_M"}))
    assert set(reasons(verdict, "pf.bom")) == {"gpu2"}
    found = document(verdict).findings
    assert {f.subject for f in found if "pf.bom" in f.criteria} == {"gpu2"}


def test_two_virtual_machines_of_one_host_are_no_pair_of_a_fabric(desk: Path) -> None:
    """What they say to each other never leaves the host; and no machine can tell where it runs."""
    hosts = copied(desk, "vmware-roce100") / "hosts.yml"
    text, there = hosts.read_text(), "          elastic_ai_hypervisor_host: esx2\n"
    assert there in text
    hosts.write_text(text.replace(there, there.replace("esx2", "esx1")))
    done = toolkit(desk, "validate", "-i", "vmware-roce100", *BRIEF)
    assert done.returncode == 2
    assert "pairs of client1, gpu1: virtual machines of one host, esx1, are no pair of a fabric" in done.stderr
    hosts.write_text(text.replace(there, ""))
    verdict = judged(toolkit(desk, "validate", "-i", "vmware-roce100", *waive(desk, VIRTUAL), *BRIEF))
    assert verdict["outcome"] == "incomplete"
    codes = {c["id"]: c["reason_code"] for c in verdict["criteria"]}
    assert {codes[id_] for id_ in ("pf.mtu", "tr.rdmabw", "tr.tcpbw", "tr.netlat")} == {"not-the-fabric"}
