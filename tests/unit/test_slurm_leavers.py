"""Users who leave a class of the pool, by a directory that answers, is away, or knows a part: recorded answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.pool_head import IN_LINE, Directory, Slurm, run, sync
from toolkit.pool_policy import check_pool
from validation.model.load import ConfigError

__all__ = ["sync"]  # a fixture
POOL: dict[str, Any] = {"users": {"research": {"users": ["anna"]}, "teaching": {"groups": ["students"]}}}
ENDS = {**POOL, "leavers": {"running": "end", "grace_s": 90}}
PASS_S = 300


class Head:
    """carl is in the group, and eve, who has jobs, was: each pass is five minutes after the one before."""

    def __init__(self, sync: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.sync, self.patch, self.now = sync, monkeypatch, 1000.0
        self.directory = Directory(sync, monkeypatch)
        self.directory.users = dict(Directory.users)
        monkeypatch.setattr(sync, "HOMES", str(folder / "none"))
        monkeypatch.setattr(sync.pool_leavers, "time", SimpleNamespace(time=lambda: self.now))
        assoc = [row for row in IN_LINE["assoc"] if "|ben|" not in row]
        assoc += [f"teaching|{user}|teaching|teaching" for user in ("carl", "eve")]
        tables = {**IN_LINE, "assoc": assoc, "user": ["root|root", "anna|research", "carl|teaching", "eve|teaching"]}
        self.slurm = Slurm(sync, **{**tables, "reservation": []})
        self.slurm.jobs = [
            "50|50|7102|RUNNING|teaching", "51_[2-3]|51|7102|PENDING|teaching", "51_0|52|7102|RUNNING|teaching",
            "60|60|7100|PENDING|teaching", "70|70|7102|PENDING|research",
        ]  # fmt: skip

    def passes(self, pool: Any = POOL, **more: Any) -> tuple[list[str], list[str]]:
        """What was done to users and jobs, and what waits."""
        self.slurm.done.clear()
        one = run(self.sync, self.patch, self.slurm, pool, **more)
        self.now += PASS_S
        return [done for done in self.slurm.done if "qos" not in done], one.waiting


@pytest.fixture
def head(sync: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Head:
    return Head(sync, monkeypatch, tmp_path)


NOTE = 'AdminComment={"elastic-ai-lease-ended": "eve is no longer in class teaching"}'
HELD = [
    "modify user eve where account=teaching MaxJobs=0",
    f"update JobId=51 {NOTE}",
    "scancel --state=PENDING 51",
]


def test_one_who_left_the_group_begins_nothing_more_and_what_runs_finishes(head: Head) -> None:
    for rest in (10, 5):
        assert head.passes() == ([], [f"user eve stays in teaching for {rest} min more, as the directory may err"])
    assert head.slurm.fresh == ["-u eve", "-g students"] * 2
    assert head.passes() == (HELD, ["user eve stays in teaching until 2 of the jobs have ended"])
    assert head.passes() == ([], ["user eve stays in teaching until 2 of the jobs have ended"]), "once"
    head.slurm.jobs = head.slurm.jobs[-2:]
    assert head.passes() == (["delete user eve"], [])


def test_what_runs_ends_with_notice_where_the_policy_says_so(head: Head) -> None:
    head.passes(ENDS), head.passes(ENDS)
    ends = [
        word for job in ("50", "51_0") for word in (f"update JobId={job} {NOTE}", f"update JobId={job} EndTime=now+90")
    ]
    assert head.passes(ENDS)[0] == HELD + ends
    assert head.passes(ENDS)[0] == [], "an end is not put off by the next pass"


def test_one_who_was_deleted_has_jobs_by_accountings_word(head: Head) -> None:
    del head.directory.users["eve"]
    head.slurm.owners = {"50": "eve", "51": "eve", "52": "eve", "60": "carl"}
    head.passes(), head.passes()
    assert head.passes() == (HELD, ["user eve stays in teaching until 2 of the jobs have ended"])


def test_a_directory_that_is_away_ends_nothing_though_sssd_has_not_noticed_yet(head: Head) -> None:
    """A cache of a part: the group is known and so is the user, but not that he is in it. sssd says Online still."""
    head.passes()
    head.slurm.answers = False
    why = "eve: not known to have left, for sssd does not say that its domain lab is online"
    assert head.passes() == ([], [why])
    del head.directory.users["eve"]
    assert [head.passes() for _ in range(5)] == [([], [why])] * 5
    head.slurm.answers, head.slurm.domains = True, {"lab": "Online", "far": "Offline"}
    assert head.passes()[1] == [why.replace("lab", "far")]
    head.slurm.domains = {"lab": "Online"}
    assert head.passes()[1] == ["user eve stays in teaching for 10 min more, as the directory may err"], (
        "from the start"
    )


def test_passes_that_are_far_apart_are_not_in_a_row(head: Head) -> None:
    head.passes()
    head.now += 3600
    assert head.passes()[1] == ["user eve stays in teaching for 10 min more, as the directory may err"]
    head.now -= 7200  # the clock was set
    assert head.passes()[1] == ["user eve stays in teaching for 10 min more, as the directory may err"]


def test_one_whom_a_fresh_answer_names_stays(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head.sync.pool_leavers, "belongs", lambda user, groups: user == "eve")
    stays = ["user eve stays in teaching: asked again, the directory names user and group"]
    assert [head.passes() for _ in range(4)] == [([], stays)] * 4


@pytest.mark.parametrize(
    ("nsswitch", "why"),
    [
        ("passwd: files ldap\ngroup: files\n", "of ldap it is not known whether they answer (of sssd it is)"),
        ("passwd: files sss winbind\n", "of sss, winbind it is not known whether they answer (of sssd it is)"),
        (None, "NSSWITCH cannot be read"),
    ],
)
def test_only_of_sssd_it_is_known_that_it_answers(
    head: Head, nsswitch: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(head.sync.pool_leavers.NSSWITCH)
    if nsswitch is None:
        path.unlink()
    else:
        path.write_text(nsswitch)
    done, waiting = head.passes()
    assert done == []
    assert waiting[0].startswith("eve: not known to have left, for ")
    assert waiting[0].endswith(why)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (FileNotFoundError("sssctl"), "sssctl is not on the head (packages sssd-tools and sssd-dbus)"),
        ("SSSD is not running.", "sssd does not answer: SSSD is not running."),
        ([], "sssd has no domain"),
    ],
)
def test_without_sssds_word_nobody_has_left(head: Head, fault: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(words: list[str]) -> list[str]:
        if words[0] == "sss_cache" or fault == []:
            return []
        raise fault if isinstance(fault, Exception) else head.sync.Refused(fault)

    monkeypatch.setattr(head.slurm, "_directory", silent)
    assert [head.passes() for _ in range(4)] == [([], [f"eve: not known to have left, for {why}"])] * 4


def test_a_head_without_a_directory_and_users_of_its_own_files_need_no_word(head: Head) -> None:
    Path(head.sync.pool_leavers.NSSWITCH).write_text("passwd: files systemd\ngroup: files\n")
    assert head.passes()[0] == HELD
    Path(head.sync.pool_leavers.NSSWITCH).write_text("passwd: files sss\ngroup: files sss\n")
    Path(head.sync.pool_leavers.PASSWD).write_text("eve:x:7102:100::/home/eve:/bin/sh\n")
    assert "for 10 min more" in head.passes()[1][0], "the group is the directory's"
    Path(head.sync.pool_leavers.GROUP).write_text("students:x:7001:\n")
    assert head.passes()[1] == ["user eve stays in teaching until 2 of the jobs have ended"]


def test_many_at_once_are_a_fault_of_the_directory_unless_somebody_says_otherwise(head: Head) -> None:
    many = [f"s{number}" for number in range(4)]
    head.slurm.tables["assoc"] += [f"teaching|{user}|teaching|teaching" for user in many]
    words = "5 of 6 users look as if they had left at once, and nobody is taken for gone; if that is right: "
    assert [head.passes() for _ in range(4)] == [([], [f"{words}elastic-ai-pool-sync --all-left"])] * 4
    head.slurm.answers = False
    assert head.passes(everybody=True)[0] == [], "not without the directory's own word"
    head.slurm.answers, head.slurm.domains = True, {"lab": "Online"}
    done = head.passes(everybody=True)[0]
    assert [f"delete user {user}" for user in many] == [one for one in done if one.startswith("delete")]
    assert HELD[0] in done


def test_three_who_leave_at_once_are_no_fault(head: Head) -> None:
    head.slurm.tables["assoc"] += [f"teaching|s{number}|teaching|teaching" for number in range(2)]
    head.passes(), head.passes()
    assert "delete user s0" in head.passes()[0]


def test_one_who_comes_back_begins_jobs_again_and_a_limit_of_the_administrators_stays(head: Head) -> None:
    assert head.passes()[0] == [], "MaxJobs of carl is not looked at"
    head.passes(), head.passes()
    head.directory.users["eve"] = (7102, 7001, [7001])
    assert head.passes()[0] == ["modify user eve where account=teaching MaxJobs=-1"]
    assert head.passes() == ([], [])
    assert not Path(head.sync.pool_leavers.STATE).exists()


def test_a_check_changes_nothing_and_asks_nothing_anew(head: Head) -> None:
    head.passes(), head.passes()
    kept = Path(head.sync.pool_leavers.STATE).read_text()
    head.slurm.fresh.clear()
    monkey = head.passes(check=True)
    assert monkey[0] == []
    assert head.slurm.fresh == []
    assert Path(head.sync.pool_leavers.STATE).read_text() == kept
    assert sorted(json.loads(kept)) == ["at", "begun", "ended", "held", "since"]


def test_what_slurm_refuses_of_a_job_that_has_ended_waits(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.passes(), head.passes()
    refused = head.slurm.__class__.__call__

    def call(slurm: Slurm, *command: str) -> list[str]:
        if command[0] == "scancel":
            raise head.sync.Refused("scancel: Invalid job id specified")
        return refused(slurm, *command)

    monkeypatch.setattr(Slurm, "__call__", call)
    done, waiting = head.passes()
    assert done == HELD[:2]
    assert "waiting jobs of eve in teaching end: 51: scancel: Invalid job id specified" in waiting


BACK = "modify user eve where account=teaching MaxJobs=-1"


def _failing(head: Head, monkeypatch: pytest.MonkeyPatch, word: str, fault: BaseException) -> None:
    """Every command that has this word."""
    answers = Slurm.__call__

    def call(slurm: Slurm, *command: str) -> list[str]:
        if word in command:
            raise fault
        return answers(slurm, *command)

    monkeypatch.setattr(Slurm, "__call__", call)


class Dark(BaseException):
    """The power goes, or the process is killed."""


@pytest.mark.parametrize("word", ["scancel", "MaxJobs=0"])
def test_one_who_comes_back_after_a_pass_that_was_cut_off_begins_jobs_again(
    head: Head, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """What Slurm was told and what the pass knows of it must not part."""
    head.passes(), head.passes()
    with monkeypatch.context() as cut:
        _failing(head, cut, word, Dark())
        cut.setattr(head.sync.pool_leavers.Leavers, "keep", lambda *_: None)
        with pytest.raises(Dark):
            head.passes()
    head.directory.users["eve"] = (7102, 7001, [7001])
    assert head.passes()[0] == [BACK]
    assert head.passes() == ([], [])


def test_what_gives_no_answer_is_a_word_and_is_told_again(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.passes(), head.passes()
    with monkeypatch.context() as slow:
        _failing(head, slow, "MaxJobs=0", head.sync.Silent("sacctmgr -i modify: no answer within 60 s"))
        done, waiting = head.passes()
    assert done == [], "nothing more is asked of it, for each question would take a minute"
    assert "user eve starts nothing more in teaching: sacctmgr -i modify: no answer within 60 s" in waiting
    assert head.passes()[0] == HELD, "it may not have heard"
    assert head.passes()[0] == []


def test_a_limit_that_slurm_refuses_is_told_again(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.passes(), head.passes()
    with monkeypatch.context() as refused:
        _failing(head, refused, "MaxJobs=0", head.sync.Refused("sacctmgr: the database is away"))
        head.passes()
    assert head.passes()[0][0] == HELD[0]
    head.directory.users["eve"] = (7102, 7001, [7001])
    with monkeypatch.context() as refused:
        _failing(head, refused, "MaxJobs=-1", head.sync.Refused("sacctmgr: the database is away"))
        assert "user eve starts jobs in teaching again: sacctmgr: the database is away" in head.passes()[1]
    assert head.passes()[0] == [BACK]


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("sacctmgr delete qos pool_interactive: Database is busy", False),
        ("sacctmgr modify account preactive: Unable to contact slurmdbd", False),
        ("sacctmgr delete qos pool_night: QOS is in use by jobs", True),
        ("scontrol delete reservation=lease: Reservation is Active", True),
    ],
)
def test_what_waits_for_a_lease_is_told_by_whole_words(
    head: Head, monkeypatch: pytest.MonkeyPatch, said: str, waits: bool
) -> None:
    """A class named interactive made every refusal of its own one that waits for a lease, for ever."""
    one = run(head.sync, head.patch, head.slurm, POOL)
    before = len(one.waiting)

    def ask(*_: str) -> list[str]:
        raise head.sync.Refused(said)

    monkeypatch.setattr(head.sync, "ask", ask)
    if waits:
        assert one.do("the class goes", "sacctmgr") is False
        assert one.waiting[before:] == [f"the class goes: {said}"]
    else:
        with pytest.raises(head.sync.Refused, match=said):
            one.do("the class goes", "sacctmgr")


def test_a_pass_that_breaks_off_keeps_what_it_knows(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.slurm.tables["assoc"] += ["teaching|gone|teaching|teaching"]
    head.slurm.tables["user"] += ["gone|teaching"]
    head.passes(ENDS), head.passes(ENDS)
    with monkeypatch.context() as refused:
        _failing(head, refused, "delete", head.sync.Refused("sacctmgr: the database is away"))
        with pytest.raises(head.sync.Refused):
            head.passes(ENDS)
    assert head.passes(ENDS)[0] == ["delete user gone"], "no end of eve's jobs is put off"


def test_a_silent_cache_of_sssd_is_no_word_of_the_directory(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers would be the old ones."""
    _failing(head, monkeypatch, "sss_cache", head.sync.Silent("sss_cache -u eve: no answer within 60 s"))
    why = "eve: not known to have left, for sssd does not answer: sss_cache -u eve: no answer within 60 s"
    assert [head.passes() for _ in range(4)] == [([], [why])] * 4


def test_a_command_that_gives_no_answer_is_a_sentence(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "ANSWER_S", 0.2)
    with pytest.raises(sync.Silent, match=r"^sleep 30: no answer within 0\.2 s$"):
        sync.ask("sleep", "30")


def test_the_policy_is_checked() -> None:
    assert check_pool(ENDS).leavers.grace_s == 90
    join = {"cluster": "c", "controllers": ["head"], "partition": "p"}
    for wrong in ({"running": "stop"}, {"grace_s": -1}, {"after_minutes": 1441}, {"grace": 1}):
        with pytest.raises(ConfigError, match="leavers"):
            check_pool({**POOL, "leavers": wrong})
    with pytest.raises(ConfigError, match="leavers: with join it is decided by the cluster's administrator"):
        check_pool({"join": join, "leavers": {"running": "end"}})
