"""Nodes with a reason were rebooted, once, and others not."""

REASON = "/run/elastic-ai/reboot-required/planted"


def test_the_reason_is_gone_with_the_boot_that_had_it(host):
    assert not host.file(REASON).exists
    assert not host.file("/run/before-the-reboot").exists
    assert host.check_output("systemctl is-system-running --wait") == "running"


def test_a_node_without_a_reason_kept_running(host):
    # Prepared: every node but the head was given a reason, and all were given the time of their boot.
    then = host.file("/var/lib/boot-before").content_string.strip()
    now = host.file("/proc/sys/kernel/random/boot_id").content_string.strip()
    assert (now == then) is (host.check_output("hostname") == "head")
