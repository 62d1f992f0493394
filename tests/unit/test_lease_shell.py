"""Shells at leases: whose and which, what the user's files have, and what is in no argument. Keys are real."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.lease_forms import endpoint
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import slurm_job
from toolkit.cli import cli
from toolkit.commands import ssh as command
from toolkit.lease import LeaseError
from toolkit.lease.client import manage
from toolkit.lease.kept import folder
from toolkit.lease.shell import configuration, connection, door, keys
from toolkit.lease.shell.connection import Target


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user, alice to Slurm."""
    program = tmp_path / "bin" / "toolkit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    monkeypatch.setattr(configuration, "ssh_folder", lambda: tmp_path / ".ssh")
    monkeypatch.setattr(manage, "me", lambda: "alice")
    return tmp_path


def of_lease(**changes: object) -> FakeHost:
    return FakeHost(slurm=FakeSlurm(said=[slurm_job()], files=[endpoint(**changes).text()]))


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("49", Target(49)),
        ("lease-49", Target(49)),
        ("lease-49.gpu2", Target(49, "gpu2")),
        ("49.gpu2", Target(49, "gpu2")),
    ],
)
def test_a_lease_is_named_as_ssh_names_it(word: str, target: Target) -> None:
    assert connection.parse_target(word) == target
    assert connection.parse_target(target.name) == target


@pytest.mark.parametrize(
    "word", ["-oProxyCommand=x", "lease-", "49;id", "49.", "49.-x", "49.gpu/../x", "49\n", "²", "4" * 11]
)
def test_what_names_no_lease_is_refused(word: str) -> None:
    with pytest.raises(LeaseError, match="name a lease by its number"):
        connection.parse_target(word)


def test_a_lease_of_another_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    host = of_lease(where="server")
    assert connection.own_endpoints(host, Target(41))
    monkeypatch.setattr(manage, "me", lambda: "bob")
    host = of_lease(where="server")
    with pytest.raises(LeaseError, match="lease 41 is another user's"):
        connection.proxy(host, Target(41))
    assert host.slurm.read == [], "not even its endpoint"


def test_a_lease_by_an_engine_has_no_shell_on_its_server() -> None:
    with pytest.raises(LeaseError, match="by the engine reference, on the machine where its program runs"):
        connection.proxy(of_lease(), Target(41))


def test_a_server_that_the_lease_has_not_is_named() -> None:
    with pytest.raises(LeaseError, match="lease 41 has no server gpu9; it has gpu1"):
        connection.proxy(of_lease(where="server"), Target(41, "gpu9"))


def test_keys_go_sealed_and_are_in_no_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """munge is not installed here; what it is given and what comes of it are looked at."""
    given: list[tuple[list[str], str]] = []

    def munge(words: list[str], **how: object) -> subprocess.CompletedProcess[str]:
        given.append((words, str(how["input"])))
        return subprocess.CompletedProcess(words, 0, "MUNGE:sealed:\n", "")

    run, served = subprocess.run, []
    monkeypatch.setattr(
        door.subprocess, "run", lambda words, **how: (munge if words[0] == "munge" else run)(words, **how)
    )
    monkeypatch.setattr(connection, "_serve", lambda words, environment: served.append((words, environment)) or 0)
    assert connection.proxy(of_lease(where="server"), Target(41)) == 0
    [(words, order)], [(arguments, environment)] = given, served
    assert words == ["munge", f"--restrict-uid={os.getuid()}"]
    private = keys.host_key("lease-41").read_text()
    assert private.splitlines()[3] in order
    assert (keys.place() / "key").read_text().splitlines()[3] not in order, "the user's private key stays here"
    assert environment[door.VARIABLE] == "MUNGE:sealed:"
    assert not [word for word in arguments if "PRIVATE KEY" in word or "MUNGE" in word]
    assert "--jobid=41" in arguments


