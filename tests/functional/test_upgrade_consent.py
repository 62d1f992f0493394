"""Consent to a reboot in an upgrade, as Ansible resolves it for roles reboot and preflight of each node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.upgrade_world import NAMES, World, ran
from validation.base.project import ROOT

POLICY = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text(encoding="utf-8"))["__preflight_site"]


def test_each_batch_has_consent_for_its_own_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    assert ran(world).exit_code == 0
    head, gpus = world.consents[:2]
    play = {
        "hosts": "all", "connection": "local", "gather_facts": False,
        "vars_files": [str(ROOT / "roles/reboot/defaults/main.yml")],
        "vars": {"seen_by_preflight": POLICY["reboots"]},
        "tasks": [{"ansible.builtin.debug": {
            "msg": "[{{ inventory_hostname }} {{ reboot_policy }} {{ seen_by_preflight | bool }}]"}}],
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    for given, names in ((head, ("head",)), (gpus, ("gpu1", "gpu2"))):
        command = [Path(sys.executable).with_name("ansible-playbook"), "-i", ",".join(NAMES) + ",", *given, "play.yml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        for name in NAMES:
            wanted = "if_needed True" if name in names else "never False"
            assert f"[{name} {wanted}]" in done.stdout, done.stdout
