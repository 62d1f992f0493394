"""As built: the list of checks and the plan, JUnit files and deployments read, and what is judged of them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.support import site
from tests.support.asbuilt_documents import built, checked, converged, deployment, junit
from tests.support.tool_documents import values
from toolkit import asbuilt
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.asbuilt import checks
from validation.measures.asbuilt.facts import AsBuiltFacts
from validation.model import Measurement, Result
from validation.model.load import ConfigError
from validation.plan.suites import SUITES
from validation.rules.profile import load_profile

PLAN = site.plan_of(site.LAB, ("as-built",))
NAMES = checks.checks_of(("gpu_servers",))
ONE, TWO = NAMES[:2]


# --- the list and the plan --------------------------------------------------------------------------------------


def test_the_list_names_every_check_of_the_folder_and_no_other() -> None:
    found = set()
    for path in checks.FOLDER.glob("test_*.py"):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        found |= {f"{path.name}::{one.name}" for one in functions if one.name.startswith("test_")}
    listed = [name for entry in checks.check_list().files for name in checks.names_of(entry)]
    assert sorted(found) == sorted(listed)


def test_every_tag_of_the_list_is_a_stage_of_the_site() -> None:
    site_yml = (Path(__file__).parents[2] / "playbooks/site.yml").read_text()
    for entry in checks.check_list().files:
        assert f"tags: [{entry.tag}" in site_yml
    assert checks.tag_of("test_pool.py::test_node_daemon_runs") == "pool"
    assert checks.tag_of("test_pool.py::test_other") == ""


def test_a_check_that_is_listed_twice_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "checks.yml"
    entry = "  - {file: test_base.py, tag: base, groups: [heads], checks: [test_one]}\n"
    path.write_text("files:\n" + entry * 2)
    with pytest.raises(ConfigError, match=r"checks\.yml:1: duplicate check: test_base\.py::test_one"):
        checks.check_list(path)


def test_each_node_is_planned_with_the_checks_of_its_groups() -> None:
    planned = {m.id: m for m in PLAN.measurements}
    assert planned["as-built.gpu1"].params["checks"] == NAMES
    assert planned["as-built.client1"].params["checks"] == checks.checks_of(("clients",))
    assert "test_pool.py::test_node_daemon_runs" not in planned["as-built.client1"].params["checks"]
    assert planned["converged.site"].nodes == planned["converged.site"].params["nodes"] == site.NAMES
    assert [len(ids) for ids in PLAN.rounds] == [4, 1]


def test_a_large_site_is_checked_a_few_nodes_at_a_time() -> None:
    plan = site.plan_of(site.lab([f"gpu{i}" for i in range(20)]), ("as-built",))
    assert [len(ids) for ids in plan.rounds] == [8, 8, 4, 1]


def test_profiles_owe_it_where_site_yml_provisioned_the_site() -> None:
    for name, owed in (("elastic", True), ("training", True), ("training-long", True), ("elastic-long", True),
                       ("network", False), ("network-quick", False), ("elastic-quick", False)):  # fmt: skip
        profile = load_profile(name, site.CRITERIA, SUITES)
        assert ({"pf.asbuilt", "pf.converged"} <= set(profile.owed)) == owed, name
        assert ("as-built" in profile.suites) == owed, name


# --- reading ----------------------------------------------------------------------------------------------------


def read(document: Any, names: tuple[str, ...] = NAMES) -> tuple[list[Any], AsBuiltFacts]:
    samples, facts = parse("as-built", document, {"checks": names})
    assert isinstance(facts, AsBuiltFacts)
    return samples, facts


def test_what_became_of_each_check_is_told() -> None:
    ended = {
        ONE: ("failure", "AssertionError: chrony does not run assert False"),
        TWO: ("stopped", "Unresolved: fabric_mtu is a template"),
        NAMES[2]: ("skipped", "not applicable: base_manage_hosts is false in the inventory"),
        NAMES[3]: ("skipped", "unconditional skip"),
        NAMES[4]: ("error", "failed on setup with ConnectionError: no answer"),
    }
    samples, facts = read(checked("gpu1", spoilt=ended))
    told = {check.name: (check.outcome, check.words) for check in facts.checks}
    assert told[ONE] == ("failed", "chrony does not run")
    assert told[TWO] == ("not-run", "Unresolved: fabric_mtu is a template")
    assert told[NAMES[2]] == ("not-applicable", "base_manage_hosts is false in the inventory")
    assert told[NAMES[3]] == ("not-run", "skipped: unconditional skip")
    assert told[NAMES[4]][0] == "not-run"
    assert (values(samples, "checks_passed"), values(samples, "checks_not_passed")) == ([len(NAMES) - 5], [4])


def test_a_check_that_is_gone_was_not_run() -> None:
    _, facts = read(checked("gpu1"), (*NAMES, "test_base.py::test_removed"))
    (gone,) = facts.of("not-run")
    assert gone.name == "test_base.py::test_removed"
    assert "its file or name is gone, or it was deselected" in gone.words


def test_a_check_beyond_the_plan_counts_too() -> None:
    name = "test_ours.py::test_of_the_site"
    document = checked("gpu1")
    text = junit("gpu1", (*NAMES, name), {name: ("failure", "no")})
    _, facts = read({**document, "stdout": text, "facts": {**document["facts"], "exit": 1}})
    assert [check.name for check in facts.of("failed")] == [name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace('failures="0"', 'failures="1"'), "failures is 1, but 0 are there"),
        (lambda t: t.replace("<testsuites", '<!DOCTYPE a [<!ENTITY b "c">]><testsuites', 1), "document type"),
        (lambda t: t[: len(t) // 2], "is not whole"),
        (lambda t: t.replace("gpu1", "gpu2"), "is no check of gpu1"),
        (lambda t: t.replace("<testsuites", "<suites").replace("</testsuites", "</suites"), ""),
        (lambda t: "", "is not whole"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_none(change: Any, words: str) -> None:
    document = checked("gpu1")
    if words:
        with pytest.raises(ParseError, match=words):
            read({**document, "stdout": change(document["stdout"])})
    else:
        read({**document, "stdout": change(document["stdout"])})  # the root's name is nobody's business


def test_an_exit_status_that_the_file_contradicts_is_refused() -> None:
    document = checked("gpu1", spoilt={ONE: ("failure", "no")})
    with pytest.raises(ParseError, match="pytest ended with 0, which its JUnit file contradicts"):
        read({**document, "facts": {**document["facts"], "exit": 0}})


NODES = {"nodes": ("gpu1", "gpu2")}


def test_what_site_yml_would_change_is_read_node_by_node() -> None:
    two = built("gpu2", changed=2, roles={"base": 2}, tasks=("base: Install", "base: Configure"))
    samples, facts = parse("converged", converged((built("gpu1"), two)), NODES)
    assert values(samples, "changed_tasks") == [2]
    assert facts.node("gpu2") == two  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("nodes", "changes", "words"),
    [
        (("gpu1",), {}, "nothing is said of gpu2"),
        (("gpu1", "gpu2"), {"check": False}, "it was no run in check mode"),
        (("gpu1", "gpu2"), {"limit": "gpu1"}, "it did not look at the whole site"),
        (("gpu1", "gpu2"), {"options": ("--tags base",)}, "it did not look at the whole site"),
        (("gpu1", "gpu2"), {"other_options": 1}, "it did not look at the whole site"),
        (("gpu1", "gpu2"), {"finished": False}, "did not come to its end"),
        (("gpu1", "gpu2"), {"interrupted": True}, "it was interrupted"),
        (("gpu1", "gpu2"), {"error": "Decryption failed"}, "Decryption failed"),
    ],
)
def test_anything_but_the_whole_site_in_check_mode_is_refused(
    nodes: tuple[str, ...], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParseError, match=words):
        parse("converged", converged(map(built, nodes), changes), NODES)


def test_counts_that_contradict_each_other_are_refused() -> None:
    for odd in (built("gpu1", changed=1), built("gpu1", roles={"base": 1}), built("gpu1", ok=0)):
        with pytest.raises(ParseError, match="gpu1: "):
            parse("converged", converged((odd, built("gpu2"))), NODES)


# --- judging ----------------------------------------------------------------------------------------------------


def result_of(m: Measurement, document: Any) -> Result:
    samples, facts = parse(m.kind, document, m.params)
    return site.result(m, samples, facts=facts)


def judged(spoilt: dict[str, Any]) -> dict[str, Any]:
    """Criterion and subject -> judgement; `spoilt`: measurement -> another document, None for no usable result."""

    def change(m: Measurement) -> Result | None:
        if m.id not in spoilt:
            return None
        if spoilt[m.id] is None:
            return site.result(m, status="timeout", error="no end")
        return result_of(m, spoilt[m.id])

    verdict = site.verdict_of(site.LAB, PLAN, site.results_of(PLAN, change))
    return {f"{j.criterion} {j.subject}": j for c in verdict.criteria for j in c.judgements}


def test_a_site_as_it_was_to_be_built_passes() -> None:
    found = judged({})
    assert {j.verdict for j in found.values()} == {"pass"}
    assert len(found) == 8
    assert found["pf.asbuilt gpu1"].reason == f"all {len(NAMES)} checks passed"
    assert found["pf.converged gpu1"].reason == "site.yml would change nothing in 120 tasks"


def test_a_failed_check_fails_its_node_by_name_and_no_other() -> None:
    found = judged({"as-built.gpu1": checked("gpu1", spoilt={ONE: ("failure", "chrony does not run")})})
    one = found["pf.asbuilt gpu1"]
    assert (one.verdict, one.value) == ("fail", 1)
    assert one.reason == f"1 of {len(NAMES)} checks failed: {ONE}: chrony does not run"
    assert found["pf.asbuilt gpu2"].verdict == "pass"


@pytest.mark.parametrize("ended", [("error", "no answer"), ("stopped", "RuntimeError: 255"), ("skipped", "later")])
def test_a_check_that_could_not_be_run_is_no_pass(ended: tuple[str, str]) -> None:
    one = judged({"as-built.gpu1": checked("gpu1", spoilt={ONE: ended})})["pf.asbuilt gpu1"]
    assert (one.verdict, one.reason_code) == ("not-measured", "missing-metric")
    assert ONE in one.reason


def test_a_node_of_which_every_check_was_left_out_has_not_passed() -> None:
    left = {name: ("skipped", "not applicable: so we say") for name in NAMES}
    assert judged({"as-built.gpu1": checked("gpu1", spoilt=left)})["pf.asbuilt gpu1"].verdict == "not-measured"


def test_without_a_result_nothing_is_said() -> None:
    found = judged({"as-built.gpu1": None, "converged.site": None})
    assert {name: j.verdict for name, j in found.items() if j.verdict != "pass"} == {
        "pf.asbuilt gpu1": "not-measured", **{f"pf.converged {node}": "not-measured" for node in site.NAMES},
    }  # fmt: skip


def test_what_would_change_fails_its_node_and_one_that_was_not_reached_is_not_measured() -> None:
    nodes = [
        built("head"),
        built("client1", changed=1, roles={"base": 1}, tasks=("base: Configure the clock",)),
        built("gpu1", outcome="unreachable", ok=0, failure="no route"),
        built("gpu2", outcome="failed", failure="slurm: Validate settings: the head is missing"),
    ]
    found = judged({"converged.site": converged(nodes)})
    told = {node: found[f"pf.converged {node}"] for node in site.NAMES}
    assert {node: j.verdict for node, j in told.items()} == {
        "head": "pass", "client1": "fail", "gpu1": "not-measured", "gpu2": "fail",
    }  # fmt: skip
    assert told["client1"].reason == "site.yml would change 1: base: Configure the clock"
    assert told["gpu2"].reason_code == "not-working"


# --- toolkit check ----------------------------------------------------------------------------------------------


def of(node: str, ended: Any = None) -> asbuilt.Checked:
    document = checked(node, spoilt=ended)
    _, facts = read(document)
    return asbuilt.Checked(node, facts, "", document["stdout"])


def test_one_line_for_a_node_and_one_for_each_check_with_what_to_do() -> None:
    assert asbuilt.lines(of("gpu1"), Path("site"), 5) == [f"gpu1   ok: {len(NAMES)} checks passed"]
    pool = "test_pool.py::test_node_daemon_runs"
    found = of("gpu1", {pool: ("failure", "slurmd does not run"), ONE: ("error", "no answer")})
    head, first, second = asbuilt.lines(found, Path("site"))
    assert head == f"gpu1  FAILED: {len(NAMES) - 2} checks passed, 1 failed, 1 could not be run"
    assert first == (
        f"gpu1  FAILED {pool}: slurmd does not run. Next: toolkit deploy -i site --limit gpu1 -- --tags pool"
    )
    assert second == f"gpu1  NOT RUN {ONE}: no answer"
    (lost,) = asbuilt.lines(asbuilt.Checked("gpu1", None, "no end", ""), Path("site"))
    assert lost.startswith("gpu1  NOT CHECKED: no end. Next: ")


SILENT = "does not answer; is it up? (ssh: connect to host 10.0.0.12 port 22: No route to host)"


def test_one_cause_is_said_once_whatever_number_of_checks_it_ended() -> None:
    (line,) = asbuilt.lines(of("gpu1", dict.fromkeys(NAMES, ("error", SILENT))), Path("site"))
    assert line.startswith(f"gpu1  NOT CHECKED: {SILENT}. Next: see that it is on and that ssh reaches it")
    _, *lines = asbuilt.lines(of("gpu1", dict.fromkeys(NAMES[2:4], ("error", SILENT))), Path("site"))
    assert lines == [f"gpu1  NOT RUN {NAMES[2]}, {NAMES[3]}: {SILENT}"]
    lost = judged({"as-built.gpu2": checked("gpu2", spoilt=dict.fromkeys(NAMES, ("error", SILENT)))})
    assert lost["pf.asbuilt gpu2"].reason == f"{len(NAMES)} of {len(NAMES)} checks were not run: {SILENT}"


def test_what_testinfra_raises_is_told_without_its_form() -> None:
    from testinfra.backend.ssh import SshBackend  # type: ignore[import-untyped]

    from validation.asbuilt.unreached import words_of

    backend = SshBackend("root@10.0.0.12:2222")
    said = b"Warning: Permanently added\nroot@10.0.0.12: Permission denied (publickey).\n"
    assert words_of(RuntimeError(backend.result(255, b"true", b"", said)), "site") == (
        "refuses the key for user root; check ansible_user and ansible_ssh_private_key_file "
        "(ssh: root@10.0.0.12: Permission denied (publickey).)"
    )
    sudo = backend.result(1, b"sudo true", b"", b"sudo: a password is required\n")
    assert "user root needs sudo without a password" in words_of(RuntimeError(sudo), "site")
    assert words_of(ValueError("no number"), "site") == "ValueError: no number"


def test_exit_codes() -> None:
    assert of("gpu1").exit_code == Exit.OK
    assert of("gpu1", {ONE: ("failure", "no"), TWO: ("error", "no")}).exit_code == Exit.FAILED
    assert of("gpu1", {ONE: ("error", "no answer")}).exit_code == Exit.INCOMPLETE
    assert asbuilt.Checked("gpu1", None, "no end", "").exit_code == Exit.INCOMPLETE


def test_limit_takes_names_groups_and_patterns_and_refuses_what_fits_nothing() -> None:
    assert [n.name for n in asbuilt.chosen(site.LAB, "gpu*,heads")] == ["head", "gpu1", "gpu2"]
    assert asbuilt.chosen(site.LAB, None) == site.LAB.nodes
    with pytest.raises(UsageFault, match="--limit gpu3: no such node or group; there are: head, client1"):
        asbuilt.chosen(site.LAB, "gpu1,gpu3")


def test_the_junit_file_has_a_suite_for_each_node_and_an_error_for_what_is_gone() -> None:
    from junitparser import JUnitXml

    document = checked("gpu1")
    _, facts = read(document, (*NAMES, "test_base.py::test_removed"))
    merged = asbuilt.junit(
        [asbuilt.Checked("gpu1", facts, "", document["stdout"]), asbuilt.Checked("gpu2", None, "x", "")]
    )
    suites = list(JUnitXml.fromstring(merged.encode()))
    assert [(s.name, s.tests, s.errors) for s in suites] == [("gpu1", len(NAMES) + 1, 1), ("gpu2", 1, 1)]


def test_the_record_says_of_which_commit_it_was() -> None:
    assert deployment(()).version_words == "toolkit 0.1.0, commit c0ffee000000"
    changed = deployment((), modified=True)
    assert changed.version_words == "toolkit 0.1.0, commit c0ffee000000 with changes that were not committed"
    assert deployment((), commit="", modified=None).version_words == "toolkit 0.1.0, commit not known"
