"""`toolkit switch` as a person runs it: files, and switches that answer over ssh."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support import answers, warm
from tests.support.fake_switch import PASSWORD, FakeSwitch
from tests.unit.test_switch_check import inventory
from toolkit.cli import cli
from toolkit.switches import collect

DATA = Path(__file__).parents[1] / "data/switches"
BASH = 'sonic-cli -c "show running-configuration | no-more"'
SHOW = "show running-configuration | no-more"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeSwitch]]:
    monkeypatch.setenv(collect.PASSWORD, PASSWORD)
    made: list[FakeSwitch] = []
    yield made
    for one in made:
        one.close()


def toolkit(*words: object) -> Result:
    with warm.asking_ansible():
        return CliRunner().invoke(cli, ["switch", *map(str, words)])


def site(folder: Path, system: str, fake: FakeSwitch | None = None, **more: Any) -> Path:
    if fake is not None:
        more["switches"] = {"leaf1": {"address": "127.0.0.1", "port": fake.port, "system": system}}
    (folder / "site").mkdir(exist_ok=True)
    return inventory(folder / "site", system, **more)


def test_files_with_and_without_differences(tmp_path: Path) -> None:
    where = site(tmp_path, "sonic")
    done = toolkit("check", DATA / "sonic.txt", "-i", where)
    assert (done.exit_code, done.output) == (0, "0 differences: 4 ports of 1 switch compared with the hosts\n")
    bad = tmp_path / "leaf1.txt"
    bad.write_text((DATA / "sonic.txt").read_text().replace(" mtu 9216\n speed", " mtu 1500\n speed", 1))
    done = toolkit("check", bad, "-i", where)
    assert done.exit_code == 1
    assert done.output.splitlines()[0] == "leaf1 Eth1/1 (gpu1 eth1): MTU 1500 is less than the host's 9000 bytes"
    assert done.output.splitlines()[1].endswith("roles/fabric/defaults/main.yml: fabric_mtu: 9000 (default)")
    assert done.output.splitlines()[2].endswith("mtu 1500")
    done = toolkit("check", bad, "-i", where, "--json")
    found = answers.check(done.stdout, "switch-check")
    assert [one["what"] for one in found["differences"]] == ["mtu"]
    assert found["switches"] == [{"switch": "leaf1", "system": "sonic", "source": str(bad)}]
    done = toolkit("check", bad, DATA / "sonic.txt", "-i", where)
    assert done.exit_code == 2
    assert "both of leaf1" in done.output


def test_what_is_rendered_is_checked_without_a_difference(tmp_path: Path) -> None:
    where = site(tmp_path, "os10")
    refused = toolkit("render", "leaf1", "-i", where)
    assert refused.exit_code == 2
    assert "name the system of leaf1 with --system" in refused.output
    done = toolkit("render", "leaf1", "--system", "os10", "-i", where)
    assert done.exit_code == 0
    (tmp_path / "leaf1.cfg").write_text(done.stdout)
    assert toolkit("check", tmp_path / "leaf1.cfg", "-i", where).exit_code == 0


@pytest.mark.parametrize(
    ("system", "takes", "asked"),
    [("sonic", BASH, [BASH]), ("sonic", SHOW, [BASH, SHOW]), ("os10", SHOW, [SHOW])],
    ids=["sonic with bash", "sonic without", "os10"],
)
def test_switches_are_read_over_ssh(
    tmp_path: Path, fakes: list[FakeSwitch], system: str, takes: str, asked: list[str]
) -> None:
    fakes.append(FakeSwitch({takes: (DATA / f"{system}.txt").read_text()}))
    where = site(tmp_path, system, fakes[0])
    known = fakes[0].known(tmp_path / "known_hosts")
    done = toolkit("check", "-i", where, "--known-hosts", known)
    assert done.exit_code == 0, done.output
    assert fakes[0].asked == asked, "what is run changes nothing"
    assert PASSWORD not in done.output


def refused(tmp_path: Path, fake: FakeSwitch, known: bool = True, system: str = "sonic") -> str:
    """What the command prints of a switch that cannot be read; it is not checked, and that is the outcome."""
    where = site(tmp_path, system, fake)
    file = tmp_path / "known_hosts"
    done = toolkit("check", "-i", where, "--known-hosts", fake.known(file) if known else file)
    assert done.exit_code == 3, done.output
    assert PASSWORD not in done.output
    return next(line for line in done.output.splitlines() if line.startswith("not checked: leaf1: "))


def test_a_switch_whose_key_is_not_known_gets_neither_user_nor_password(
    tmp_path: Path, fakes: list[FakeSwitch]
) -> None:
    fakes.append(FakeSwitch({}))
    words = refused(tmp_path, fakes[0], known=False)
    assert "its host key SHA256:" in words
    assert "ssh-keyscan -p" in words
    assert fakes[0].logins == []


def test_a_switch_with_another_key_is_sent_nothing_and_the_sentence_has_the_command(
    tmp_path: Path, fakes: list[FakeSwitch]
) -> None:
    fakes += [FakeSwitch({}), FakeSwitch({})]
    other = fakes[1].known(tmp_path / "other").read_text().replace(str(fakes[1].port), str(fakes[0].port))
    file = tmp_path / "known_hosts"
    file.write_text(other)
    done = toolkit("check", "-i", site(tmp_path, "sonic", fakes[0]), "--known-hosts", file)
    remove = f"ssh-keygen -f {file} -R '[127.0.0.1]:{fakes[0].port}'"
    assert (
        f"not checked: leaf1: its host key is not the known one, so nothing was sent; if it was replaced: {remove}"
        in (done.output.replace("\n", " "))
    )
    assert fakes[0].logins == []


def test_a_wrong_password(tmp_path: Path, fakes: list[FakeSwitch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(collect.PASSWORD, "wrong")
    fakes.append(FakeSwitch({}))
    assert "refuses the password for user admin; set TOOLKIT_SWITCH_PASSWORD" in refused(tmp_path, fakes[0])


def test_a_switch_that_never_answers(tmp_path: Path, fakes: list[FakeSwitch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "DEADLINE_S", 1.0)
    fakes.append(FakeSwitch({}, silent=True))
    began = time.monotonic()
    assert "did not print its configuration within 1 s" in refused(tmp_path, fakes[0])
    assert time.monotonic() - began < 20


def test_rubbish_a_refusal_and_another_system(tmp_path: Path, fakes: list[FakeSwitch]) -> None:
    fakes.append(FakeSwitch({BASH: "\x00rubbish", SHOW: "\x00rubbish"}))
    assert "is not the running configuration" in refused(tmp_path, fakes[0])
    fakes.append(FakeSwitch({}))
    assert "the switch answered: % Error: Invalid input" in refused(tmp_path, fakes[1])
    fakes.append(FakeSwitch({BASH: (DATA / "os10.txt").read_text()}))
    assert "has system sonic, and the switch is os10" in refused(tmp_path, fakes[2])


def test_one_that_does_not_listen_and_the_other_goes_on(tmp_path: Path, fakes: list[FakeSwitch]) -> None:
    fakes += [FakeSwitch({BASH: (DATA / "sonic.txt").read_text()}), FakeSwitch({})]
    fakes[1].close()
    switches = {
        name: {"address": "127.0.0.1", "port": one.port, "system": "sonic"}
        for name, one in zip(("leaf1", "leaf2"), fakes, strict=True)
    }
    where = site(tmp_path, "sonic", switches=switches)
    known = fakes[0].known(tmp_path / "known_hosts")
    done = toolkit("check", "-i", where, "--known-hosts", known)
    assert done.exit_code == 3
    assert "not checked: leaf2: does not answer at 127.0.0.1 port" in done.output
    assert "0 differences: 4 ports of 1 switch" in done.output
