"""What role fabric promises, seen from outside, also after a reboot."""

import json


def live(host):
    (link,) = json.loads(host.check_output("ip -json address show dev fab0"))
    return link["mtu"], link["txqlen"], [a["local"] for a in link["addr_info"] if a["family"] == "inet"]


def test_port_carries_its_address_and_jumbo_frames_pass(host):
    mtu, queue, addresses = live(host)
    assert (mtu, queue, len(addresses)) == (9000, 10000, 1)
    declared = host.ansible.get_variables()["fabric_ports"][0]["address"]
    assert addresses == [declared.split("/")[0]]
    network = declared.rsplit(".", 1)[0]
    # 28 bytes of IPv4 and ICMP header; -M do forbids fragments.
    (peer,) = {f"{network}.11", f"{network}.12"} - set(addresses)
    assert host.run("ping -c 1 -W 2 -M do -s 8972 %s", peer).rc == 0
    assert host.run("ping -c 1 -W 2 -M do -s 8973 %s", peer).rc != 0


def test_management_interface_is_left_alone(host):
    assert "unmanaged" in host.check_output("networkctl list --no-legend mgmt0")


def test_tcp_tuning_is_live_where_the_kernel_lets_it(host):
    assert host.sysctl("net.ipv4.tcp_slow_start_after_idle") == 0
    assert host.check_output("cat /proc/sys/net/ipv4/tcp_rmem").split()[-1] == "268435456"


def test_settings_come_back_after_a_reboot(host):
    before = live(host)
    boot = host.check_output("cat /proc/sys/kernel/random/boot_id")
    assert host.ansible("ansible.builtin.reboot", "reboot_timeout=60", check=False)["rebooted"]
    assert host.check_output("cat /proc/sys/kernel/random/boot_id") != boot
    assert host.check_output("systemctl is-system-running --wait") == "running"
    assert live(host) == before
