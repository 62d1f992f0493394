"""A package that its own script left half-configured, by the real dpkg and apt in a folder of their own.

It is finished before anything else is done, or named with what its script said.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import real_apt

CONTROL = """\
Package: theirs
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@example.net>
Description: whose configuration fails for a while
"""
pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root: dpkg gives files to it"), pytest.mark.systems]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> real_apt.Node:
    """A node with package theirs, whose script failed, and fails as long as there is a file `fails`."""
    package, repository = tmp_path / "package", tmp_path / "repository"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(CONTROL)
    script = package / "DEBIAN/postinst"
    script.write_text(f"#!/bin/sh\n[ ! -e {tmp_path}/fails ] || {{ echo 'theirs: no such database' >&2; exit 1; }}\n")
    script.chmod(0o755)
    repository.mkdir()
    (repository / "Packages").write_text("")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, tmp_path / "theirs.deb"], check=True)
    made = real_apt.Node(tmp_path / "node", repository)
    (made.root / "var/lib/dpkg/info").mkdir()
    (made.root / "var/lib/dpkg/updates").mkdir()
    for name, value in {"DPKG_ROOT": str(made.root), "DPKG_FORCE": "script-chrootless"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "fails").touch()
    assert made.run(["dpkg", "-i", str(tmp_path / "theirs.deb")])[0] != 0
    assert made.apt.half_done() == ["theirs"]
    return made


def test_it_is_finished_before_anything_else(node: real_apt.Node, tmp_path: Path) -> None:
    (tmp_path / "fails").unlink()
    node.apt.repair()
    assert (node.apt.half_done(), node.installed()) == ([], {"theirs": "1.0"})


def test_what_cannot_be_finished_is_named_and_stays_as_it_was(node: real_apt.Node) -> None:
    before: dict[str, Any] = dict(node.apt.installed())
    with pytest.raises(real_apt.packages.PackageError) as refused:
        node.apt.repair()
    assert str(refused.value) == (
        "theirs was left half-configured, and its own script fails: theirs: no such database. See to that (dpkg "
        "--configure -a shows it), or take it away (apt-get purge theirs), and run again; nothing else was changed"
    )
    assert (node.apt.half_done(), node.apt.installed()) == (["theirs"], before)
