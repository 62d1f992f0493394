"""The last stage of the site: which nodes still wait for a reboot, on nodes that exist only as recordings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import ROOT

BOOT_ID = "/proc/sys/kernel/random/boot_id"
REASON = "/run/elastic-ai/reboot-required/nvidia_driver"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What ansible-playbook prints at the end of a site, by its options."""
    folder = tmp_path_factory.mktemp("report")
    hosts = {}
    for name, contents, hints in (
        ("gpu1", {REASON: "nouveau holds the GPUs\n"}, []), ("gpu2", {}, ["linux-image-6.8.0-60"]), ("head", {}, []),
        ("ctl", {REASON: "nouveau holds the GPUs\n", BOOT_ID: Path(BOOT_ID).read_text()}, []),
    ):  # fmt: skip
        state = {"contents": contents, "reboot_hints": hints}
        (folder / f"{name}.json").write_text(json.dumps({"modules": {"node_state": state}}))
        hosts[name] = {"canned_recording": str(folder / f"{name}.json")}
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"vars": {"ansible_connection": "canned"}, "hosts": hosts}}), encoding="utf-8"
    )
    found = {}
    for options in ((), ("--check",), ("--check", "-e", "reboot=if_needed"), ("--tags", "dcgm")):
        done = subprocess.run(
            ["ansible-playbook", "playbooks/reboot_report.yml", "-i", str(folder / "hosts.yml"), *options],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found[" ".join(options)] = " ".join(done.stdout.split())
    return found


@pytest.mark.parametrize("options", ["", "--check", "--tags dcgm"])
def test_each_node_that_waits_is_named_with_its_reasons_and_the_way(said: dict[str, str], options: str) -> None:
    """With every tag: what is not in use yet does not depend on what was asked for."""
    way = "Next: the same command with -e reboot=if_needed"
    assert "gpu1 waits for a reboot: nvidia_driver: nouveau holds the GPUs." in said[options]
    assert "gpu2 waits for a reboot: packages that were upgraded: linux-image-6.8.0-60." in said[options]
    assert "head waits" not in said[options]
    assert said[options].count(way) == 2


def test_a_check_with_consent_has_nothing_to_report(said: dict[str, str]) -> None:
    assert "gpu1 waits" not in said["--check -e reboot=if_needed"]


@pytest.mark.parametrize("options", ["", "--check -e reboot=if_needed"])
def test_the_machine_that_ansible_runs_on_is_rebooted_by_hand(said: dict[str, str], options: str) -> None:
    assert "ctl waits for a reboot: nvidia_driver: nouveau holds the GPUs; this is the machine that" in said[options]
    assert "Next: reboot it, then the same command again" in said[options]
