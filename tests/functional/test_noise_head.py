"""Answers of the head, of a server and of a new node over a real sshd whose login files print beside everything."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import testinfra  # type: ignore[import-untyped]

from tests.support.run_case import topology
from tests.support.sshd import NEEDED, host_line, serving
from toolkit.commands import lease_static
from toolkit.errors import UsageFault
from toolkit.lease import LeaseError
from toolkit.node.head import Head, answers
from toolkit.scan import contact
from toolkit.scan.answer import Answer
from validation.asbuilt.quiet import between_marks
from validation.base import bounded
from validation.model import Node

pytestmark = NEEDED
PORT = 15328
DATA = Path(__file__).resolve().parents[1] / "data/lease"
NOISE = r"""#!/bin/sh
echo 'NodeName=gpu9 Arch=x86_64'; echo '{"jobs": []}'; echo '[1]'; sleep 0.2
echo "got: $SSH_ORIGINAL_COMMAND" | head -c 60; echo
echo "bash: warning: setlocale: LC_ALL: cannot change locale (xx)" >&2
(for i in 1 2 3; do sleep 0.1; echo '{}'; done) &
printf '\033[1mlast login\033[0m: '
eval "$SSH_ORIGINAL_COMMAND"
code=$?; echo '{"type": "inventory-scan"}'; echo 'tput: no value for $TERM' >&2; exit $code
"""
SILENT, ENDLESS, ENDLESS_ERR, SCANNED = "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path = Path(name)
        programs = path / "bin"
        programs.mkdir()
        said = {
            "scontrol": f'[ "$1" = show ] || {{ echo no such node >&2; exit 4; }}; cat {DATA}/slurm-22.05.8-nodes.txt',
            "squeue": f"cat {DATA}/slurm-22.05.8-jobs.json",
            "sudo": 'shift; exec "$@"',
        }
        for program, words in {**said, "../noisy": NOISE}.items():
            (programs / program).write_text(words if words.startswith("#!") else f"#!/bin/sh\n{words}\n")
            (programs / program).chmod(0o755)
        more = f"PasswordAuthentication no\nSetEnv PATH={programs}:/usr/bin:/bin\n"
        more += f"Match LocalAddress 127.0.0.2,{SCANNED}\nForceCommand {path}/noisy\n"
        more += f"Match LocalAddress {SILENT}\nForceCommand sleep 600\n"
        more += f"Match LocalAddress {ENDLESS}\nForceCommand exec yes\n"
        more += f"Match LocalAddress {ENDLESS_ERR}\nForceCommand exec yes >&2\n"
        addresses = ("127.0.0.2", SILENT, ENDLESS, ENDLESS_ERR, SCANNED)
        with serving(path, PORT, addresses, more):
            (path / "known_hosts").write_text(host_line(path, [f"[{address}]:{PORT}" for address in addresses]))
            yield path


def head(folder: Path, address: str = "127.0.0.2") -> Head:
    extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
    found = topology(1, port=PORT, key_file=str(folder / "user"), extra_args=extra)
    node = found.nodes[0]
    ssh = node.ssh.model_copy(update={"host": address})
    return Head(found.model_copy(update={"nodes": (node.model_copy(update={"groups": ("heads",), "ssh": ssh}),)}))


def test_a_noisy_head_is_read_as_a_quiet_one(folder: Path) -> None:
    pool = head(folder)
    assert sorted(pool.nodes()) == ["gpu1", "gpu2"]
    assert pool.leases() >= 0
    assert answers(pool.node)
    with pytest.raises(UsageFault, match="no such node"):
        pool.resume("gpu7")


def test_a_noisy_server_grants_static_leases_as_a_quiet_one(folder: Path) -> None:
    node: Node = head(folder).node
    said = lease_static._ssh(node, "printf '%s' '[]'; cat", "given")
    assert said == "[]given"
    with pytest.raises(LeaseError, match="quota"):
        lease_static._ssh(node, "echo quota exceeded >&2; exit 3")


def test_what_a_head_prints_without_an_end_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SLURM_BYTES", 1 << 20)
    for address, stream in ((ENDLESS, "stdout"), (ENDLESS_ERR, "stderr")):
        with pytest.raises(bounded.TooMuch, match=rf"^gpu1: scontrol: ssh printed more than 1 MiB on {stream}"):
            head(folder, address).nodes()


def read(folder: Path, address: str) -> contact.Outcome:
    login = contact.Login(address, PORT, "root", key_file=folder / "user")
    return contact.contact(login, folder / "known_hosts")


def test_a_noisy_node_is_scanned_as_a_quiet_one(folder: Path) -> None:
    found = read(folder, SCANNED)
    assert isinstance(found, Answer), found
    assert found.reached_at == SCANNED


def test_what_a_node_prints_without_an_end_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SCAN_BYTES", 1 << 20)
    for address, stream in ((ENDLESS, "stdout"), (ENDLESS_ERR, "stderr")):
        found = read(folder, address)
        assert isinstance(found, contact.Trouble)
        assert found.words.startswith(f"user root's shell printed more than 1 MiB on {stream} and was ended")


def test_a_silent_node_is_told_with_the_limit_that_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "ANSWER_TIMEOUT_S", 1.0)
    assert read(folder, SILENT) == contact.Trouble("the reading program did not end within 1 s")


def test_a_check_of_a_noisy_node_gets_its_commands_answer_alone(folder: Path) -> None:
    known = f"-o UserKnownHostsFile={folder / 'known_hosts'} -o StrictHostKeyChecking=yes"
    host = testinfra.get_host(
        f"ssh://root@127.0.0.2:{PORT}", ssh_identity_file=str(folder / "user"), ssh_extra_args=known
    )
    assert host.check_output("printf %s", "a 'b'") != "a 'b'", "the node is noisy"
    between_marks(host.backend)
    between_marks(host.backend)
    assert host.check_output("printf %s", "a 'b'") == "a 'b'"
    assert host.run("echo x; exit 3").rc == 3
    assert host.run("echo x; exit 3").command == b"echo x; exit 3"
    assert host.file("/etc/passwd").contains("root")
    assert host.user("root").uid == 0
