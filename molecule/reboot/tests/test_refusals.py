"""No reboot without consent, and a batch that fails is the last."""

import os
import subprocess
from pathlib import Path

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


def boot_ids():
    return {name: on(name, "cat /proc/sys/kernel/random/boot_id") for name in ("gpu1", "gpu2")}


def test_reasons_wait_for_consent_and_a_failed_batch_is_the_last():
    on("gpu_servers", f"mkdir -p /run/elastic-ai/reboot-required; echo 'driver 580 is new' > {REASON}")
    before = boot_ids()
    waiting = play()
    text = " ".join(waiting.stdout.split())
    assert waiting.returncode == 0, waiting.stdout
    assert "gpu1 needs a reboot: planted: driver 580 is new." in text
    assert "-e reboot=if_needed" in text
    assert boot_ids() == before

    # A service that is active now and will not come back.
    on(
        "gpu1",
        f"printf '%s' '{UNIT}' > /etc/systemd/system/elastic-ai-planted.service;"
        " touch /run/planted-well; systemctl enable --now elastic-ai-planted",
    )
    failed = play("-e", "reboot=if_needed", "-e", "reboot_batch=1", "-e", "reboot_settle_timeout_s=4")
    text = " ".join(failed.stdout.split())
    assert failed.returncode != 0
    assert "elastic-ai-planted.service was active before and is not" in text, text
    assert "Rebooted and verified: none. In this batch: gpu1. Not touched: gpu2." in text, text
    after = boot_ids()
    assert after["gpu1"] != before["gpu1"]
    assert after["gpu2"] == before["gpu2"], "the next batch must not be touched"


def test_the_machine_that_ansible_runs_on_is_not_rebooted(tmp_path):
    # Were it not refused, check mode is what keeps this test from being the last one.
    (tmp_path / "hosts.yml").write_text(
        "all: {children: {elastic_ai_reboot: {hosts: {here: {ansible_connection: local}}}}}"
    )
    command = [
        "ansible-playbook",
        ROOT / "playbooks" / "reboot.yml",
        "-i",
        tmp_path,
        "--check",
        "-e",
        "reboot=if_needed",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "here is the machine that Ansible runs on" in " ".join(done.stdout.split())
