"""What `toolkit deploy` makes of Ansible's events: stages, time left, one line for each node, the exit code."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.deploy import outcome
from toolkit.deploy.progress import LONG, StageLines
from toolkit.deploy.running import BoundedLog, Deployment, asks
from toolkit.deploy.site_state import Estimate, LastRun, SiteState, Step
from toolkit.deploy.stages import Stage, read_stages
from toolkit.deploy.watch import DeployWatch, message
from toolkit.errors import UsageFault
from validation.model.load import ConfigError

ROOT = Path(__file__).resolve().parents[2]
STAGES = (Stage("base", ("Base system",)), Stage("training", ("Prepare", "Train")))
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


def event(kind: str, host: str = "", **data: Any) -> dict[str, Any]:
    return {"event": kind, "pid": 7, "event_data": {**data, **({"host": host} if host else {})}}


def said(text: str) -> list[dict[str, Any]]:
    return [{"event": "verbose", "stdout": line} for line in text.splitlines()]


def begun(*nodes: str) -> DeployWatch:
    """A run whose first task is running on the nodes."""
    watch = DeployWatch(STAGES)
    watch.take(event("playbook_on_start"))
    watch.take(event("playbook_on_play_start", name="Base system"))
    watch.take(event("playbook_on_task_start", role="base", task="Install"))
    for node in nodes:
        watch.take(event("runner_on_start", node))
    return watch


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
    assert end.error.startswith("Could not match supplied host pattern, ignoring: gpu9")
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


def test_the_time_left_is_the_last_runs_corrected_by_this_runs_pace() -> None:
    last = LastRun(total_s=100, steps=tuple(Step(name=n, began_s=s) for n, s in (("a", 0), ("b", 20), ("a", 60))))
    assert Estimate(None).left_s(3) is None
    estimate = Estimate(last)
    assert estimate.left_s(0) == pytest.approx(100)
    estimate.begin("a", 0)
    estimate.begin("new", 5)
    assert estimate.left_s(10) == pytest.approx(90)
    estimate.begin("b", 10)  # twice as fast as then: 80 s of then are left, which is 40
    assert estimate.left_s(15) == pytest.approx(35)
    estimate.begin("a", 30)  # the second step of this name, at 60 of then
    assert estimate.left_s(30) == pytest.approx(20)
    assert estimate.left_s(99) is None, "nobody knows what is left of a task that takes longer than ever"


def test_lines_tell_stage_role_nodes_and_time_left_once_for_each_role() -> None:
    out, now = io.StringIO(), [0.0]
    estimate = Estimate(LastRun(total_s=90, steps=(Step(name="base|base|Install", began_s=0),)))
    watch = DeployWatch(STAGES)
    lines = StageLines(out, watch, estimate, lambda: now[0])
    for step in (
        event("playbook_on_start"),
        event("playbook_on_play_start", name="Base system"),
        event("playbook_on_task_start", role="base", task="Install"),
        event("runner_on_start", "gpu1"),
        event("runner_on_start", "gpu2"),
        event("runner_on_ok", "gpu1", res={"changed": False}),
        event("playbook_on_task_start", role="base", task="Configure"),
        event("runner_on_start", "gpu1"),
        event("runner_on_failed", "gpu1", role="base", task="Configure", res={"msg": "no"}),
    ):
        watch.take(step)
        lines.event()
    assert out.getvalue().splitlines() == [
        "[1/2] base: base on gpu1, gpu2   0s elapsed, about 1m30s left",
        "gpu1 failed: base: Configure: no",
    ]


def test_a_slow_beginning_makes_no_hour_of_the_rest() -> None:
    estimate = Estimate(LastRun(total_s=386, steps=(Step(name="a", began_s=0), Step(name="b", began_s=5))))
    estimate.begin("a", 0)
    estimate.begin("b", 19)
    assert estimate.left_s(19) == pytest.approx(381)


def test_of_a_first_run_no_time_is_told_that_nobody_knows() -> None:
    out = io.StringIO()
    lines = StageLines(out, begun("gpu1"), Estimate(None), lambda: 65.0)
    lines.event()
    lines.pulse(0)
    assert out.getvalue() == "[1/2] base: base on gpu1   0s elapsed\n"
    assert "left" not in out.getvalue()


def test_roles_that_follow_fast_are_told_every_15_seconds_and_a_long_task_as_often() -> None:
    out, now = io.StringIO(), [0.0]
    watch = begun("head")
    lines = StageLines(out, watch, Estimate(None), lambda: now[0])
    for number in range(20):  # twenty roles of three seconds
        watch.take(event("playbook_on_task_start", role=f"role{number}", task="Install"))
        watch.take(event("runner_on_start", "head"))
        lines.event()
        for _ in range(10):
            now[0] += 0.3
            lines.pulse()
    assert len(out.getvalue().splitlines()) == 4
    watch.take(event("playbook_on_task_start", role="horovod", task="Build the wheel in a container"))
    watch.take(event("runner_on_start", "head"))
    lines.event()
    began, before = now[0], len(out.getvalue().splitlines())
    for _ in range(300):
        now[0] += 0.3
        lines.pulse()
    first, *told = out.getvalue().splitlines()[before:]
    assert first.startswith("[1/2] base: horovod on head   ")
    assert told, began
    pattern = r"\[1/2\] base: building the training image: compiling Horovod, (1m)?\d\ds, on head   [\dm]+s elapsed"
    assert all(re.fullmatch(pattern, line) for line in told), told
    assert 4 <= len(told) <= 6, "one line every 15 seconds"


def test_tasks_that_have_words_of_their_own_are_tasks_of_their_roles() -> None:
    for role, task in LONG:
        names = [
            entry.get("name")
            for path in (ROOT / "roles" / role / "tasks").glob("*.yml")
            for entry in _tasks(yaml.safe_load(path.read_text()))
        ]
        assert task in names, (role, task)


def _tasks(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for entry in entries or []:
        found.append(entry)
        for key in ("block", "rescue", "always"):
            found += _tasks(entry.get(key, []))
    return found


def test_output_that_nobody_reads_any_more_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    lines = StageLines(Gone(), DeployWatch(STAGES), Estimate(None))
    lines.said("first")
    lines.said("second")


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
