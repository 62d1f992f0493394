"""What the roles base, kernel and tuning promise, seen from outside."""

import json


def test_a_container_never_sets_its_hosts_clock(host):
    assert "-x" in host.check_output("tr '\\0' ' ' < /proc/$(pidof -s chronyd)/cmdline").split()


def test_a_settable_kernel_parameter_is_live_kept_and_remembered(host):
    assert host.sysctl("net.ipv4.tcp_retries2") == 8
    kept = host.file("/etc/sysctl.d/90-elastic-ai.conf").content_string
    assert "net.ipv4.tcp_retries2 = 8" in kept
    assert "vm.swappiness" not in kept, "not settable here, so it must not be claimed"
    remembered = json.loads(host.file("/var/lib/elastic-ai/tuning.json").content_string)
    assert remembered["sysctl"]["net.ipv4.tcp_retries2"] == "15"


def test_nothing_of_the_boot_is_written_in_a_container(host):
    for path in (
        "/etc/default/grub.d",
        "/etc/modprobe.d/60-elastic-ai-nouveau.conf",
        "/var/lib/elastic-ai/kernel.json",
    ):
        assert not host.file(path).exists
    assert not host.file("/run/elastic-ai/reboot-required/kernel").exists


def test_services_get_no_limit_that_the_node_may_not_set(host):
    assert not host.file("/etc/systemd/system.conf.d/90-elastic-ai.conf").exists
    assert host.check_output("systemctl is-system-running --wait") == "running"


def test_all_nodes_are_known_by_name(host):
    for name in ("head", "gpu1"):
        management = host.check_output("getent hosts %s", name).split()[0]
        fabric = host.check_output("getent hosts %s-fab0", name).split()[0]
        assert not {management, fabric} & {"127.0.0.1", "127.0.1.1"}
        assert management.split(".")[3] == fabric.split(".")[3]
    assert host.file("/etc/hosts").content_string.count("BEGIN elastic-ai nodes") == 1
    assert "127.0.0.1" in host.file("/etc/hosts").content_string, "what was there before stays"
