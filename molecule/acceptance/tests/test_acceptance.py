"""What role acceptance promises, seen from outside."""

import pytest

PYTHON = "/opt/elastic-ai/acceptance/bin/python"


def test_probes_load_and_need_the_standard_library_alone(host):
    assert host.run("%s -m validation.probes --help", PYTHON).rc == 0
    installed = host.check_output("%s -m pip list --format freeze", PYTHON).split()
    assert {line.split("==")[0] for line in installed} == {"elastic-ai-toolkit", "pip", "setuptools"}


@pytest.mark.parametrize("tool", ["iperf3", "sockperf", "ping", "ethtool", "ip"])
def test_tool_is_there(host, tool):
    assert host.exists(tool)
