"""What of a node is told as a stand-in."""

from tests.support.node_modules import load

of = load("plugins/plugin_utils/stand_ins.py").stand_ins_of


def test_packages_of_a_planted_repository_and_planted_hardware():
    assert of([], "cuda", "cuda") == []
    assert of(["cuda"], "dcgm", "cuda") == ["dcgm"]
    assert of(["doca"], "cuda", "cuda", "/planted") == ["hardware (sysfs root /planted)"]
    assert of(["cuda"], "cuda", "cuda", "/planted") == ["cuda", "hardware (sysfs root /planted)"]
