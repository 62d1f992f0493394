"""A lab's switch over real ssh: `toolkit switch check` reads it, and it shows its configuration and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from toolkit.lab.leaf import leaf, serve
from toolkit.lab.spec import LabSpec, make_spec
from toolkit.switches.collect import collect
from toolkit.switches.config import Switch
from toolkit.switches.lines import SwitchFault
from toolkit.switches.wanted import Reached


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    made = make_spec("x", 3, 4, 1, switch=True)
    made.dir.mkdir(parents=True)
    leaf.prepare(made)
    return made


@pytest.fixture
def port(spec: LabSpec) -> Iterator[int]:
    """Where it answers."""
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve.answer, args=(leaf.folder(spec), listening), daemon=True)
    thread.start()
    yield int(listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(10)


def read(spec: LabSpec, port: int, password: str, tmp_path: Path) -> Switch | SwitchFault:
    known = tmp_path / "known_hosts"
    _, kind, key = leaf.known(spec).split()
    known.write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    reached = Reached(address="127.0.0.1", system="sonic", user=leaf.USER, port=port)
    (found,) = collect({leaf.NAME: reached}, password, known)
    return found


def test_it_is_read_with_its_password_and_follows_its_file(spec: LabSpec, port: int, tmp_path: Path) -> None:
    password = (leaf.folder(spec) / leaf.PASSWORD).read_text()
    assert oct((leaf.folder(spec) / leaf.PASSWORD).stat().st_mode & 0o777) == "0o600"
    found = read(spec, port, password, tmp_path)
    assert isinstance(found, Switch)
    assert [one.name for one in found.ports] == [f"Eth1/{n}" for n in range(1, 5)]
    (spec.dir / "faults.json").write_text('{"gpu2": "switch-mtu"}')
    leaf.write(spec)
    found = read(spec, port, password, tmp_path)
    assert isinstance(found, Switch)
    changed = found.port("Eth1/4")
    assert changed is not None
    assert changed.mtu is not None
    assert changed.mtu.value == 1500
    refused = read(spec, port, "another", tmp_path)
    assert isinstance(refused, SwitchFault)
    assert "refuses the password" in str(refused)


def test_it_runs_no_other_command(spec: LabSpec, port: int) -> None:
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        password = (leaf.folder(spec) / leaf.PASSWORD).read_text()
        client.connect("127.0.0.1", port, leaf.USER, password, allow_agent=False, look_for_keys=False)
        for command in ("cat /etc/shadow", "configure", "show running-configuration; id"):
            _, out, _ = client.exec_command(command)
            assert out.read().decode() == serve.REFUSAL
            assert out.channel.recv_exit_status() == 1
