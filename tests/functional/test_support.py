"""`toolkit support` over a real sshd, on a node whose login prints text: what is packed, and what is not."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import answers, bmcs
from tests.support import support_case as case
from tests.support.report_fixture import make_run
from tests.support.run_case import processes_of
from tests.support.sshd import NEEDED
from toolkit.support import gather
from validation.base.project import ROOT

pytestmark = NEEDED
SECRETS = {
    "password": "Tr0ub4dor-and-3",
    "vault": "63316537616263646566303132333435",
    "munge": "MUNGE-KEY-BYTES-0123",
    "token": "hf_abcdefghijklmnopqrstuvwxyz0123456789",
    "url": "correct-horse",
    "header": "YWRtaW46aHVudGVyMg",
    "key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj",
    "bmc": bmcs.PASSWORD,
}
"""Planted on the node; none may be in the package, in whatever file."""
PLANTED = f"""\
BMC_PASSWORD={SECRETS["bmc"]}
db_password: {SECRETS["password"]}
said somewhere: {SECRETS["bmc"]}
export HF_HOME=/x HF_TOKEN={SECRETS["token"]}
https://ops:{SECRETS["url"]}@mirror.example/repo
Authorization: Basic {SECRETS["header"]}
-----BEGIN PRIVATE KEY-----
{SECRETS["key"]}
-----END PRIVATE KEY-----
pool_secret: !vault |
  $ANSIBLE_VAULT;1.1;AES256
  {SECRETS["vault"]}
