"""Roles that a head with EL has no packages for: each prints that, and which, before anything of it is made."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.support import one_reboot
from tests.support.one_reboot import calls

pytestmark = pytest.mark.systems
RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudqpmmpq2ar6tq"


@pytest.mark.parametrize(
    ("playbook", "tag", "variables", "words"),
    [
        ("page", "pool_page", {"pool_page": True}, "no packages of Starlette and uvicorn are known for el9; leave"),
        ("jupyterhub", "jupyterhub", {"jupyterhub": True}, "el9 has no Python that JupyterHub is tried with"),
        ("monitoring", "backup", {"backup_recipients": [RECIPIENT]}, "no package of age is known for el9"),
    ],
)
def test_what_el_has_no_packages_for_is_printed(
    tmp_path: Path, playbook: str, tag: str, variables: dict[str, Any], words: str
) -> None:
    system = one_reboot.System("el9", "xe9680", one_reboot.make.RAILS[0])
    hosts = one_reboot.inventory(system, tmp_path / "site", one_reboot.arrived(system), keys(tmp_path) | variables)
    try:
        one_reboot.check(tmp_path, {"site": hosts}, "-v", "--tags", tag, playbook=f"playbooks/{playbook}.yml")
    except subprocess.CalledProcessError:
        assert playbook == "page", "the page refuses, the others leave themselves out"
    said = " ".join((hosts.parent / "said").read_text(encoding="utf-8").split())
    assert words in said, said[-3000:]
    changing = ("package_set", "apt", "dnf", "user")
    assert [call for call in calls(hosts) if call["module"] in changing] == []
