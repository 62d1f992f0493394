"""`toolkit inventory` over a real sshd: constructed answers of machines, this machine's own, and what is no node."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from click.testing import CliRunner, Result

from tests.support import answers, scan_answers, warm
from tests.support.sshd import NEEDED, host_line, keygen, serving
from toolkit.cli import cli
from toolkit.commands import inventory as command
from toolkit.inventory import read_inventory
from toolkit.scan import contact, known_hosts, shipped
from toolkit.scan.answer import Answer, parse
from validation.model import Topology

pytestmark = NEEDED
PORT = 15722
PASSWORD = "correct-horse-battery"
HERE = "127.0.0.9"  # answers with the real probe
SILENT, OLD, BARE = "127.0.0.41", "127.0.0.42", "127.0.0.43"
ANSWERS = {
    "127.0.0.10": scan_answers.el9("head", 10, "127.0.0.10"),
    "127.0.0.21": scan_answers.r760("client1", 21, "127.0.0.21"),
    "127.0.0.31": scan_answers.xe9680(1, "127.0.0.31"),
    "127.0.0.32": scan_answers.xe9680(2, "127.0.0.32"),
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An sshd that answers at each address as another machine would."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path = Path(name)
        (path / "tmp").mkdir()
        more = f"SetEnv TMPDIR={path / 'tmp'}\nMaxStartups 100\nPasswordAuthentication yes\nLogLevel VERBOSE\n"
        said = {address: f"cat {path / address}.json" for address in ANSWERS}
        said |= {SILENT: "echo welcome to racadm", BARE: "echo bash: python3: not found >&2"}
        said[OLD] = f"echo '{json.dumps({'type': shipped.TOO_OLD, 'python': '3.6.8'})}'"
        for address, words in said.items():
            more += f"Match LocalAddress {address}\nForceCommand {words}\n"
        for address, answer in ANSWERS.items():
            (path / f"{address}.json").write_text(f"{json.dumps(answer)}\n")
        with serving(path, PORT, (HERE, *said), more):
            keygen(path / "other")
            yield path


@pytest.fixture
def known(folder: Path, tmp_path: Path) -> Path:
    """A known_hosts that knows them all."""
    file = tmp_path / "known_hosts"
    file.write_text(host_line(folder, [f"[{address}]:{PORT}" for address in (HERE, SILENT, OLD, BARE, *ANSWERS)]))
    return file


def listed(tmp_path: Path, *rows: str, columns: str = "address,port") -> str:
    file = tmp_path / "nodes.csv"
    file.write_text("\n".join([columns, *rows]) + "\n")
    return str(file)


def toolkit(*arguments: object) -> Result:
    with warm.asking_ansible():
        return CliRunner().invoke(cli, ["inventory", *map(str, arguments)], prog_name="toolkit")


def nodes_of(site: Path) -> Topology:
    with warm.asking_ansible():
        return read_inventory(site)


def init(folder: Path, known: Path, site: Path, nodes: str, *more: object) -> Result:
    return toolkit(
        "init", site, "--nodes", nodes, "--user", "root", "--key", folder / "user", "--known-hosts", known, *more
    )


def test_an_inventory_is_written_and_later_compared_and_never_overwritten(
    folder: Path, known: Path, tmp_path: Path
) -> None:
    """From addresses to an inventory that the toolkit reads; what changes afterwards is shown."""
    site = tmp_path / "site"
    nodes = listed(tmp_path, *(f"{address},{PORT}" for address in ANSWERS))
    ran = init(folder, known, site, nodes)
    assert ran.exit_code == 0, ran.output
    topology = nodes_of(site)
    assert {node.name: node.groups for node in topology.nodes} == {
        "head": ("heads",), "client1": ("clients",), "gpu1": ("gpu_servers",), "gpu2": ("gpu_servers",),
    }  # fmt: skip
    gpu1 = topology.node("gpu1")
    assert [port.interface for port in gpu1.ports] == [f"ens{slot}np0" for slot in range(31, 39)]
    assert [port.address for port in gpu1.ports] == [f"10.80.{rail}.31" for rail in range(8)]
    assert (gpu1.bom.gpu_model, gpu1.bom.gpu_count, gpu1.bom.nic_model) == ("H100 SXM5 80GB", 8, scan_answers.CX7)
    assert topology.node("client1").ports[0].address == "10.80.0.21"
    text = (site / "hosts.yml").read_text()
    assert "ens39np0 (shares no port of the host with a GPU; storage?)" in " ".join(text.replace("#", " ").split())
    assert "CHECK: taken for the head: by its name" in text
    assert "fabric: roce400" in (site / "group_vars/all/fabric.yml").read_text()

    told = toolkit("scan", site, "--key", folder / "user", "--known-hosts", known, "--json")
    assert answers.check(told.stdout, "inventory-scan")["differences"] == []
    again = init(folder, known, tmp_path / "again", nodes, "--json")
    assert answers.check(again.stdout, "inventory-init")["nodes"] == ["head", "client1", "gpu1", "gpu2"]
    same = toolkit("scan", site, "--key", folder / "user", "--known-hosts", known)
    assert (same.exit_code, same.stdout) == (0, "all 4 nodes are as the inventory says\n")
    mine = text.replace("10.80.3.31/24", "10.80.3.99/24 ").replace(
        "ens38np0, address: 10.80.7.32", "ens77np0, address: 10.80.7.32"
    )
    mine = mine.replace("10.80.0.21/24", "10.80.0.22/24") + "# written by a person\n"
    (site / "hosts.yml").write_text(mine)
    differs = toolkit("scan", site, "--key", folder / "user", "--known-hosts", known)
    assert differs.exit_code == 1, differs.stderr
    assert differs.stdout.splitlines()[0] == (
        "client1: address of port ens1np0: the inventory says 10.80.0.22/24, the node 10.80.0.21/24"
    )
    assert (
        "gpu2: port ens77np0: the inventory says it is a fabric port, the node has none of that name" in differs.stdout
    )
    assert init(folder, known, site, nodes).exit_code == 2
    assert (site / "hosts.yml").read_text() == mine


def test_this_machine_is_read_and_nothing_of_it_is_left(folder: Path, known: Path) -> None:
    """The probe itself, through the channel of a real sshd, gives what this machine is."""
    before = set(Path.home().iterdir())
    found = contact.contact(contact.Login(HERE, PORT, "root", None, folder / "user"), known)
    assert isinstance(found, Answer), found
    assert found.hostname == socket.gethostname()
    assert {port.interface for port in found.ports} <= {entry.name for entry in Path("/sys/class/net").iterdir()}
    assert found.python.startswith("3.")
    assert (set(Path.home().iterdir()), list((folder / "tmp").iterdir())) == (before, [])


def test_the_program_refuses_a_python_that_is_too_old(folder: Path, known: Path) -> None:
    compile(shipped.program(), "program", "exec")
    boot = shipped.program().decode().replace(repr(shipped.OLDEST), "(9, 9)")
    ran = subprocess.run([sys.executable, "-I", "-"], input=boot, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["type"] == shipped.TOO_OLD
    words = contact.contact(contact.Login(OLD, PORT, "root", None, folder / "user"), known)
    assert words == contact.Trouble("Python there is 3.6.8; 3.9 is needed: another system")


def bmc(tmp_path: Path) -> http.server.HTTPServer:
    """A Redfish service as a BMC has it, on 127.0.0.41."""

    class Redfish(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"RedfishVersion": "1.17.0", "Product": "Integrated Dell Remote Access Controller"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = http.server.HTTPServer((SILENT, 0), Redfish)
    pair = [str(tmp_path / "bmc.key"), str(tmp_path / "bmc.crt")]
    subject = ["-subj", "/CN=idrac", "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(
        ["openssl", "req", "-x509", *subject, "-keyout", pair[0], "-out", pair[1]], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair[1], pair[0])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_each_bad_node_is_one_line_with_its_cure(
    folder: Path, known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BMC, an unreachable node, a changed host key, no Python, a wrong password: each named, the good one written."""
    server = bmc(tmp_path)
    monkeypatch.setattr(contact, "BMC_PORT", server.server_port)
    changed = (folder / "other.pub").read_text()
    lines = known.read_text().replace(f"[127.0.0.32]:{PORT}", "gone") + f"[127.0.0.32]:{PORT} {changed}"
    known.write_text(lines)
    rows = [f"127.0.0.31,{PORT}", f"127.0.0.32,{PORT}", f"{SILENT},{PORT}", f"{BARE},{PORT}", "127.0.0.44,9"]
    ran = init(folder, known, tmp_path / "site", listed(tmp_path, *rows))
    server.shutdown()
    assert ran.exit_code == 3, ran.output
    errors = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [
        f"error: 127.0.0.32: its host key is not the known one, so nothing was sent; if it was reinstalled: "
        f"ssh-keygen -f {known} -R '[127.0.0.32]:{PORT}'",
        f"error: {SILENT}: is a BMC (Integrated Dell Remote Access Controller), not the node; put the address of the "
        "node's operating system into the list",
        f"error: {BARE}: python3 is not installed there; install it (apt-get install python3, dnf install python3)",
        "error: 127.0.0.44: refuses connections on port 9; does sshd run there?",
    ]
    assert "CHECK: not in here: 127.0.0.44" in (tmp_path / "site" / "hosts.yml").read_text()
    assert [node.name for node in nodes_of(tmp_path / "site").nodes] == ["gpu1"]


