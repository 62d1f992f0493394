"""Folders of ssh's sockets, by the home of whoever runs Ansible."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from validation.base import sockets
from validation.probes import controller


def test_sockets_of_ssh_have_a_short_path_whatever_the_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ssh reaches no node: "too long for Unix domain socket"."""
    for name in ("ANSIBLE_CONFIG", sockets.FOLDER_OF_ANSIBLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/u")
    with sockets.for_ansible() as chosen:
        assert chosen == {}
    monkeypatch.setenv("HOME", f"/nfs/home/{'department/' * 6}u")
    with sockets.for_ansible() as chosen:
        assert 0 < len(controller.run_here(["printenv", sockets.FOLDER_OF_ANSIBLE]).stdout.strip()) < 80
        folder = Path(chosen[sockets.FOLDER_OF_ANSIBLE])
        assert folder.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / ("x" * 10 + "." + "y" * 16)))
    assert not folder.exists()
    monkeypatch.setenv(sockets.FOLDER_OF_ANSIBLE, "/run/mine")
    with sockets.for_ansible() as chosen:
        assert chosen == {}
