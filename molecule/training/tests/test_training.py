"""What role horovod promises, seen from outside."""

import json
import time

import pytest

ETC = "/etc/elastic-ai/training"
ENTER = "/usr/local/bin/elastic-ai-training-exec"
LOGIN = ENTER + " ssh -F %s/ssh_config %s@%s true"


def only_on(host, *names):
    if host.check_output("hostname") not in names:
        pytest.skip(f"concerns {', '.join(names)} only")


def refusal(host, command, *args):
    """What `command` says when it fails; its exit code 255 would pass for a failure of the test's own ssh."""
    run = host.run("! " + command, *args)
    assert run.rc == 0, "it was let in"
    return run.stderr


def fabric_address(host):
    return host.check_output("ip -4 -o addr show fab0 | awk '{print $4}' | cut -d/ -f1")


def test_container_serves_the_training_user_alone(host):
    assert host.service("elastic-ai-training").is_running
    assert host.service("elastic-ai-training").is_enabled
    entered = host.run(LOGIN, ETC, "elastic-ai-train", fabric_address(host))
    assert entered.rc == 0, entered.stderr
    assert "Permission denied" in refusal(host, LOGIN, ETC, "root", fabric_address(host))


def test_private_key_is_no_operators(host):
    public = host.file(f"{ETC}/id_ed25519.pub").content_string.split()[1]
    assert public not in host.file("/root/.ssh/authorized_keys").content_string


def test_unknown_host_key_is_refused(host):
    # The node's own sshd on port 22 has a key that the training's authority has not signed.
    said = refusal(host, ENTER + " ssh -F %s/ssh_config -p 22 127.0.0.1 true", ETC)
    assert "Host key verification failed" in said


def test_nobody_but_root_enters_the_container(host):
    assert "only root" in refusal(host, "runuser -u nobody -- " + ENTER + " true")


def test_container_is_of_another_system_and_has_the_parts(host):
    record = json.loads(host.file(f"{ETC}/image.json").content_string)
    versions = record["versions"]
    assert versions["os"] == "debian 12"
    assert all(versions[part] for part in ("horovod", "torch", "openmpi", "rdma_core"))
    assert record["digest"].startswith("sha256:")
    assert "Version" in host.run(ENTER + " ib_write_bw --version").stdout  # it ends with 1 all the same
    assert host.check_output("docker inspect --format '{{.HostConfig.NetworkMode}}' elastic-ai-training") == "host"


def test_all_nodes_run_the_image_that_the_head_made(host):
    only_on(host, "gpu1", "gpu2")
    pulled = json.loads(host.file(f"{ETC}/image.json").content_string)
    running = host.check_output("docker inspect --format '{{.Image}}' elastic-ai-training")
    assert running == host.check_output("docker image inspect --format '{{.Id}}' %s", pulled["reference"])
    assert pulled["digest"] in host.check_output("docker image inspect --format '{{.RepoDigests}}' %s", running)


def test_registry_lets_in_only_who_has_a_certificate(host):
    only_on(host, "gpu1")
    registry = json.loads(host.file(f"{ETC}/image.json").content_string)["reference"].split("/")[0]
    certificates = f"/etc/docker/certs.d/{registry}"
    ask = f"curl -sS --cacert {certificates}/ca.crt https://{registry}/v2/_catalog"
    refusal(host, ask)  # curl tells of the alert or of the closed connection, whichever it sees first
    # Relative: curl takes what follows a colon for a password.
    answer = host.check_output(f"cd {certificates} && {ask} --cert client.cert --key client.key")
    assert json.loads(answer) == {"repositories": ["elastic-ai/horovod"]}
    assert host.run("curl -sS http://%s/v2/", registry).stdout.startswith("Client sent an HTTP request")


def test_horovod_adds_up_across_two_nodes(host):
    only_on(host, "head")
    program = (
        "import horovod.torch as h, torch; h.init(); "
        "print('sum', h.size(), h.allreduce(torch.tensor([float(h.rank() + 1)]), op=h.Sum).item())"
    )
    run = host.run("elastic-ai-mpirun -np 4 --hostfile %s/hostfile python3 -c %s", ETC, program)
    assert run.rc == 0, run.stderr
    assert run.stdout.split("\n")[:-1] == ["sum 4 10.0"] * 4


TWIN = """
import os, socket, torch, torch.distributed as d
d.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
model(torch.full((1, 1), float(d.get_rank() + 1))).sum().backward()
print("mean", d.get_world_size(), next(model.parameters()).grad.item(), os.environ["GLOO_SOCKET_IFNAME"],
      socket.gethostname())
"""


def test_torchrun_twin_adds_up_over_the_fabric(host):
    only_on(host, "head")
    run = host.run("elastic-ai-torchrun -c %s", TWIN)
    assert run.rc == 0, run.stderr
    lines = sorted(line for line in run.stdout.split("\n") if line.startswith("mean"))
    assert lines == [f"mean 4 2.5 fab0 {name}" for name in ("gpu1", "gpu1", "gpu2", "gpu2")]


def test_torchrun_twin_fails_as_its_program_does(host):
    only_on(host, "head")
    run = host.run(
        "elastic-ai-torchrun -c %s", "import os, sys, time; time.sleep(int(os.environ['RANK'])); sys.exit(3)"
    )
    assert run.rc not in (0, 143)


LEFT = (
    "for a in $(cut -d' ' -f1 " + ETC + "/hostfile | grep -v '#'); do "
    + ENTER + " ssh -F " + ETC + "/ssh_config $a \"pgrep -f '[9]8765' | wc -l\"; done"
)  # fmt: skip


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
@pytest.mark.parametrize(
    "launcher",
    [
        "elastic-ai-mpirun -np 4 --hostfile /etc/elastic-ai/training/hostfile sleep 98765",
        "elastic-ai-torchrun -c 'import time; time.sleep(98765)'",
    ],
)
def test_end_of_the_launcher_ends_every_rank(host, launcher, signal):
    only_on(host, "head")
    begun = f"setsid {launcher} >/dev/null 2>&1 </dev/null & echo $!"
    pid = host.check_output(begun)
    until = time.monotonic() + 60
    while min(counts := [int(n) for n in host.check_output(LEFT).split()]) < 2 and time.monotonic() < until:
        time.sleep(0.5)
    assert min(counts) >= 2, f"the ranks never started: {counts}"
    host.check_output("kill -%s %s", signal, pid)
    until = time.monotonic() + 10
    while any(counts := [int(n) for n in host.check_output(LEFT).split()]) and time.monotonic() < until:
        time.sleep(0.5)
    assert not any(counts), counts
    assert host.run("pgrep -f '[9]8765'").rc == 1
