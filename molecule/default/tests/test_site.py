"""The whole stack on Debian 13: what the as-built checks, which run beside these, do not say."""

import json

import pytest


def record(host):
    return json.loads(host.file("/etc/elastic-ai/provisioned.json").content_string)


def test_runs_on_debian_13(host):
    assert (host.system_info.distribution, host.system_info.release.split(".")[0]) == ("debian", "13")


def test_scheduler_gives_out_the_gpu_server(host):
    if host.check_output("hostname") != "head":
        pytest.skip("asked from the head")
    assert "gpu1" in host.check_output("sinfo --noheader --Node --format '%N %T'")
    assert host.check_output("srun --nodes 1 --nodelist gpu1 hostname") == "gpu1"


def test_training_runs_in_the_container(host):
    if host.check_output("hostname") != "head":
        pytest.skip("launched from the head")
    assert host.check_output("elastic-ai-mpirun -np 1 --hostfile /etc/elastic-ai/training/hostfile hostname") == "gpu1"


def test_what_is_not_real_is_labelled(host):
    if host.check_output("hostname") != "gpu1":
        pytest.skip("a GPU server's record")
    assert {"cuda", "dcgm"} <= set(record(host)["stand_ins"])