def test_each_lease_has_a_host_key_and_ssh_knows_it_and_no_other() -> None:
    first, second = keys.host_key("lease-41"), keys.host_key("lease-42")
    assert first.read_text() != second.read_text()
    before = first.read_text()
    assert keys.host_key("lease-41").read_text() == before
    known = (keys.place() / keys.KNOWN).read_text().splitlines()
    assert sorted(known) == sorted(f"{one.name} {keys.public_of(one)}" for one in (first, second))
    for path in (keys.place(), first.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (first, keys.user_key(), keys.place() / keys.KNOWN):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    options = dict(keys.client_options())
    assert options["StrictHostKeyChecking"] == "yes"
    assert options["UserKnownHostsFile"] == str(keys.place() / keys.KNOWN)


def test_host_keys_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_HOSTS", 2)
    for number in range(4):
        os.utime(keys.host_key(f"lease-{number}").with_suffix(".pub"), (number, number))
    keys.host_key("lease-4")
    assert len(list((keys.place() / keys.HOSTS).iterdir())) == 4  # two pairs


def test_the_sshd_listens_nowhere_and_opens_no_more_than_the_user_could(tmp_path: Path) -> None:
    for line in (
        "AuthenticationMethods publickey", "PasswordAuthentication no", "AllowTcpForwarding local", "GatewayPorts no",
        "PermitTunnel no", "UsePAM no", "PermitUserEnvironment no", "X11Forwarding no", "AllowAgentForwarding no",
    ):  # fmt: skip
        assert f"{line}\n" in door.SETTINGS
    assert "Listen" not in door.SETTINGS
    assert '"-i"' in door.DOOR
    sshd = next((one for one in ("/usr/sbin/sshd", "/usr/bin/sshd") if os.access(one, os.X_OK)), None)
    if sshd is not None:
        keys.user_key()
        config = tmp_path / "config"
        config.write_text(f'{door.SETTINGS}HostKey {keys.place() / keys.KEY}\nSetEnv A="1"\n')
        done = subprocess.run([sshd, "-t", "-f", str(config)], capture_output=True, text=True, check=False)
        assert "Bad configuration" not in done.stderr
        assert "Unsupported" not in done.stderr


def test_a_port_that_somebody_has_is_refused_before_anything_is_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for words in (["run", "--port", str(port), "--", "true"], ["run", "-d", "--port", str(port), "--", "true"],
                      ["ssh", "--port", str(port), "41"]):  # fmt: skip
            monkeypatch.setattr(command, "this_host", lambda: of_lease(where="server"))
            done = CliRunner().invoke(cli, words, prog_name="toolkit")
            assert done.exit_code == 2, done.output
            assert f"--port {port}: a program on this machine has it already" in done.output
    connection.refuse_taken([port])


def test_ports_are_of_loopback_alone() -> None:
    words = connection.ssh_command(Target(41), [], [6006])
    assert "-L127.0.0.1:6006:127.0.0.1:6006" in words
    assert words[:3] == ["ssh", "-F", "/dev/null"], "nothing of the user's configuration"
    assert words[-2:] == ["--", "lease-41"]


def test_the_entry_is_written_after_asking_and_what_was_there_stays(home: Path) -> None:
    (home / ".ssh").mkdir()
    real = home / "dotfiles"
    real.write_text("Host old\n    Port 2222\n")
    real.chmod(0o644)
    (home / ".ssh" / "config").symlink_to(real)
    done = CliRunner().invoke(cli, ["ssh", "--config"], input="n\n", prog_name="toolkit")
    assert (done.exit_code, "nothing was written" in done.output) == (2, True)
    assert not configuration.entry_file().exists()
    assert real.read_text() == "Host old\n    Port 2222\n"
    assert CliRunner().invoke(cli, ["ssh", "--config"], input="y\n", prog_name="toolkit").exit_code == 0
    assert real.read_text() == "Include config.d/elastic-ai\n\nHost old\n    Port 2222\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert (home / ".ssh" / "config").is_symlink()
    entry = configuration.entry_file().read_text()
    assert "\nHost lease-* " in entry
    assert f"    ProxyCommand {home}/bin/toolkit ssh --proxy '%n'\n" in entry
    again = CliRunner().invoke(cli, ["ssh", "--config"], prog_name="toolkit")
    assert (again.exit_code, "is as it should be" in again.output) == (0, True)


def test_a_real_ssh_reads_the_entry(home: Path) -> None:
    configuration.write(configuration.planned())
    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace("config.d/", f"{home}/.ssh/config.d/"))
    said = subprocess.run(
        ["ssh", "-F", str(config), "-G", "lease-49"], capture_output=True, text=True, check=True
    ).stdout
    assert f"proxycommand {home}/bin/toolkit ssh --proxy '%n'" in said
    assert "stricthostkeychecking true" in said
    other = subprocess.run(["ssh", "-F", str(config), "-G", "gpu1"], capture_output=True, text=True, check=True).stdout
    assert "proxycommand" not in other


@pytest.mark.parametrize("name", ["lease-49", "lease-49>evil", "lease-49(evil)", *(f"lease-49{x}x" for x in "'`$;|&")])
def test_a_name_that_is_given_to_ssh_reaches_no_shell(name: str, home: Path) -> None:
    """Another program may have chosen it: a page, a repository's submodule. Newer clients refuse such names, too."""
    configuration.write(configuration.planned())
    (home / "bin" / "toolkit").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {home}/asked\n")
    config = configuration.entry_file()
    done = subprocess.run(["ssh", "-F", config, "-G", name], capture_output=True, text=True, check=False)
    if any(sign in name for sign in connection.NOT_IN_NAMES):
        assert "proxycommand" not in done.stdout
        return
    subprocess.run(["ssh", "-F", config, name], cwd=home, capture_output=True, check=False, timeout=30)
    asked = [path.read_text().split("\n") for path in home.glob("asked")]
    assert asked in ([["ssh", "--proxy", name, ""]], [] if name != "lease-49" else None)
    assert not (home / "evil").exists()


def test_words_behind_two_dashes_are_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `toolkit run` has it; a shell would take the dashes for an option of its own."""
    started: list[Sequence[str]] = []
    monkeypatch.setattr(command.connection, "own_endpoints", lambda *_: ())
    monkeypatch.setattr(command.connection, "on_server", lambda _: False)
    monkeypatch.setattr(command.running, "run_on", lambda _host, _lease, words, _say: started.append(words) or 0)
    for given in (["49", "--", "hostname", "-s"], ["49", "hostname", "-s"]):
        assert CliRunner().invoke(command.ssh, given).exit_code == 0
    assert started == [["sh", "-c", "hostname -s"]] * 2
