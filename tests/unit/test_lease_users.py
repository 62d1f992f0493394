"""Whether a machine knows the user of a job, by its own directory of users."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from toolkit.lease.machine import users


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nsswitch.conf as distributions have it."""
    path = tmp_path / "nsswitch.conf"
    path.write_text("passwd: files systemd # slurm\ngroup: files slurm\n")
    monkeypatch.setattr(users, "NSSWITCH", path)
    return path


def nobody() -> int:
    return next(uid for uid in range(54321, 65000) if uid not in {entry.pw_uid for entry in pwd.getpwall()})


def test_who_is_unknown_is_named_with_node_and_cure(plain: Path) -> None:
    uid = nobody()
    words = users.problem(uid, "alice", "gpu1")
    assert words.startswith(f"user alice (uid {uid}) is not known on gpu1 (getent passwd {uid}): create it")
    assert users.problem(uid, f"uid {uid}", "gpu1").startswith(f"uid {uid} is not known on gpu1")
    assert users.problem(0, "root", "gpu1") == users.problem(0, "uid 0", "gpu1") == ""


def test_a_number_that_is_anothers_here_is_no_match(plain: Path) -> None:
    assert users.problem(0, "alice", "gpu1").startswith("user alice has uid 0, which on gpu1 is root: ")
    assert users.problem(0, "root@site.example", "gpu1") == users.problem(0, "SITE\\Root", "gpu1") == ""


def test_where_slurm_names_users_of_its_jobs_nothing_can_be_told(plain: Path) -> None:
    plain.write_text("passwd: files  slurm sss\n")
    assert users.problem(nobody(), "alice", "gpu1") == ""
    plain.unlink()
    assert users.problem(nobody(), "alice", "gpu1") != ""