def test_a_wrong_password_is_said_and_appears_nowhere(
    folder: Path, known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKIT_SSH_PASSWORD", PASSWORD)
    nodes = listed(tmp_path, f"127.0.0.31,{PORT}")
    ran = toolkit("init", tmp_path / "site", "--nodes", nodes, "--user", "root", "--known-hosts", known)
    assert ran.exit_code == 2
    assert "127.0.0.31: refuses the password for user root" in ran.stderr
    assert PASSWORD not in ran.output + (folder / "log").read_text()
    assert not (tmp_path / "site").exists()


class Door(paramiko.ServerInterface):  # type: ignore[misc]
    """Lets ops in by the right password, and answers as gpu1."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        self.tried.append(password)
        good = (username, password) == ("ops", PASSWORD)
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        def answer() -> None:
            while channel.recv(65536):
                pass
            channel.sendall(b"welcome\n" + json.dumps(scan_answers.xe9680(1, "127.0.0.1")).encode() + b"\n")
            channel.send_exit_status(0)
            channel.close()

        threading.Thread(target=answer, daemon=True).start()
        return True


def test_a_password_from_a_file_opens_once_its_host_key_is_confirmed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked or a no: nothing is sent. A yes: the key is added to known_hosts, and the password is taken."""
    door, listener = Door(), socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                transport = paramiko.Transport(listener.accept()[0])
                transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(folder / "host")))
                transport.start_server(server=door)
            except (OSError, EOFError, paramiko.SSHException):
                if listener.fileno() < 0:
                    return

    threading.Thread(target=serve, daemon=True).start()
    file, known = tmp_path / "secret", tmp_path / "new" / "known_hosts"
    file.write_text(f"{PASSWORD}\n")
    arguments = ["init", tmp_path / "site", "--nodes", listed(tmp_path, f"127.0.0.1,{port}"), "--user", "ops"]
    arguments += ["--known-hosts", known, "--password-file", file]
    assert "others may read it; chmod 600" in toolkit(*arguments).stderr
    file.chmod(0o600)
    refused = toolkit(*arguments)
    assert (refused.exit_code, door.tried, known.exists()) == (2, [], False)
    assert "its host key was not confirmed; nothing was sent to it" in refused.stderr
    monkeypatch.setattr(command, "_somebody", lambda: True)
    agreed = CliRunner().invoke(cli, ["inventory", *map(str, arguments)], input="y\n")
    listener.close()
    assert agreed.exit_code == 0, agreed.output
    shown = subprocess.run(["ssh-keygen", "-lf", folder / "host.pub"], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[1] in agreed.stderr, "as ssh-keygen shows it at the node's console"
    assert door.tried == [PASSWORD]
    assert PASSWORD not in agreed.output
    assert known.read_text() == host_line(folder, [f"[127.0.0.1]:{port}"])


def test_a_host_key_of_the_list_decides_without_a_question(folder: Path, tmp_path: Path) -> None:
    shown = subprocess.run(["ssh-keygen", "-lf", folder / "host.pub"], capture_output=True, text=True, check=True)
    right, wrong = shown.stdout.split()[1], "SHA256:" + "A" * 43
    columns = "address,port,host_key"
    known = tmp_path / "known_hosts"
    rows = [f"127.0.0.31,{PORT},{right}", f"127.0.0.32,{PORT},{wrong}"]
    ran = init(folder, known, tmp_path / "site", listed(tmp_path, *rows, columns=columns))
    assert ran.exit_code == 3
    assert (
        f"127.0.0.32: its host key is {right}, and {tmp_path / 'nodes.csv'}:3 says {wrong}; nothing was sent"
        in ran.stderr
    )
    assert known.read_text() == host_line(folder, [f"[127.0.0.31]:{PORT}"])


def test_constructed_answers_have_the_shape_of_a_real_one() -> None:
    assert all(isinstance(parse(answer), Answer) for answer in ANSWERS.values())


def test_an_inventory_that_names_its_known_hosts_is_scanned_by_them_and_names_each_node_once(
    folder: Path, known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inventories/lab does, whose host keys are beside it and nowhere else."""
    site = tmp_path / "site"
    assert init(folder, known, site, listed(tmp_path, *(f"{address},{PORT}" for address in ANSWERS))).exit_code == 0
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where nothing is known
    strange = toolkit("scan", site, "--key", folder / "user")
    assert strange.exit_code == 3, strange.output
    errors = [line for line in strange.stderr.splitlines() if line.startswith("error: ")]
    assert errors == ["error: head, client1, gpu1, gpu2: its host key was not confirmed; nothing was sent to it"]

    hosts = site / "hosts.yml"
    words = f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes"
    hosts.write_text(hosts.read_text().replace("all:\n", f"all:\n  vars:\n    ansible_ssh_common_args: {words}\n", 1))
    same = toolkit("scan", site, "--key", folder / "user")
    assert (same.exit_code, same.stdout) == (0, "all 4 nodes are as the inventory says\n"), same.output
    assert [same.stderr.count(f" {address}:") for address in ANSWERS] == [1, 1, 1, 1]
    assert not (tmp_path / "home").exists()
    other = toolkit("scan", site, "--key", folder / "user", "--known-hosts", tmp_path / "empty")
    assert other.exit_code == 3, "what was asked for goes before what the inventory says"


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("-o", "UserKnownHostsFile=/x/known"), "/x/known"),
        (("-oUserKnownHostsFile=/x/known",), "/x/known"),
        (("-o", "userknownhostsfile /x/known"), "/x/known"),
        (("-o", "UserKnownHostsFile=/dev/null"), None),
        (("-o", "StrictHostKeyChecking=no"), None),
        ((), None),
    ],
)
def test_the_known_hosts_of_an_inventory_are_read_from_its_ssh_options(
    arguments: tuple[str, ...], file: str | None
) -> None:
    assert known_hosts.of_inventory(arguments) == (Path(file) if file else None)
