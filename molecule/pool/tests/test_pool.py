"""What role slurm promises: a scheduler that gives out nodes, GPUs and parts of GPUs, and accounts for them."""

import time

import pytest

testinfra_hosts = ["ansible://head", "ansible://client1"]


@pytest.fixture
def head(host):
    if host.backend.host != "head":
        pytest.skip("the controller's own work")
    return host


def states(host):
    lines = host.check_output("sinfo -h -N -p all -o '%N %T'").splitlines()
    return dict(line.split() for line in lines)


def until(what, wanted, limit_s=20):
    for _ in range(limit_s * 2):
        seen = what()
        if seen == wanted:
            break
        time.sleep(0.5)
    assert seen == wanted


def variables(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def accounted(host, job):
    return host.check_output("sacct -a -n -P -X -j %s -o state,alloctres", job)


def test_both_nodes_serve_the_one_that_was_added_too(host):
    until(lambda: states(host), {"gpu1": "idle", "gpu2": "idle"})
    assert sorted(host.check_output("timeout 20 srun -N2 hostname").split()) == ["gpu1", "gpu2"]


def test_each_class_of_gpu_has_a_partition(host):
    assert set(host.check_output("sinfo -h -o %%R").split()) == {"all", "v100", "h100"}


def test_a_job_sees_the_gpus_it_asked_for_and_no_others(host):
    env = variables(host.check_output("timeout 20 srun --gres=gpu:v100:2 env"))
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert env["SLURM_GPUS_ON_NODE"] == "2"


def test_a_seventh_a_quarter_and_a_twentieth_fit_beside_each_other_on_one_gpu(head):
    # 140 parts per GPU: 20 + 35 + 7 leave 78; one more whole GPU and 78 parts fit into what is left of two GPUs.
    env = variables(head.check_output("timeout 20 srun --gres=shard:35 env"))
    assert (env["SLURM_SHARDS_ON_NODE"], env["CUDA_VISIBLE_DEVICES"]) == ("35", "0")
    node = variables(head.check_output("scontrol show node gpu1").replace(" ", "\n"))
    assert node["Gres"] == "gpu:v100:4,shard:v100:560"


def test_mpi_jobs_start_over_pmix(host):
    out = host.check_output("timeout 30 srun --mpi=pmix -N2 env")
    assert sorted(line for line in out.splitlines() if line.startswith("PMIX_RANK=")) == ["PMIX_RANK=0", "PMIX_RANK=1"]


def test_more_gpus_than_there_are_is_refused_and_more_than_are_free_waits(head):
    refused = head.run("sbatch --parsable --gres=gpu:5 --wrap true")
    assert refused.rc != 0
    assert "not available" in refused.stderr
    held = head.check_output("sbatch --parsable -w gpu1 --gres=gpu:3 -n1 --mem=100 --wrap 'sleep 60'")
    waiting = head.check_output("sbatch --parsable -w gpu1 --gres=gpu:2 -n1 --mem=100 --wrap true")
    until(lambda: head.check_output("squeue -h -j %s -o '%%t %%r'", waiting), "PD Resources")
    head.check_output("scancel %s", held)
    until(lambda: accounted(head, waiting).split("|")[0], "COMPLETED")
    assert "gres/gpu=2" in accounted(head, waiting)


def test_control_characters_in_the_texts_of_a_job_are_refused(host):
    for option in ("-J", "--comment"):
        refused = host.run("sbatch --parsable " + option + " \"$(printf 'a\\nb')\" --wrap true")
        assert refused.rc != 0
        assert "control characters" in refused.stderr
    assert host.run("srun -n1 sh -c \"$(printf 'echo one\\necho two')\"").stdout.split() == ["one", "two"]


def test_accounting_knows_parts_of_gpus(head):
    job = head.check_output("sbatch --parsable --wait --gres=shard:7 --wrap true")
    until(lambda: accounted(head, job).split("|")[0], "COMPLETED")
    assert "gres/shard=7" in accounted(head, job)


def test_a_drained_node_takes_no_job_until_it_is_resumed(head):
    head.check_output("scontrol update nodename=gpu1 state=drain reason=test")
    try:
        until(lambda: states(head)["gpu1"], "drained")
        assert head.check_output("sinfo -h -R -o '%%E %%N'") == "test gpu1"
        assert head.check_output("timeout 20 srun hostname") == "gpu2"
    finally:
        head.check_output("scontrol update nodename=gpu1 state=resume")
    until(lambda: states(head)["gpu1"], "idle")


def test_key_and_database_are_kept_from_users(head):
    assert head.file("/etc/munge/munge.key").mode == 0o400
    assert head.file("/etc/elastic-ai/slurm/munge.key").mode == 0o600
    assert head.file("/etc/slurm/slurmdbd.conf").mode == 0o600
    assert "StoragePass" not in head.file("/etc/slurm/slurmdbd.conf").content_string
    assert head.run("runuser -u nobody -- mariadb -u slurm -e 'show databases'").rc != 0
