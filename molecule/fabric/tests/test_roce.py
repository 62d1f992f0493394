"""What roles ofed and roce promise, seen from outside. gpu1's card is stand-ins, head's port has no DCB."""

import json


def stood_in(host):
    return host.check_output("hostname") == "gpu1"


def test_the_distributions_rdma_stack_is_installed_and_runs(host):
    assert host.package("rdma-core").is_installed
    assert "Version" in host.run("ib_write_bw --version").stdout  # it exits 1
    # A container has no RDMA device; that the library was asked shows in what the tool says, by kernel.
    assert "IB devices" in host.run("ibv_devices").stderr


def test_the_port_shows_the_whole_policy(host):
    shown = host.run("/usr/local/libexec/elastic-ai-roce show fab0 --json")
    assert shown.rc == 0
    port = json.loads(shown.stdout)["fab0"]
    if not stood_in(host):
        assert port["lossless"] is False
        assert "Operation not supported" in port["reason"]
        return
    assert port["lossless"] is True
    assert "stand-in" in port["tool_version"]
    assert port["drift"] == []
    now = port["now"]
    assert (now["trust"], now["dscp_prio"], now["pfc"]) == ("dscp", {"26": 3, "48": 6}, [3])
    assert (now["tos"], now["traffic_class"], now["cnp_dscp"], now["ecn"], now["mtu"]) == (106, 106, 48, True, 9000)
    assert now["ets"]["tsa"]["6"] == "strict"


def test_the_unit_brings_the_settings_back_when_the_port_comes_back(host):
    unit = "elastic-ai-roce@fab0.service"
    if not stood_in(host):
        assert not host.service(unit).is_enabled
        return
    assert host.service(unit).is_enabled
    assert host.service(unit).is_running
    # What a reload of the driver does to the card.
    host.check_output("cp /var/lib/roce-stand-in.json /root/kept.json")
    host.check_output("""echo '{"fab0": {}}' > /var/lib/roce-stand-in.json""")
    drifted = host.run("/usr/local/libexec/elastic-ai-roce check fab0")
    assert drifted.rc == 3
    assert "fab0: pfc is [], wanted [3]" in drifted.stdout
    host.check_output(f"systemctl restart {unit}")
    assert host.run("/usr/local/libexec/elastic-ai-roce check fab0").rc == 0
