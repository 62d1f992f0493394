"""What apt and dpkg print, and what they are asked: pure functions and command lines."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.elastic_ai.toolkit.plugins.module_utils import apt
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import (
    Action,
    LockedError,
    PackageError,
    Plan,
    chain_to,
    explain,
    still_needed,
)
from tests.support import node_modules  # noqa: F401 - makes the collection importable

SIMULATION = """NOTE: This is only a simulation!
Reading package lists...
The following packages will be DOWNGRADED:
  cuda-toolkit-13-0
Remv systemd-timesyncd [252.39-1]
Inst libjq1 (1.6-2.1 Debian:12/stable [amd64])
Inst cuda-toolkit-13-0 [13.0.3-1] (13.0.2-1 lab [all])
Inst gcc [4:12.1-1] (4:12.2.0-3 Debian:12.11/oldstable [amd64]) []
Purg chrony [4.3-2]
Conf libjq1 (1.6-2.1 Debian:12/stable [amd64])
"""


def test_a_simulation_of_apt_is_read() -> None:
    plan = apt.parse_simulation(SIMULATION, lambda one, other: one < other)
    assert plan.actions == [
        Action("remove", "systemd-timesyncd", before="252.39-1"),
        Action("install", "libjq1", "1.6-2.1"),
        Action("downgrade", "cuda-toolkit-13-0", "13.0.2-1", "13.0.3-1"),
        Action("upgrade", "gcc", "4:12.2.0-3", "4:12.1-1"),
        Action("remove", "chrony", before="4.3-2"),
    ]


def test_dependencies_are_read_with_providers_of_virtual_packages() -> None:
    output = "nvidia-driver\n  Depends: nvidia-kmod\n |Depends: a\n  Depends: <virtual>\n    linux-headers-7\n"
    output += "  Recommends: x\n"
    depends = apt.parse_depends(output)
    assert depends == {"nvidia-driver": ["nvidia-kmod", "a", "virtual", "linux-headers-7"]}
    assert chain_to("linux-headers-7", ["nvidia-driver"], depends) == ["nvidia-driver", "linux-headers-7"]
    assert chain_to("unheard-of", ["nvidia-driver"], depends) == ["unheard-of"]


def test_relations_lose_versions_and_architectures() -> None:
    text = "libc6 (>= 2.36), debconf (>= 0.5) | debconf-2.0, python3:any"
    assert apt.parse_relations(text) == [["libc6"], ["debconf", "debconf-2.0"], ["python3"]]
    assert apt.parse_relations(", ") == []


URIS = """Reading package lists...
'http://mirror/pool/t/tree_2.1.0-1_amd64.deb' tree_2.1.0-1_amd64.deb 52000 SHA256:ab
'http://mirror/pool/j/jq_1.6_amd64.deb' jq_1.6_amd64.deb 64000 SHA256:cd
'file:/srv/repo/./local_1.deb' local_1.deb 999999 SHA256:ef
"""


def test_the_space_that_a_transaction_takes() -> None:
    assert apt.fetch_bytes(URIS) == 116_000
    assert apt.installed_bytes("Package: a\nInstalled-Size: 10\n\nPackage: b\nInstalled-Size: 5\n") == 15360


def test_a_disk_without_room_is_refused_by_commands_that_install_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str]:
        asked.append(command)
        return 0, URIS if "--print-uris" in command else "Installed-Size: 10\n"

    plan = Plan([Action("install", "tree", "2.1.0-1")])
    manager = apt.Apt(run, 0, False)
    free = {"/var/cache/apt/archives": 116_000, "/usr": 10_240}
    monkeypatch.setattr(apt.shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    manager.check_space({"tree": ""}, plan)
    for path in free:
        free[path] -= 1
        with pytest.raises(PackageError, match=f"the disk is full: {path} has 0 MiB free"):
            manager.check_space({"tree": ""}, plan)
        free[path] += 1
    # --print-uris and apt-cache are the only commands: --assume-no would install what asks no question.
    assert all("--print-uris" in c or c[0] in ("apt-cache", "dpkg") for c in asked)


def test_apt_get_is_asked_what_to_fetch_only_where_it_might_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str]:
        asked.append(command)
        return 0, URIS if "--print-uris" in command else "Package: tree\nInstalled-Size: 10\nSize: 200000\n"

    def precise() -> bool:
        asked.clear()
        manager.check_space({"tree": ""}, plan)
        return any("--print-uris" in command for command in asked)

    plan = Plan([Action("install", "tree", "2.1.0-1")])
    manager = apt.Apt(run, 0, False)
    free = {"/var/cache/apt/archives": 200_000, "/usr": 10_240}
    monkeypatch.setattr(apt.shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    assert not precise()
    plan.actions.append(Action("upgrade", "jq", "1.6", before="1.5"))  # of it nothing was shown
    assert precise()
    plan.actions.pop()
    free["/var/cache/apt/archives"] -= 1  # 116000 bytes are to be fetched, the rest is there: it still fits
    assert precise()


def test_what_must_stay_is_found_through_alternatives_and_chains() -> None:
    depends = {
        "theirs": [["mta-a", "mta-b"], ["lib"]],
        "mta-a": [],
        "mta-b": [],
        "lib": [["deep"]],
        "deep": [],
        "unneeded": [["deep"]],
    }
    assert still_needed(depends, {"mta-a", "lib", "deep", "unneeded"}) == {"lib": "theirs", "deep": "lib"}
    assert set(still_needed(depends, {"mta-a", "mta-b"})) == {"mta-a"}
    assert still_needed(depends, {"unneeded"}) == {}


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", ["the disk is full", "make room"]),
        (
            "dpkg: error processing archive x.deb (--unpack):\n cannot copy: No space left on device",
            ["the disk is full"],
        ),
        (
            "W: GPG error: http://v ./ Release: ... NO_PUBKEY 1234\n"
            "E: The repository 'http://v ./ Release' is not signed.",
            ["not signed by the key that this node trusts", "NO_PUBKEY 1234", "The repository 'http://v ./ Release'"],
        ),
        (
            "E: OpenPGP signature verification failed: http://v ./ InRelease: Sub-process /usr/bin/sqv returned an"
            " error code (1), error message is: Missing key AB, which is needed to verify signature.",
            ["not signed by the key that this node trusts", "Missing key AB"],
        ),
        ("E: Failed to fetch http://m/p.deb  Could not connect", ["cannot be fetched", "http://m/p.deb"]),
        (
            "Some packages could not be installed.\n driver : Depends: kmod (= 1) but it is not going to be installed\n"
            "E: Unable to correct problems, you have held broken packages.",
            ["cannot be had together", "driver : Depends: kmod (= 1)"],
        ),
        (
            "dpkg: error processing package x (--configure):\nE: Sub-process /usr/bin/dpkg returned an error code (1)",
            ["a package's own script failed", "error processing package x"],
        ),
        ("something new\n", ["the package manager failed: something new"]),
        ("", ["without a word"]),
    ],
)
def test_failures_in_the_operators_words(output: str, parts: list[str]) -> None:
    message = str(explain(output))
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_a_lock_is_told_apart() -> None:
    error = explain("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 42 (apt-get)\nE: Unable")
    assert isinstance(error, LockedError)
    assert str(error) == "/var/lib/dpkg/lock-frontend is held by process 42 (apt-get)"


def manager(lock_timeout_s: int = 0) -> apt.Apt:
    return apt.Apt(lambda command: (0, "amd64\n"), lock_timeout_s, False)


def test_the_holder_of_a_lock_is_named_and_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock-frontend"
    lock.touch()
    monkeypatch.setattr(apt, "LOCKS", (str(tmp_path / "missing"), str(lock)))
    assert manager().locked(lambda: "done") == "done"
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    holder.stdout.readline()
    with pytest.raises(LockedError, match=rf"lock-frontend is held by process {holder.pid} \(.*input\(\)"):
        manager().locked(lambda: pytest.fail("must not run"))
    holder.communicate("\n")
    assert manager().locked(lambda: "done") == "done"


def test_a_lock_that_is_taken_in_between_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "LOCKS", ())
    monkeypatch.setattr(apt.time, "sleep", lambda seconds: None)
    answers = [LockedError("taken"), "done"]

    def work() -> str:
        answer = answers.pop(0)
        if isinstance(answer, LockedError):
            raise answer
        return answer

    assert manager(lock_timeout_s=60).locked(work) == "done"


def test_the_layout_of_a_lock_request_is_the_kernels(tmp_path: Path) -> None:
    import struct

    with (tmp_path / "lock").open("w") as stream:
        request = struct.pack(apt.FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        assert struct.unpack(apt.FLOCK, fcntl.fcntl(stream, fcntl.F_GETLK, request))[0] == fcntl.F_UNLCK


def test_apt_is_asked_without_questions_and_allowed_no_more_than_the_plan_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apt, "LOCKS", ())
    asked: list[list[str]] = []
    manager = apt.Apt(lambda command: (asked.append(command), (0, ""))[1], 7, True)
    manager.install({"a": "1", "b": ""}, Plan([Action("install", "a", "1")]))
    manager.install({"a": "1"}, Plan([Action("downgrade", "a", "1", "2")]))
    plain, downgrade = asked[-2:]
    assert plain[:2] == ["apt-get", "-y"]
    assert plain[-3:] == ["install", "a=1", "b"]
    assert {"DPkg::Lock::Timeout=7", "APT::Install-Recommends=true", "Dpkg::Options::=--force-confold"} <= set(plain)
    assert "--allow-downgrades" not in plain
    assert "--allow-downgrades" in downgrade
    manager.purge(["a"], ["b"])
    assert asked[-1][-3:] == ["purge", "a", "b+"]
