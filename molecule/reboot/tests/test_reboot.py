"""Nodes reboot with a reason and consent only, and a batch that fails is the last."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "inventory")
REASON = "/run/elastic-ai/reboot-required/planted"
UNIT = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/test -e /run/planted-well
[Install]
WantedBy=multi-user.target
"""


def play(*arguments):
    command = ["ansible-playbook", ROOT / "playbooks" / "reboot.yml", "-i", INVENTORY, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def on(node, script):
    command = ["ansible", node, "-i", INVENTORY, "-m", "ansible.builtin.shell", "-a", script, "-o"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split("(stdout)")[-1].strip()


def boot_id(node):
    return on(node, "cat /proc/sys/kernel/random/boot_id")


def test_nodes_with_a_reason_were_rebooted_and_others_not(host):
    assert not host.file(REASON).exists
    # gpu1 and gpu2 were given the mark with the reason; the head had neither.
    assert not host.file("/run/before-the-reboot").exists
    assert host.check_output("systemctl is-system-running --wait") == "running"


@pytest.fixture(scope="module")
def _planted():
    on("gpu_servers", f"mkdir -p /run/elastic-ai/reboot-required; echo 'driver 580 is new' > {REASON}")
    yield
    on(
        "gpu1",
        "systemctl disable --now elastic-ai-planted; rm -f /etc/systemd/system/elastic-ai-planted.service;"
        " systemctl reset-failed || true; systemctl daemon-reload",
    )
    on("gpu_servers", f"rm -f {REASON}")


@pytest.mark.usefixtures("_planted")
class TestOnce:
    """One round over the whole lab: no consent, then a batch that fails."""

    def test_reasons_wait_for_consent_and_a_failed_batch_is_the_last(self, host):
        if host.check_output("hostname") != "head":
            pytest.skip("once is enough")
        before = {name: boot_id(name) for name in ("gpu1", "gpu2")}
        waiting = play()
        text = " ".join(waiting.stdout.split())
        assert waiting.returncode == 0, waiting.stdout
        assert "gpu1 needs a reboot: planted: driver 580 is new." in text
        assert "-e reboot=if_needed" in text
        assert {name: boot_id(name) for name in before} == before

        on(
            "gpu1",
            f"printf '%s' '{UNIT}' > /etc/systemd/system/elastic-ai-planted.service;"
            " touch /run/planted-well; systemctl enable --now elastic-ai-planted",
        )
        failed = play("-e", "reboot=if_needed", "-e", "reboot_batch=1", "-e", "reboot_settle_timeout_s=4")
        text = " ".join(failed.stdout.split())
        assert failed.returncode != 0
        assert "elastic-ai-planted.service was active before and is not" in text
        assert "In this batch: gpu1. Not touched: gpu2." in text
        assert boot_id("gpu1") != before["gpu1"]
        assert boot_id("gpu2") == before["gpu2"], "the next batch must not be touched"
