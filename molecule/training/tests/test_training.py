"""What role training promises, seen from outside."""

import pytest

ETC = "/etc/elastic-ai/training"


def only_on(host, *names):
    if host.check_output("hostname") not in names:
        pytest.skip(f"concerns {', '.join(names)} only")


def refusal(host, command, *args):
    """What `command` says when it fails; its exit code 255 would pass for a failure of the test's own ssh."""
    run = host.run("! " + command, *args)
    assert run.rc == 0, "it was let in"
    return run.stderr


def test_training_sshd_serves_the_training_user_alone(host):
    assert host.service("elastic-ai-training-sshd").is_running
    assert host.service("elastic-ai-training-sshd").is_enabled
    login = "ssh -F %s/ssh_config %s@%s true"
    address = host.check_output("ip -4 -o addr show fab0 | awk '{print $4}' | cut -d/ -f1")
    as_user = host.run("runuser -u elastic-ai-train -- " + login, ETC, "elastic-ai-train", address)
    assert as_user.rc == 0, as_user.stderr
    assert "Permission denied" in refusal(host, "runuser -u elastic-ai-train -- " + login, ETC, "root", address)


def test_private_key_is_the_training_users_and_no_operators(host):
    key = host.file(f"{ETC}/id_ed25519")
    assert (key.user, key.mode) == ("elastic-ai-train", 0o600)
    public = host.file(f"{ETC}/id_ed25519.pub").content_string.split()[1]
    assert public not in host.file("/root/.ssh/authorized_keys").content_string


def test_unknown_host_key_is_refused(host):
    # The node's own sshd on port 22 has a key that the training's authority has not signed.
    said = refusal(host, "runuser -u elastic-ai-train -- ssh -F %s/ssh_config -p 22 127.0.0.1 true", ETC)
    assert "Host key verification failed" in said


def test_horovod_adds_up_across_two_nodes(host):
    only_on(host, "head")
    program = (
        "import horovod.torch as h, torch; h.init(); "
        "print('sum', h.size(), h.allreduce(torch.tensor([float(h.rank() + 1)]), op=h.Sum).item())"
    )
    run = host.run(
        "elastic-ai-mpirun -np 4 --hostfile %s/hostfile /opt/elastic-ai/training/bin/python -c %s", ETC, program
    )
    assert run.rc == 0, run.stderr
    assert run.stdout.split("\n")[:-1] == ["sum 4 10.0"] * 4


def test_no_compiler_on_the_node_that_did_not_build(host):
    only_on(host, "gpu2", "head")
    assert not host.package("g++").is_installed
