"""Nodes of a scheduler are drained, waited for and given back; scontrol and squeue are stand-ins that note calls."""

import base64

from test_refusals import REASON, on, play

SCONTROL = """#!/bin/sh
# Stand-in of the test: one node is drained already.
case "$1 $2" in
"show node") [ "$4" = gpu2 ] && echo "NodeName=$4 State=IDLE+DRAIN" || echo "NodeName=$4 State=IDLE" ;;
*) echo "$*" >> /var/log/scontrol-calls ;;
esac
"""
SQUEUE = """#!/bin/sh
# Stand-in of the test: one job, which has ended when asked again.
[ -e /run/job-has-ended ] && exit
touch /run/job-has-ended
echo "waits for job 42" >> /var/log/scontrol-calls
echo "42 training"
"""
SLURMD = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""


def write(node, path, text):
    encoded = base64.b64encode(text.encode()).decode()
    on(node, f"echo {encoded} | base64 -d > {path} && chmod 755 {path}")


def test_a_node_is_drained_waited_for_and_resumed_and_one_drained_before_stays_so():
    write("head", "/usr/local/bin/scontrol", SCONTROL)
    write("head", "/usr/local/bin/squeue", SQUEUE)
    write("gpu_servers", "/etc/systemd/system/slurmd.service", SLURMD)
    on("gpu_servers", f"systemctl enable --now slurmd; mkdir -p /run/elastic-ai/reboot-required; echo why > {REASON}")
    run = play("-e", "reboot=if_needed", "-e", "reboot_batch=100%")
    assert run.returncode == 0, run.stdout
    calls = on("head", "paste -sd@ /var/log/scontrol-calls").split("@")
    assert calls == [
        "update NodeName=gpu1 State=DRAIN Reason=elastic-ai reboot: planted: why",
        "waits for job 42",
        "update NodeName=gpu1 State=RESUME",
    ]
    assert on("gpu1", f"ls {REASON} 2>/dev/null; systemctl is-active slurmd") == "active"
