"""What another policy changes, for whom, and which leases of now it would not give."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.support.lease_texts import slurm_job
from toolkit import policy_check
from toolkit.commands.pool import pool as pool_command
from toolkit.errors import UsageFault
from toolkit.pool_changes import Change, Difference, Held, changes, outside
from toolkit.pool_policy import check_pool
from validation.model.load import ConfigError

POLICY: dict[str, Any] = {
    "users": {
        "research": {"groups": ["ml"], "max_gpus_per_user": 2, "preempts": ["teaching"]},
        "teaching": {"groups": ["students"], "classes": ["v100"], "max_gpus_per_user": "1/7", "max_hours": 4},
    },
    "classes": {"v100": {}, "h100": {"max_hours": 24}},
}
MEMBERS = {"research": ("anna", "ben"), "teaching": ("carl", "dora", "emil")}


def changed(after: dict[str, Any], new: dict[str, tuple[str, ...]] = MEMBERS) -> list[Change]:
    return changes(check_pool(POLICY), check_pool(after), MEMBERS, new)


def with_teaching(**keys: Any) -> dict[str, Any]:
    return {**POLICY, "users": {**POLICY["users"], "teaching": {**POLICY["users"]["teaching"], **keys}}}


def test_the_same_policy_in_other_words_changes_nothing() -> None:
    assert changed(POLICY) == []
    assert changed(with_teaching(max_hours=4.0, priority=0, preempts=[])) == []


def test_a_limit_changes_for_the_members_of_its_class_alone() -> None:
    (one,) = changed(with_teaching(max_gpus_per_user="1/4", max_hours=8))
    assert one.users == ("carl", "dora", "emil")
    assert one.differences == (
        Difference("max_gpus_per_user", "1/7 GPU", "1/4 GPU"),
        Difference("max_hours", "4 hours", "8 hours"),
    )
    assert policy_check.named(one) == "carl, dora, emil (teaching):"


def test_who_leaves_every_class_gets_no_gpu_and_who_changes_class_gets_its_rights() -> None:
    moved = {"research": ("anna", "carl"), "teaching": ("dora", "emil")}
    by_user = {one.users: one for one in changed(POLICY, moved)}
    assert by_user[("ben",)].differences == (Difference("classes", "all", "no GPU"),)
    assert by_user[("ben",)].after == ()
    assert by_user[("carl",)].before == ("teaching",)
    assert Difference("max_gpus_per_user", "1/7 GPU", "2 GPUs") in by_user[("carl",)].differences
    assert Difference("preempted by", "research", "nobody") in by_user[("carl",)].differences
    assert set(by_user) == {("ben",), ("carl",)}


def test_a_class_less_and_a_class_more_in_one_file() -> None:
    renamed = {**POLICY, "users": {**POLICY["users"], "students": POLICY["users"]["teaching"]}}
    del renamed["users"]["teaching"]
    renamed["users"]["research"] = {**renamed["users"]["research"], "preempts": ["students"]}
    new = {"research": MEMBERS["research"], "students": MEMBERS["teaching"]}
    by_user = {one.users: one for one in changed(renamed, new)}
    assert by_user[MEMBERS["teaching"]].differences == ()  # the same rights, by another name
    assert (by_user[MEMBERS["teaching"]].before, by_user[MEMBERS["teaching"]].after) == (("teaching",), ("students",))
    assert by_user[MEMBERS["research"]].differences == (Difference("preempts", "teaching", "students"),)


def test_rules_for_all_are_one_change() -> None:
    kept = {"for": ["research"], "class": "h100", "nodes": 2, "from": "08:00", "hours": 4}
    after = {**POLICY, "reservations": {"lab": kept}, "preemption": {"grace_s": 90}}
    after["classes"] = {"v100": {"idle_minutes": 30}, "h100": {"max_hours": 24}}
    (one,) = changed(after)
    assert one.users == ()
    assert one.differences == (
        Difference("classes.v100.idle_minutes", "never", "30 minutes"),
        Difference("preemption.grace_s", "30", "90"),
        Difference("reservations.lab", "none", "2 servers of h100 for research, daily from 08:00, 4 hours"),
    )


def test_a_pool_that_was_open_to_all_and_one_that_will_be() -> None:
    opened = changes(check_pool(POLICY), check_pool({}), MEMBERS, {})
    users = {one.users for one in opened}
    assert users == {("anna", "ben"), ("carl", "dora", "emil"), ()}
    closed = changes(check_pool({}), check_pool(POLICY), {}, MEMBERS)
    carl = next(one for one in closed if "carl" in one.users)
    assert Difference("classes", "all", "v100") in carl.differences
    assert Difference("max_gpus_per_user", "no limit", "1/7 GPU") in carl.differences


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (Held(1, "carl", Fraction(1, 7), "v100", False), ""),
        (Held(1, "carl", Fraction(1, 2), "v100", False), "may have 1/7 GPU at a time"),
        (Held(1, "carl", Fraction(1, 7), "h100", False), "may not use h100"),
        (Held(1, "zoe", Fraction(1), "v100", False), "is in no class of users"),
        (Held(1, "zoe", Fraction(0), "v100", True), "is in no class of users"),
        (Held(1, "root", Fraction(8), "v100", False), ""),
        (Held(1, "anna", Fraction(2), "h100", False), ""),
    ],
)
def test_leases_that_their_users_could_not_request_again(held: Held, why: str) -> None:
    found = outside(check_pool(POLICY), MEMBERS, [held])
    assert [one.why for one in found] == ([why] if why else [])


def test_a_users_leases_add_up() -> None:
    two = [Held(1, "anna", Fraction(3, 2), "v100", False), Held(2, "anna", Fraction(1), "h100", False)]
    assert [one.held.lease for one in outside(check_pool(POLICY), MEMBERS, two)] == [2]
    assert outside(check_pool({}), {}, two) == []


class FakeHead:
    """A head that has POLICY, and knows the groups ml and students."""

    applied: Any = POLICY
    jobs: tuple[dict[str, Any], ...] = ()
    older = False

    def __init__(self, topology: object) -> None:
        self.node = type("Node", (), {"name": "head"})()

    def run(self, words: list[str], timeout_s: float = 90) -> CompletedProcess[bytes]:
        if words[0] == "cat":
            found = b"" if self.applied is None else json.dumps({"classes": {}, "policy": self.applied}).encode()
            return CompletedProcess(words, 1 if self.applied is None else 0, found, b"")
        assert words[:2] == [policy_check.SYNC, "--members"]
        if self.older:
            return CompletedProcess(words, 2, b"", b"usage: ...\nerror: unrecognized arguments: --members ml\n")
        members = {"ml": ["anna", "ben"], "students": ["carl", "dora"]}
        return CompletedProcess(words, 0, json.dumps({n: members[n] for n in words[2:] if n in members}).encode(), b"")

    def all_leases(self) -> list[Any]:
        from tests.support.lease_texts import jobs_of
        from toolkit.lease.client.manage import leases

        return leases(jobs_of(list(self.jobs)))


def checked(monkeypatch: Any, tmp_path: Path, policy: Any, *words: str) -> Any:
    file = tmp_path / "new.yml"
    file.write_text(yaml.safe_dump({"slurm_pool": policy}))
    monkeypatch.setattr(policy_check, "Head", FakeHead)
    monkeypatch.setattr(policy_check, "read_inventory", lambda path: None)
    return CliRunner().invoke(pool_command, ["check", str(file), "-i", "inv", *words])


def test_the_command_names_users_of_groups_and_what_changes(monkeypatch: Any, tmp_path: Path) -> None:
    said = checked(monkeypatch, tmp_path, with_teaching(max_hours=8)).output.splitlines()
    assert said[0] == "carl, dora (teaching):"
    assert said[1].split() == ["max_hours", "4", "hours", "->", "8", "hours"]
    assert said[-1] == "Nothing was applied. To apply: toolkit deploy -i inv"
    assert "Nothing changes for anybody." in checked(monkeypatch, tmp_path, POLICY).output


def test_the_command_names_leases_and_groups_that_nobody_knows(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(FakeHead, "jobs", tuple(slurm_job(41, user="zoe")))
    policy = with_teaching(groups=["students", "staff"])
    said = checked(monkeypatch, tmp_path, policy).output
    assert "lease 41 of zoe" in said
    assert "is in no class of users" in said
    assert "group staff is not known on head: it has no members" in said
    data = json.loads(checked(monkeypatch, tmp_path, policy, "--json").output)
    assert data["schema"] == "elastic-ai/pool-check/1"
    assert data["unknown_groups"] == ["staff"]
    assert data["outside"][0]["held"]["user"] == "zoe"


def test_a_fault_in_the_file_is_reported_with_its_line(monkeypatch: Any, tmp_path: Path) -> None:
    done = checked(monkeypatch, tmp_path, with_teaching(preempts=["nobody"]))
    assert isinstance(done.exception, ConfigError)
    assert "new.yml:" in str(done.exception)
    assert "unknown class of users nobody" in str(done.exception)


@pytest.mark.parametrize("applied", [None, {"users": "none"}])
def test_a_head_without_a_usable_policy_is_one_sentence(monkeypatch: Any, tmp_path: Path, applied: Any) -> None:
    monkeypatch.setattr(FakeHead, "applied", applied)
    done = checked(monkeypatch, tmp_path, POLICY)
    assert isinstance(done.exception, UsageFault)
    assert "head" in str(done.exception)


def test_a_head_of_an_older_release_is_one_sentence(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(FakeHead, "older", True)
    done = checked(monkeypatch, tmp_path, POLICY)
    assert isinstance(done.exception, UsageFault)
    assert "head does not say who is in ml" in str(done.exception)
    assert "run toolkit deploy once" in str(done.exception)
