"""`toolkit check` with the real pytest, testinfra and ansible-inventory over a stand-in of ssh; the record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from tests.functional.test_deploy_run import Site
from tests.support.asbuilt_documents import built, deployment
from tests.support.asbuilt_rack import Rack
from tests.support.warm import command
from toolkit.deploy.site_state import SiteState
from validation.base import project
from validation.kinds import parse
from validation.measures.asbuilt.checks import checks_of
from validation.model.built import HowBuilt

pytestmark = pytest.mark.computes

ROOT = Path(__file__).resolve().parents[2]
WALK = ROOT / "tests/data/walk"  #: The hub is on another node.
PASSED = f"client1  ok: {len(checks_of(('clients',))) - 1} checks passed, 1 do not concern it\n"


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    return Rack(tmp_path)


def test_a_node_that_is_as_built_is_one_line_and_exit_0(rack: Rack) -> None:
    done = rack.check("--limit", "client1", "--junit", "out.xml")
    count = len(checks_of(("clients",)))
    assert (done.returncode, done.stdout) == (0, PASSED), done.stderr
    assert "checking client1" in done.stderr
    assert "serial numbers  NOT COMPARED: runs has no signed run of site site; toolkit validate, then" in done.stderr
    (suite,) = JUnitXml.fromfile(str(rack.folder / "out.xml"))
    assert (suite.name, suite.tests, suite.failures, suite.errors) == ("client1", count, 0, 0)


def test_a_failed_check_is_named_with_what_to_do_and_a_lost_node_is_not_taken_for_one(rack: Rack) -> None:
    rack.nodes["head"].stops("slurmctld")
    del rack.nodes["client1"]
    done = rack.check("--limit", "heads,client1", "--junit", "out.xml")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("head     FAILED: ")
    assert (
        "head     FAILED test_pool.py::test_controller_and_accounting_run: slurmctld does not run. "
        "Next: toolkit deploy -i site --limit head -- --tags pool"
    ) in lines
    count = len(checks_of(("clients",)))
    (lost,) = (line for line in lines if line.startswith("client1"))
    assert lost == (
        "client1  NOT CHECKED: does not answer; is it up? (ssh: connect to host 10.0.0.11 port 22: No route to host). "
        "Next: see that it is on and that ssh reaches it at its address, then: "
        "toolkit check -i site --limit client1"
    )
    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(rack.folder / "out.xml"))}
    assert (suites["head"].failures, suites["client1"].errors) == (1, count)
    alone = rack.check("--limit", "client1", "--json")
    (said,) = json.loads(alone.stdout)["nodes"]
    assert (alone.returncode, said["state"], len(said["checks"])) == (3, "not-checked", count)
    assert said["error"].startswith("does not answer; is it up? (ssh: ")
    assert "testinfra" not in done.stdout + alone.stdout, "no internals of Python"


def test_stock_pytest_runs_the_same(rack: Rack) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hosts=ansible://client1"]
    words += [f"--ansible-inventory={rack.folder / 'site'}", "validation/asbuilt"]
    env = {**rack.environment(), "ANSIBLE_CONFIG": "ansible.cfg"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["PATH"] = f"{rack.folder / 'bin'}{os.pathsep}{env['PATH']}"
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{len(checks_of(('clients',))) - 1} passed, 1 skipped" in done.stdout, "of the hub, which is elsewhere"


def test_templates_are_resolved_as_in_the_roles(rack: Rack) -> None:
    """Addresses and expectations by templates: no check is left out for want of a value, and none expects another."""
    file = rack.folder / "site/hosts.yml"
    document = yaml.safe_load(file.read_text())
    client = document["all"]["children"]["clients"]["hosts"]["client1"]
    client |= {
        "ansible_host": "10.0.0.{{ last }}",
        "last": 11,
        "fabric_mtu": "{{ mtus.fabric }}",
        "mtus": {"fabric": 9000},
    }
    client["fabric_ports"] = [{"interface": "fab{{ 0 }}", "address": "10.1.0.{{ last }}/24"}]
    client["nobody_asks"] = "{{ ansible_facts.nodename }}"
    file.write_text(yaml.safe_dump(document))
    done = rack.check("--limit", "client1")
    assert (done.returncode, done.stdout) == (0, PASSED), done.stderr
    client["fabric_mtu"] = "{{ mtus.fabric // 6 }}"
    file.write_text(yaml.safe_dump(document))
    done = rack.check("--limit", "client1")
    assert done.returncode == 1
    assert "client1  FAILED test_fabric.py::test_ports_have_address_and_mtu" in done.stdout


def test_bad_input_is_one_line_and_exit_2(rack: Rack) -> None:
    for arguments, words in (
        (("--limit", "gpu9"), "--limit gpu9: no such node or group; there are: head, client1, gpu1"),
        (("-i", "nowhere"), "nowhere: no such file"),
    ):
        done = rack.check(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


# --- deployments ------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "['true']")


def converged(site: Site) -> Any:
    """What the probe would say: the command that it runs, on this folder."""
    done = site.deploy("-i", "inventory", "--check", "--json")
    document = {"kind": "converged", "tool": "t", "error": None, "returncode": 0, "stdout": done.stdout}
    return parse("converged", {**document, "facts": {"exit": done.returncode}}, {"nodes": ("one", "two")})  # type: ignore[typeddict-item]


def test_each_deployment_goes_on_record_and_after_it_nothing_would_change(site: Site) -> None:
    samples, facts = converged(site)
    assert [s.value for s in samples] == [2]
    assert facts.node("one").tasks == ("base: Have a file",)  # type: ignore[union-attr]
    assert site.deploy().returncode == 0
    samples, _ = converged(site)  # neither of both is a deployment
    assert [s.value for s in samples] == [0]
    assert site.deploy("-i", "inventory", "--limit", "one", "--", "--tags", "all", "-e", "secret=1").returncode == 0
    first, second = site.record()
    assert [(n.node, n.outcome, n.changed, n.roles) for n in first.nodes] == [
        ("one", "ok", 1, {"base": 1}), ("two", "ok", 1, {"base": 1}),
    ]  # fmt: skip
    assert (first.finished, first.check, first.limit, first.stages) == (True, False, None, ("base", "training"))
    assert "@" in first.who
    assert first.began < first.ended < second.began
    assert (second.limit, second.options, second.other_options) == ("one", ("--tags all",), 2)
    assert "secret" not in second.model_dump_json()
    assert (first.commit, first.modified) == project.commit()  # of the toolkit that ran, not of the folder


def test_a_site_that_cannot_be_looked_at_gives_no_result(site: Site) -> None:
    (site.folder / "training.yml").write_text("- name: Second\n  hosts: all\n  rolls: []\n")
    done = site.deploy("-i", "inventory", "--check", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["finished"] is False


# --- in a validation --------------------------------------------------------------------------------------------


def test_a_validation_judges_both_and_keeps_the_record_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(WALK / "three-nodes", tmp_path / "site")
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    monkeypatch.setenv("XDG_STATE_HOME", env["XDG_STATE_HOME"])
    state = SiteState(tmp_path / "site")
    state.folder.mkdir(parents=True)
    done = deployment([built("gpu1", changed=3, roles={"base": 3}, tasks=("a", "b", "c"))], check=False)
    state.write_built(done)
    with (state.folder / "built.jsonl").open("ab") as record_of_site:
        record_of_site.write(b'{"torn')
    words = (
        "validate",
        "--fabric",
        str(WALK / "tcp1.yml"),
        "-i",
        "site",
        "--suite",
        "preflight",
        "--suite",
        "as-built",
    )
    ran = command(tmp_path, (*words, "--format", "html", "--format", "json", "--json"), env, WALK / "play.py")
    verdict = {c["id"]: c["verdict"] for c in json.loads(ran.stdout)["criteria"]}
    assert (verdict["pf.asbuilt"], verdict["pf.converged"]) == ("pass", "pass"), ran.stderr
    (run,) = (tmp_path / "runs").iterdir()
    kept = HowBuilt.model_validate_json((run / "built.json").read_text())
    assert (kept.deployments, kept.left_out) == ((done,), 1)
    assert "built.json" in json.loads((run / "run.json").read_text())["documents"]
    page = (run / "report.html").read_text().partition('id="built"')[2].partition("</section>")[0]
    for shown in ("anna@controller", "commit c0ffee000000", "the whole site", "1 node ok", "gpu1: base 3"):
        assert shown in page, shown
    assert json.loads((run / "report.json").read_text())["built"]["deployments"][0]["who"] == "anna@controller"
    assert "<testcase" in next((run / "raw/as-built.gpu1").glob("gpu1.out")).read_text()
    (run / "built.json").write_text(kept.model_copy(update={"deployments": ()}).model_dump_json())
    again = command(tmp_path, ("report", str(run), "--format", "json"), env)
    assert again.returncode == 2
    assert "built.json: was changed since the run began" in again.stderr
