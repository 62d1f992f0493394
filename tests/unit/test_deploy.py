"""What `toolkit deploy` makes of Ansible's events: stages, time left, one line for each node, the exit code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deploy_events import ROOT, STAGES, begun, event
from toolkit.deploy import outcome, running
from toolkit.deploy.running import BoundedLog, Deployment, asks
from toolkit.deploy.site_state import LastRun, SiteState, Step
from toolkit.deploy.stages import read_stages
from toolkit.deploy.watch import DeployWatch, message
from toolkit.errors import UsageFault
from validation.model.load import ConfigError

BROKEN = """\
[WARNING]: Failed to parse inventory with 'auto' plugin: Failed to load inventory plugin.

<<< caused by >>>

YAML parsing failed.
[WARNING]: Failed to parse inventory with 'yaml' plugin: YAML parsing failed: While parsing a flow node.
Origin: /site/hosts.yml:7:3

7 all: [}
    ^ column 3

[WARNING]: Failed to parse inventory with 'ini' plugin: Invalid host pattern 'all:' supplied.
Origin: /site/hosts.yml

[ERROR]: Completely failed to parse inventory source /site/hosts.yml
"""


def job(**changes: Any) -> Deployment:
    settings: dict[str, Any] = {"limit": None, "check": False, "arguments": ()} | changes
    return Deployment(Path("site.yml"), Path("ansible.cfg"), Path("/site"), **settings)


def said(text: str) -> list[dict[str, Any]]:
    return [{"event": "verbose", "stdout": line} for line in text.splitlines()]


def ended(watch: DeployWatch, **stats: dict[str, int]) -> DeployWatch:
    watch.take(event("playbook_on_stats", **stats))
    return watch


def test_every_play_of_the_site_belongs_to_a_stage_named_by_its_playbook() -> None:
    stages = read_stages(ROOT / "site.yml")
    names = [stage.name for stage in stages]
    assert names[0] == "preflight"
    end = ["acceptance", "training", "reboot_report"]
    assert names[-3:] == end, "an image that cannot be had must cost nothing but the training"
    assert len(set(names)) == len(names)
    assert {f"{name}.yml" for name in names} <= {p.name for p in (ROOT / "playbooks").glob("*.yml")}
    assert names.index("containers") < names.index("training_begin") < names.index("remoting")
    assert names.index("monitoring") < names.index("training"), "the image is made beside what stands between"
    assert "Reboot in batches" in next(stage for stage in stages if stage.name == "reboot").plays


def test_all_plays_gather_the_same_facts() -> None:
    """Ansible gathers once for all stages (smart), so that what a later play asks for besides is missing in a whole
    deployment."""
    plays = [play for path in (ROOT / "playbooks").glob("*.yml") for play in yaml.safe_load(path.read_text())]
    gathered = {tuple(play["gather_subset"]) for play in plays if play.get("gather_facts")}
    assert gathered == {("!all", "min", "virtual")}


def test_plays_that_a_stage_imports_itself_belong_to_it(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("- import_playbook: one.yml\n- import_playbook: two.yml\n")
    (tmp_path / "one.yml").write_text("- {name: A, hosts: all}\n- import_playbook: both.yml\n")
    (tmp_path / "two.yml").write_text("- import_playbook: both.yml\n- {name: B, hosts: all}\n")
    (tmp_path / "both.yml").write_text("- {name: C, hosts: all}\n")
    found = [(stage.name, stage.plays) for stage in read_stages(tmp_path / "site.yml")]
    assert found == [("one", ("A", "C")), ("two", ("C", "B"))]


def test_a_playbook_that_is_none_is_one_error(tmp_path: Path) -> None:
    book = tmp_path / "site.yml"
    book.write_text("hosts: all\n")
    with pytest.raises(ConfigError, match=r"site\.yml: a playbook is a list of plays"):
        read_stages(book)


def test_events_tell_stage_role_task_and_who_still_works() -> None:
    watch = begun("gpu1", "gpu2")
    assert (watch.stage_name, watch.role, watch.task) == ("base", "base", "Install")
    watch.take(event("runner_on_ok", "gpu1", role="base", res={"changed": True}))
    assert list(watch.running) == ["gpu2"]
    watch.take(event("playbook_on_play_start", name="Train"))
    assert watch.stage_name == "training"
    assert not watch.running


def test_each_node_gets_a_line_with_what_changed_what_failed_and_what_to_do_next() -> None:
    watch = begun("gpu1", "gpu2", "head")
    watch.take(event("runner_on_ok", "head", role="base", res={"changed": True}))
    watch.take(event("runner_on_failed", "gpu1", role="base", task="Install", res={"msg": "No space left\non device"}))
    watch.take(event("runner_on_unreachable", "gpu2", role="base", task="Install", res={"msg": "Connection refused"}))
    end = outcome.ending(job(limit="gpu1,gpu2"), ended(watch, failures={"gpu1": 1}, dark={"gpu2": 1}), 4, False)
    assert texts(end) == (
        "gpu1  FAILED at base: Install: No space left on device. Next: correct that, then: toolkit deploy -i /site "
        "--limit gpu1,gpu2",
        "gpu2  UNREACHABLE at base: Install: Connection refused. Next: see that it is on and that ssh reaches it, "
        "then: toolkit deploy -i /site --limit gpu1,gpu2",
        "head  not finished: Ansible stopped in stage base; changed base 1",
    )
    assert end.exit_code == 1


def test_one_fault_of_several_nodes_is_said_once() -> None:
    watch = begun("gpu1", "gpu2", "gpu3", "gpu4")
    for host in ("gpu1", "gpu2", "gpu3"):
        said = {"msg": f"{host}: repository 'cuda' cannot be read"} if host != "gpu3" else {"msg": "disk is full"}
        watch.take(event("runner_on_failed", host, role="repos", task="Read", res=said))
    failed = {"gpu1": 1, "gpu2": 1, "gpu3": 1}
    end = outcome.ending(job(), ended(watch, failures=failed, ok={"gpu4": 1}), 2, False)
    assert texts(end) == (
        "gpu1  FAILED at repos: Read: repository 'cuda' cannot be read.",
        "gpu2  FAILED, as gpu1.",
        "gpu3  FAILED at repos: Read: disk is full. Next: correct that, then: toolkit deploy -i /site",
        "gpu4  not finished: Ansible stopped in stage base; nothing changed",
    )


def test_an_ignored_and_a_rescued_failure_are_none() -> None:
    watch = begun("gpu1", "gpu2")
    watch.take(event("runner_on_failed", "gpu1", task="Try", ignore_errors=True, res={"msg": "no"}))
    watch.take(event("runner_on_failed", "gpu2", task="Try", res={"msg": "no"}))
    end = outcome.ending(job(), ended(watch, ok={"gpu1": 1, "gpu2": 1}, rescued={"gpu2": 1}), 0, False)
    assert (end.exit_code, texts(end)) == (0, ("gpu1  ok: nothing changed", "gpu2  ok: nothing changed"))


def test_a_loops_failure_is_told_by_the_item_that_failed() -> None:
    watch = begun("gpu1")
    watch.take(event("runner_item_on_failed", "gpu1", res={"msg": "non-zero return code", "stderr": "E: no such disk"}))
    watch.take(event("runner_on_failed", "gpu1", task="Format", res={"msg": "One or more items failed"}))
    failure = watch.nodes["gpu1"].failure
    assert failure.message == "non-zero return code: E: no such disk"


def test_ansibles_sentence_ends_where_the_words_of_the_program_follow() -> None:
    """From ansible-core 2.20 on its messages have full stops."""
    words = "The command exited with a non-zero return code."
    assert message({"msg": words}) == words
    assert message({"msg": words, "stderr": "E: no disk"}) == f"{words.rstrip('.')}: E: no disk"


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert message({"msg": "a\n  b"}) == "a b"
    assert message({"censored": "the output has been hidden"}) == "the output has been hidden"
    assert message({"msg": "x " * 5000}) == ("x " * 5000).strip(), "many faults are told whole"
    assert message({"msg": "x " * 50000}).endswith(" x ... (99,999 characters in all; the log has them)")


def test_a_long_line_is_wrapped_for_a_terminal_and_its_command_is_whole() -> None:
    faults = "; ".join(f"fault {n}: fingerprint {'AB' * 20}; correct it by key {n}" for n in range(9))
    command = "toolkit deploy -i /a/very/long/name/of/an/inventory/of/a/site --limit gpu1,gpu2,gpu3,gpu4,gpu5,gpu6"
    line = outcome.EndLine(f"gpu1  FAILED at preflight: Assert: {faults}.", f"correct that, then: {command}", 6)
    parts = line.folded(80)
    assert max(map(len, parts[:-1])) <= 80
    assert parts[-1] == f"      Next: correct that, then: {command}"
    assert " ".join(part.strip() for part in parts) == line.whole
    assert outcome.EndLine("gpu1  ok: nothing changed").folded(80) == ["gpu1  ok: nothing changed"]
    assert line.folded(len(line.whole)) == [line.whole], "what is no terminal gets one line for each node"


def test_what_a_task_said_is_no_part_of_what_to_do_next() -> None:
    """Its own "Next: ", and two blanks in it, neither break the line nor move it."""
    watch = begun("gpu1")
    words = f"the tool says. Next: reboot.  Then look.  {'it is late ' * 9}"
    watch.take(event("runner_on_failed", "gpu1", role="base", task="Ask", res={"msg": words}))
    (line,) = outcome.ending(job(), ended(watch, failures={"gpu1": 1}), 2, False).lines
    parts = line.folded(80)
    assert parts[-1] == "      Next: correct that, then: toolkit deploy -i /site"
    assert [part[:6] for part in parts] == ["gpu1  ", *["      "] * (len(parts) - 1)]
    assert sum("Next: " in part for part in parts) == 2


def texts(end: outcome.Ending) -> tuple[str, ...]:
    return tuple(line.whole for line in end.lines)


def waits(watch: DeployWatch, host: str, *reasons: str) -> None:
    watch.take(event("runner_on_ok", host, role="reboot", res={"ansible_facts": {"reboot_reasons": list(reasons)}}))


def test_a_node_that_waits_for_a_reboot_is_not_ok() -> None:
    watch = begun("gpu1", "gpu2")
    waits(watch, "gpu1", "nvidia_driver: nouveau holds the GPUs", "kernel: 6.8.0-60\nis newer")
    waits(watch, "gpu2")
    end = outcome.ending(
        job(limit="gpu1,gpu2", arguments=("-e", "a=b")), ended(watch, ok={"gpu1": 1, "gpu2": 1}), 0, False
    )
    assert texts(end) == (
        "gpu1  waits for a reboot: nvidia_driver: nouveau holds the GPUs; kernel: 6.8.0-60 is newer. Next: toolkit "
        "deploy -i /site --limit gpu1,gpu2 -- -e a=b -e reboot=if_needed   (nothing changed)",
        "gpu2  ok: nothing changed",
    )
    assert end.exit_code == 3
    left = outcome.without(end, {"gpu9": ("memory is 8 GiB",)})
    assert left.exit_code == 3
    assert texts(left)[0].startswith("gpu1  waits")


def test_a_reboot_that_was_done_waits_no_more_and_one_asked_for_later_does() -> None:
    watch = begun("gpu1")
    waits(watch, "gpu1", "kernel: new")
    waits(watch, "gpu1")
    assert outcome.ending(job(), ended(watch, ok={"gpu1": 1}), 0, False).exit_code == 0
    waits(watch, "gpu1", "remoting_server: device files")
    end = outcome.ending(job(arguments=("-e", "reboot=if_needed")), watch, 0, False)
    assert end.exit_code == 3
    assert "-- -e reboot=if_needed   (" in texts(end)[0], "consent is not written twice"


def test_a_failure_counts_more_than_a_reboot_that_waits() -> None:
    watch = begun("gpu1", "gpu2")
    waits(watch, "gpu1", "kernel: new")
    watch.take(event("runner_on_failed", "gpu2", role="base", task="Install", res={"msg": "no"}))
    end = outcome.ending(job(), ended(watch, failures={"gpu2": 1}), 2, False)
    assert end.exit_code == 1


def test_a_check_says_what_it_would_change() -> None:
    watch = begun("gpu1", "head")
    watch.take(event("runner_on_ok", "gpu1", role="base", res={"changed": True}))
    end = outcome.ending(job(check=True), ended(watch, ok={"gpu1": 1}), 0, False)
    assert texts(end) == ("gpu1  ok: would change base 1", "head  ok: nothing to change")


def test_an_interrupt_is_130_with_what_was_done_and_none_when_it_came_after_the_end() -> None:
    watch = begun("gpu1")
    watch.take(event("runner_on_ok", "gpu1", role="base", res={"changed": True}))
    end = outcome.ending(job(), watch, 1, True)
    assert (texts(end), end.exit_code) == (("gpu1  interrupted; changed base 1",), 130)
    assert outcome.ending(job(), ended(watch, ok={"gpu1": 1}), 0, True).exit_code == 0


def test_ansibles_reason_for_a_broken_inventory_is_told_once_with_file_and_line() -> None:
    watch = DeployWatch(STAGES)
    for line in said(BROKEN):
        watch.take(line)
    end = outcome.ending(job(), watch, 1, False)
    assert end.exit_code == 2
    assert end.error == (
        "Completely failed to parse inventory source /site/hosts.yml: YAML parsing failed: While parsing a flow node, "
        "at /site/hosts.yml:7:3"
    )


def test_a_limit_that_fits_no_node_is_an_error_and_a_group_that_a_play_lacks_is_not() -> None:
    warning = "[WARNING]: Could not match supplied host pattern, ignoring: "
    limited = DeployWatch(STAGES)
    for line in said(f"{warning}gpu9"):
        limited.take(line)
    limited.take(event("playbook_on_start"))
    end = outcome.ending(job(limit="gpu1,gpu9"), limited, 250, True)
    assert end.exit_code == 2
    assert end.error.startswith("--limit gpu9: no such node or group; "), "and nothing is ignored"
    site = begun("gpu1")
    for line in said(f"{warning}clients"):
        site.take(line)
    assert outcome.ending(job(), ended(site, ok={"gpu1": 1}), 0, False).exit_code == 0


def test_a_run_that_reached_no_node_is_no_success() -> None:
    watch = ended(DeployWatch(STAGES))
    end = outcome.ending(job(), watch, 0, False)
    assert end.exit_code == 2
    assert "no node" in end.error


def test_an_end_without_a_recap_is_no_success_and_tells_ansibles_reason() -> None:
    watch = begun("gpu1")
    for line in said("[ERROR]: Unexpected Exception: no memory"):
        watch.take(line)
    end = outcome.ending(job(), watch, 250, False)
    assert (end.exit_code, end.error) == (2, "Unexpected Exception: no memory")
    assert texts(end)[0].startswith("gpu1  not finished")


def test_a_sites_state_is_its_own_keeps_twenty_logs_and_takes_one_deployment_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = SiteState(Path("/sites/a/hosts.yml"))
    assert state.folder != SiteState(Path("/sites/b/hosts.yml")).folder
    assert state.read_last(check=False) is None
    with state.locked():
        run = LastRun(total_s=2.0, steps=(Step(name="x", began_s=0.5),))
        state.write_last(False, run)
        assert state.read_last(check=False) == run
        assert state.read_last(check=True) is None
        for _ in range(25):
            state.new_log().touch()
        assert len(list(state.folder.glob("*.log"))) == 20
        with pytest.raises(UsageFault, match="another deployment of this site is running"), state.locked():
            pass
    (state.folder / "last-run.json").write_text('{"total_s": ')
    assert state.read_last(check=False) is None


def test_what_ansible_would_ask_for_is_refused() -> None:
    assert asks(["-e", "a=b", "--ask-vault-pass"]) == "--ask-vault-pass"
    assert asks(["--vault-password-file", "f"]) is None


def test_the_command_that_goes_on_is_the_one_that_was_given() -> None:
    words = outcome.again(job(limit="gpu1,!gpu2", check=True, arguments=("-e", "reboot=if_needed")))
    assert words == "toolkit deploy -i /site --limit 'gpu1,!gpu2' --check -- -e reboot=if_needed"


def test_a_teardown_goes_on_by_itself_and_never_by_a_deployment() -> None:
    words = outcome.again(job(limit="gpu1", arguments=("-e", "x=1"), command="teardown"))
    assert words == "toolkit teardown -i /site --limit gpu1 -- -e x=1"


def test_how_long_a_teardown_takes_is_not_taken_for_a_deployments_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = SiteState(Path("/site"))
    with state.locked():
        state.write_last(False, LastRun(total_s=5, steps=()), "teardown")
    assert state.read_last(False) is None
    assert state.read_last(True, "teardown") is None
    assert state.read_last(False, "teardown") == LastRun(total_s=5, steps=())


def refused(watch: DeployWatch, host: str, *reasons: str, head: bool = False) -> None:
    """What role preflight sets for a node that it refuses, and how its run then ends."""
    facts = {"preflight_reasons": list(reasons), **({"preflight_indispensable": True} if head else {})}
    watch.take(event("runner_on_ok", host, role="preflight", res={"ansible_facts": facts}))
    watch.take(event("runner_on_failed", host, role="preflight", task="Assert", res={"msg": "cannot be provisioned"}))


def test_what_several_nodes_are_unfit_by_is_said_once() -> None:
    watch = begun("gpu1", "gpu2", "head")
    for host in ("gpu1", "gpu2"):
        refused(watch, host, "memory is 500 MiB", "no room")
    end = outcome.ending(job(), ended(watch, failures={"gpu1": 1, "gpu2": 1}), 2, False)
    assert texts(end)[:3] == ("gpu1  UNFIT: memory is 500 MiB", "             no room", "gpu2  UNFIT, as gpu1")


def test_unfit_nodes_stand_in_one_table_with_all_findings_and_the_way_round_them() -> None:
    watch = begun("gpu1", "gpu10", "head")
    refused(watch, "gpu10", "memory is 500 MiB", "not root")
    watch.take(event("runner_on_ok", "gpu1", role="preflight", res={"ansible_facts": {"preflight_reasons": []}}))
    end = outcome.ending(job(limit="gpu1,gpu10"), ended(watch, failures={"gpu10": 1}), 2, False)
    assert texts(end) == (
        "gpu10  UNFIT: memory is 500 MiB",
        "              not root",
        "1 of 3 nodes is unfit, so nothing was changed on any. Next: correct that, or leave them out: "
        "toolkit deploy -i /site --limit gpu1,gpu10 --skip-unfit",
    )
    assert (end.exit_code, end.error) == (1, "")
    assert not outcome.may_go_on(job(), watch)
    assert outcome.may_go_on(job(skip_unfit=True), watch)


def test_without_the_head_or_any_fit_node_nothing_goes_on() -> None:
    for nodes in (("gpu1", "head"), ("head",)):
        watch = begun(*nodes)
        refused(watch, "head", "not root", head="gpu1" in nodes)
        assert not outcome.may_go_on(job(skip_unfit=True), ended(watch, failures={"head": 1}))
        assert "--skip-unfit" not in " ".join(texts(outcome.ending(job(), watch, 2, False)))


def test_nodes_that_were_left_out_are_named_at_the_end_and_make_no_success() -> None:
    skipping = job(skip_unfit=True, left_out=("gpu10", "gpu2"))
    assert skipping.words() == ["-i", "/site", "--limit", "all,!gpu10,!gpu2"]
    assert outcome.again(skipping) == "toolkit deploy -i /site --skip-unfit"
    good = outcome.ending(skipping, ended(begun("gpu1"), ok={"gpu1": 1}), 0, False)
    end = outcome.without(good, {"gpu2": ("not root", "no memory"), "gpu10": ("is off",)})
    assert end.exit_code == 3
    assert texts(end) == (
        "gpu1  ok: nothing changed",
        "gpu10  LEFT OUT: is off",
        "gpu2   LEFT OUT: not root; no memory",
        "nothing was changed on gpu10, gpu2. Next: correct that, and deploy again",
    )
    failed = outcome.Ending((), outcome.Exit.FAILED)
    assert outcome.without(failed, {"gpu2": ("x",)}).exit_code == 1


def test_a_log_has_a_bound_and_says_where_it_ends() -> None:
    out = io.StringIO()
    log = BoundedLog(out, 10)
    for text in ("12345\n", "67890\n", "more\n"):
        log(text)
    assert out.getvalue() == "12345\n6789\n... more than 10 bytes: the rest of this run is not in the log\n"


def test_forks_go_by_the_memory_that_is_free_and_what_the_caller_chose_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    for free_gib, wanted in ((1, 20), (4, 40), (10, 102), (500, 200)):
        meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable:   {free_gib << 20} kB\n")
        assert running.forks(meminfo) == wanted
    assert running.forks(tmp_path / "none") == 20
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_FORKS"):
        monkeypatch.delenv(name, raising=False)
    assert int(running.environment("/bin", Path("a.cfg"))["ANSIBLE_FORKS"]) >= 20
    monkeypatch.setenv("ANSIBLE_FORKS", "7")
    assert running.environment("/bin", Path("a.cfg"))["ANSIBLE_FORKS"] == "7"
    monkeypatch.setenv("ANSIBLE_CONFIG", "mine.cfg")
    assert not {"ANSIBLE_FORKS", "ANSIBLE_CONFIG"} & set(running.environment("/bin", Path("a.cfg")))
