"""A punch list from a run that fails to a second run that closes its points, signed and verified."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.functional.test_acceptance_walk import MEASURE, NEEDS_SSH, new_desk, play, toolkit
from tests.support import answers

pytestmark = pytest.mark.computes
ASKED = (*MEASURE, "-i", "site", "--suite", "preflight", "--profile", "network-quick")


@NEEDS_SSH
def test_a_list_is_made_by_one_run_and_closed_by_the_next(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "desk")
    done = play(desk, *ASKED)
    assert done.returncode == 1, done.stderr
    (first,) = (desk / "runs").iterdir()
    done = toolkit(desk, "handover", "update")
    assert (done.returncode, done.stderr.count("--owner NAME")) == (2, 1)
    assert not (desk / "site/punch.yml").exists()
    done = toolkit(desk, "handover", "update", "--owner", "A. Example", "--json")
    said = answers.check(done.stdout, "points-updated")
    assert (done.returncode, said["new"], said["taken"]) == (1, ["P1"], True)
    assert (said["points"][0]["criterion"], said["points"][0]["node"]) == ("pf.stack", "client1")
    assert json.loads((first / "report.json").read_text())["points"][0]["state"] == "open"
    done = toolkit(desk, "handover", "open", "label of rack 3", "--class", "C", "--owner", "B", "--due", "2099-12-31",
                   "-i", "site", "--json")  # fmt: skip
    assert answers.check(done.stdout, "point")["point"]["id"] == "P2"
    done = toolkit(desk, "handover", "points", "-i", "site", "--json")
    assert [p["id"] for p in answers.check(done.stdout, "points")["points"]] == ["P1", "P2"]

    hosts = desk / "site/hosts.yml"
    address = "          ansible_host: 192.0.2.11\n"
    own = f"{address}          stack: {{os: ubuntu 24.04, docker: 29.8.1}}\n"
    hosts.write_text(hosts.read_text().replace(address, own))
    done = play(desk, *ASKED)
    second = max((desk / "runs").iterdir())
    assert second != first
    states = {p["id"]: p for p in json.loads((second / "verdict.json").read_text())["points"]}
    assert (states["P1"]["state"], states["P1"]["closed_by"]) == ("closed", second.name), done.stdout
    assert (states["P2"]["state"], states["P2"]["why"]) == ("open", "no criterion measures it, so a person closes it")
    done = toolkit(desk, "handover", "update")
    assert re.search(r"^closed: P1  closed, class A", done.stdout, re.M), done.stdout
    page = (second / "report.html").read_text()
    assert 'id="punch-list"' in page
    assert "1 open (1 C), 1 closed" in page

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(desk / "key")], check=True)
    done = toolkit(desk, "sign", str(second), "--key", "key", "--as", "A. Example, Integrator")
    assert done.returncode == 0, done.stderr
    assert "  punch.yml\n" in (second / "MANIFEST.sha256").read_text()
    done = toolkit(desk, "verify", str(second))
    assert done.returncode == 3, done.stdout  # by other rules: tcp1 is a fabric of the site's own
    assert "INTACT, BY OTHER RULES" in done.stdout
    done = toolkit(desk, "handover", "update")
    assert "is signed, so the list is not taken into it" in done.stdout


def test_a_bad_list_ends_the_run_before_anything_is_measured(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "desk")
    (desk / "site/punch.yml").write_text(
        "points:\n  - id: P1\n    class: A\n    text: slow\n    criterion: tr.tcpbv\n    owner: A\n"
        "    due: 2099-01-01\n    blocking: true\n    opened: 2026-11-01\n"
    )
    done = play(desk, *ASKED)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: site/punch.yml:5: points.0.criterion: unknown criterion")
    assert not (desk / "runs").exists()