"""
BUG_REPORT = """#!/bin/sh
echo $$ > {pid}
while [ $# -gt 1 ]; do [ "$1" = --output-file ] && out=$2; shift; done
cat {planted} | gzip > "$out.gz"
"""
SOS = """#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = --tmp-dir ] && out=$2; shift; done
cp {sos} "$out/sosreport-gpu2.tar.gz"
"""


def sos() -> bytes:
    link = tarfile.TarInfo("sos/etc/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
    members = {
        "sos/etc/app.conf": PLANTED.encode(),
        "sos/etc/munge/munge.key": SECRETS["munge"].encode(),
        "sos/../../../outside": b"x",
        "sos/var/log/messages.1.gz": gzip.compress(PLANTED.encode()),
        "sos/var/log/sa01": b"\0\1\2" + SECRETS["password"].encode(),
        "sos/proc/version": b"Linux 6.1\n",
    }
    return case.archive(members, {"link": link})


@pytest.fixture(scope="module")
def node() -> Iterator[Path]:
    """A node that is up, with secrets in its logs and reports, and a run in which it was slow."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        folder = Path(name)
        (folder / "planted").write_text(PLANTED)
        (folder / "sos.tar.gz").write_bytes(sos())
        case.tool(folder, "nvidia-bug-report.sh", BUG_REPORT.format(pid=folder / "pid", planted=folder / "planted"))
        case.tool(folder, "sos", SOS.format(sos=folder / "sos.tar.gz"))
        make_run(folder / "runs" / "r1", virtual=False, waive=True, day=1, run="r1", slow="gpu2")
        with case.node(folder):
            case.kernel_log(folder, case.KERNEL + PLANTED)
            yield folder


@pytest.fixture(scope="module")
def packed(node: Path) -> tuple[dict[str, Any], dict[str, bytes], Path]:
    """A package of one GPU, of a node with a BMC: the answer, and the files."""
    before = case.leftovers()
    with bmcs.bmcs(node, [case.NAME]) as there, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_AI_BMC_PASSWORD", bmcs.PASSWORD)
        bmc = {"address": "127.0.0.1", "port": there[case.NAME].port, "user": bmcs.USER, "ca": str(node / "bmc.pem")}
        site = case.inventory(node, bmc=bmc)
        out = node / "package.tar.gz"
        done = case.support(case.NAME, "3", "-i", site, "--runs-dir", node / "runs", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    assert case.leftovers() == before
    return answers.check(done.stdout, "support"), case.opened(out), out


def unpacked(name: str, data: bytes) -> bytes:
    """A file, or all texts of an archive in it."""
    if name.endswith("sosreport.tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return b"".join(case.content(tar, one) for one in tar)
    return gzip.decompress(data) if name.endswith(".gz") else data


def test_one_file_has_everything_and_a_manifest_that_is_true(packed: Any) -> None:
    answer, files, out = packed
    assert out.stat().st_mode & 0o777 == 0o600
    manifest = json.loads(files["manifest.json"])
    listed = {one["name"]: one for one in manifest["files"]}
    assert set(listed) == set(files) - {"README.txt", "manifest.json"}
    for name, one in listed.items():
        assert (one["size"], one["sha256"]) == (len(files[name]), hashlib.sha256(files[name]).hexdigest()), name
        assert one["source"], name
        assert one["when"].endswith("Z") or "+00:00" in one["when"], name
    assert answer["part"]["serial"] == "1650921000000"
    assert answer["run"] == "r1"
    assert (answer["not_asked"], answer["files"]) == ({}, len(files))
    gone = {one["what"].split(" ")[0] for one in manifest["could_not_be_read"]}
    assert "node/slurm/node.txt" in gone, "a tool that is not installed is reported"


def test_the_readme_shows_the_part_its_log_lines_and_figures_beside_peers(packed: Any) -> None:
    text = packed[1]["README.txt"].decode()
    assert "GPU 3, PCI 0000:3b:00.0, serial 1650921000000" in text
    assert "restarted" not in text, "nobody knows that"
    assert "Xid (PCI:0000:3b:00): 79" in text
    assert "AER: Corrected error" in text
    assert "ens1: Link down" not in text, "another part's"
    assert "tr.tcpbw" in text
    assert "median of" in text
    rows = json.loads(packed[1]["run/measurements.json"])
    slow = next(row for row in rows if row["criterion"] == "tr.tcpbw" and row["verdict"] == "fail")
    assert slow["value"] < slow["floor"] < slow["median_of_peers"]
    assert any(name.startswith("run/raw/tcp-bandwidth.") for name in packed[1]), "raw logs of what failed"


def test_the_bmc_is_asked(packed: Any) -> None:
    assert json.loads(packed[1]["bmc/events.json"])[0]["message"] == "Log cleared."
    assert "The BMC's event log" in packed[1]["README.txt"].decode()
    assert "serial EAT0001, PowerEdge XE9680" in packed[1]["README.txt"].decode(), "the server's, by its BMC"
    assert any(part["kind"] == "psu" for part in json.loads(packed[1]["parts.json"]))


def test_no_planted_secret_is_in_any_file(packed: Any) -> None:
    """Each is in the logs, in nvidia-bug-report.log.gz and in the sosreport; the next test holds that they were."""
    _, files, out = packed
    for name, data in files.items():
        for what, secret in SECRETS.items():
            assert secret.encode() not in unpacked(name, data), (name, what)
    assert gzip.decompress(out.read_bytes()).count(b"Linux 6.1\n") == 0, "reports are packed as their own archives"
    assert b"Linux 6.1" in unpacked("sosreport.tar.gz", files["node/reports/sosreport.tar.gz"])
    hidden = json.loads(files["manifest.json"])["secrets_hidden"]
    assert {"a private key", "a vault value", "a password or token", "a secret of this site"} <= set(hidden)


@pytest.mark.parametrize("off", ["clean", "literals"])
def test_without_the_filter_they_would_be_there(
    off: str, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a planted secret proves: the same package without the filter has each of them."""
    from toolkit.support import package, reports, secret_filter

    monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", bmcs.PASSWORD)
    if off == "clean":
        for module in (package, reports):
            monkeypatch.setattr(module, "clean", lambda data, _: secret_filter.Cleaned(data))
        monkeypatch.setattr(reports, "_NEVER", secret_filter.re.compile(r"(?!)"))
        wanted = set(SECRETS)
    else:
        monkeypatch.setattr(secret_filter.Literals, "taken_out", lambda _, data, __: data)
        wanted = {"bmc"}
    out = tmp_path / "x.tar.gz"
    done = case.support(case.NAME, "-i", case.inventory(node), "--runs-dir", node / "runs", "--out", out)
    assert done.exit_code == 0, done.output
    texts = b"".join(unpacked(name, data) for name, data in case.opened(out).items())
    assert {what for what in wanted if SECRETS[what].encode() in texts} == wanted


def test_a_sosreport_leads_nowhere(packed: Any) -> None:
    _, files, _ = packed
    with tarfile.open(fileobj=io.BytesIO(files["node/reports/sosreport.tar.gz"])) as tar:
        assert {one.name for one in tar} == {"sos/etc/app.conf", "sos/var/log/messages.1", "sos/proc/version"}
    left = json.loads(files["manifest.json"])["left_out"]
    why = " ".join(f"{one['what']} {one['why']}" for one in left)
    for words in ("munge.key", "links or devices", "leads out of the archive", "no text"):
        assert words in why


def test_unknown_nodes_parts_and_places_are_one_clear_error(node: Path, tmp_path: Path) -> None:
    site = case.inventory(node)
    done = case.support("gpu9", "-i", site)
    assert (done.exit_code, "no node 'gpu9'" in done.stderr, "gpu1, gpu2" in done.stderr) == (2, True, True)
    done = case.support(case.NAME, "SN-NONE", "-i", site, "--out", tmp_path / "x.tar.gz")
    assert (done.exit_code, "no part 'SN-NONE'" in done.stderr) == (2, True)
    assert f"GPU 3, PCI 0000:3b:00.0, serial 1650921000000, {case.UUID}" in done.stderr
    assert "network card, fab0" in done.stderr
    (tmp_path / "there.tar.gz").write_text("")
    done = case.support(case.NAME, "-i", site, "--out", tmp_path / "there.tar.gz")
    assert (done.exit_code, "is there already" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == [tmp_path / "there.tar.gz"]
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "_ask", lambda *_: asked.append("asked"))
        done = case.support(case.NAME, "-i", site, "--out", "/proc/x.tar.gz")
    assert (done.exit_code, "/proc: cannot be written to" in done.stderr, asked) == (2, True, []), done.stderr


def test_a_node_that_does_not_answer_is_packed_from_what_is_known_of_it(node: Path, tmp_path: Path) -> None:
    site, out = case.inventory(node, port=1), tmp_path / "x.tar.gz"
    done = case.support(case.NAME, "fab0", "-i", site, "--runs-dir", node / "runs", "--out", out)
    assert (done.exit_code, "refuses connections on port 1" in done.stdout) == (3, True), done.output
    files = case.opened(out)
    assert "NOT READ: node: refuses connections" in files["README.txt"].decode()
    assert json.loads(files["run/measurements.json"])
    assert not any(name.startswith(("node/", "part/", "toolkit/")) for name in files)


def test_a_part_that_only_the_bmc_lists_is_packed_and_named(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.tar.gz"
    monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", bmcs.PASSWORD)
    with bmcs.bmcs(node, [case.NAME]) as there:
        bmc = {"address": "127.0.0.1", "port": there[case.NAME].port, "user": bmcs.USER, "ca": str(node / "bmc.pem")}
        done = case.support(case.NAME, "Video.Slot.2-1", "-i", case.inventory(node, bmc=bmc), "--out", out)
    assert (done.exit_code, "serial G0001002" in done.stdout) == (0, True), done.output
    assert "THE NODE ITSELF DOES NOT LIST IT NOW" in case.opened(out)["README.txt"].decode()


def test_a_bmc_that_refuses_is_reported(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "x.tar.gz"
    monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", "another-password")
    with bmcs.bmcs(node, [case.NAME]) as there:
        bmc = {"address": "127.0.0.1", "port": there[case.NAME].port, "user": bmcs.USER, "ca": str(node / "bmc.pem")}
        done = case.support(case.NAME, "-i", case.inventory(node, bmc=bmc), "--out", out)
    assert (done.exit_code, "not read   bmc:" in done.stdout) == (3, True), done.output
    said = json.loads(case.opened(out)["manifest.json"])["could_not_be_read"]
    others = len([one for one in said if one["what"] != "bmc"])
    words = f"missing    {others} thing" if others else "missing"
    assert (words in done.stdout) is bool(others), (done.stdout, said)
    assert "NOT READ: bmc:" in case.opened(out)["README.txt"].decode()


def test_ctrl_c_leaves_nothing_on_node_or_controller(node: Path, tmp_path: Path) -> None:
    """While nvidia-bug-report.sh runs, and has written into its folder."""
    case.tool(node, "nvidia-bug-report.sh", f"echo $$ > {node / 'pid'}; echo half > half; exec sleep 1234567")
    (node / "pid").unlink(missing_ok=True)
    before = case.leftovers()
    words = [sys.executable, "-m", "toolkit", "support", case.NAME, "-i", str(case.inventory(node))]
    process = subprocess.Popen(
        [*words, "--out", str(tmp_path / "x.tar.gz")], cwd=ROOT, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (node / "pid").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert case.leftovers() != before, "its folders are there while it runs"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "nothing was written" in err) == (130, True), err
    assert list(tmp_path.iterdir()) == []
    assert case.leftovers() == before
    assert processes_of("sleep", "1234567") == []


def test_the_node_is_left_as_it_was_when_the_controller_is_killed(node: Path, tmp_path: Path) -> None:
    case.tool(node, "nvidia-bug-report.sh", f"echo $$ > {node / 'pid'}; exec sleep 1234568")
    (node / "pid").unlink(missing_ok=True)
    words = [sys.executable, "-m", "toolkit", "support", case.NAME, "-i", str(case.inventory(node))]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*words, "--out", str(tmp_path / "x.tar.gz")], cwd=ROOT, stderr=subprocess.DEVNULL, env=env
    )
    until = time.monotonic() + 120
    while not (node / "pid").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while processes_of("sleep", "1234568") and time.monotonic() < until:
        time.sleep(0.2)
    assert processes_of("sleep", "1234568") == []
    until = time.monotonic() + 30
    while list(Path("/var/tmp").glob("elastic-ai-support-*")) and time.monotonic() < until:
        time.sleep(0.2)
    assert list(Path("/var/tmp").glob("elastic-ai-support-*")) == []
