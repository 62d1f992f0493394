"""What measurements need: what role acceptance promises."""

from __future__ import annotations

from validation.asbuilt.site import Host, Site

PYTHON = "/opt/elastic-ai/acceptance/bin/python"
TOOLS = ("iperf3", "sockperf", "ping", "ethtool", "ip")


def test_probes_load_and_need_the_standard_library_alone(host: Host, site: Site) -> None:
    """An environment of their own, with nothing in it but them."""
    site.only_with("acceptance")
    said = host.run("%s -m validation.probes --help", PYTHON)
    assert said.rc == 0, said.stderr.strip()
    installed = host.check_output("%s -m pip list --format freeze", PYTHON).split()
    others = {line.partition("==")[0] for line in installed} - {"elastic-ai-toolkit", "pip", "setuptools"}
    assert not others, f"beside the probes: {', '.join(sorted(others))}"


def test_tools_are_there(host: Host, site: Site) -> None:
    """Those that the probes call."""
    site.only_with("acceptance")
    missing = [name for name in TOOLS if not host.exists(name)]
    assert not missing, f"not installed: {', '.join(missing)}"
