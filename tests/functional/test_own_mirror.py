"""A mirror behind TLS that asks for a client's certificate: what role repos writes, read by the real apt and dnf."""

from __future__ import annotations

import contextlib
import functools
import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import real_apt, real_dnf
from tests.support.node_modules import ROOT, load
from toolkit.lab import rpmrepo
from toolkit.lab.debrepo import make_key, make_repositories
from toolkit.lab.fake_packages import load_fake_packages
from toolkit.lab.rpm_packages import load_rpm_packages

pytestmark = pytest.mark.engines

repos = load("plugins/plugin_utils/repos.py")
CATALOGUE = yaml.safe_load((ROOT / "roles/repos/vars/main.yml").read_text(encoding="utf-8"))["__repos_catalogue"]


def made(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and of it a server's and a client's certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    made(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=site", "-days", "2")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    for name in ("server", "client"):
        made(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        made(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *sign)
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...

    def handle(self) -> None:
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # who shows no certificate is sent away
            super().handle()


@pytest.fixture
def served(tmp_path: Path, papers: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address; nobody without a certificate of the authority gets anything."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers / "server.pem", papers / "server.key")
    context.load_verify_locations(papers / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        # The handshake in the thread of the connection: else a client that fails it holds up the others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"https://localhost:{server.server_address[1]}"
        server.shutdown()


def written(system: str, name: str, url: str, tls: dict[str, str], key: str) -> dict[str, str]:
    """Text by path, as role repos writes it."""
    wanted = {"system": system, "machine": "x86_64", "release": "9.6", "mirror": "", "urls": {name: url}}
    wanted |= {"key_urls": {}, "fingerprints": {}, "doca_version": "", "tls": tls}
    plan = repos.repos_plan([name], {name: {**CATALOGUE[name], "yum": {}}}, wanted)
    files = repos.repos_files(plan, {name: key}, [name], [], system)
    return {file["path"]: file["content"] for file in files if file.get("content")}


def tls_of(papers: Path) -> dict[str, str]:
    return {"certificate": f"{papers}/client.pem", "key": f"{papers}/client.key", "ca": f"{papers}/ca.pem"}


def test_apt_reads_a_mirror_that_wants_a_certificate(tmp_path: Path, papers: Path, served: tuple[Path, str]) -> None:
    folder, url = served
    make_key(tmp_path / "key")
    name, system = "nvidia-container-toolkit", "ubuntu2404"
    fakes = [fake for fake in load_fake_packages() if fake.repo == name]
    make_repositories(fakes, tmp_path / "out", tmp_path / "key/secret.asc")
    (folder / name).symlink_to(tmp_path / "out" / name / system)
    node = real_apt.Node(tmp_path / "node", tmp_path / "out" / name / system)
    (node.root / "etc/apt/sources.list").write_text("")
    for tls, works in (({}, False), (tls_of(papers), True)):
        texts = written(system, name, f"{url}/{name}/", tls, (tmp_path / "key/key.asc").read_text())
        for path, text in texts.items():
            file = node.root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("/etc/apt/keyrings", f"{node.root}/etc/apt/keyrings"))
        code, said = node.run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])
        assert (code == 0) is works, said
        if not works:
            told = repos.repos_refusal(said, [{"name": name, "url": f"{url}/{name}/"}])
            assert "the TLS connection failed (repos_client_certificate" in told, said
    assert node.apt.versions([name])[name]


def test_dnf_reads_a_mirror_that_wants_a_certificate(tmp_path: Path, papers: Path, served: tuple[Path, str]) -> None:
    if lacking := real_dnf.missing_tools():
        pytest.skip(f"not installed: {', '.join(lacking)}")
    folder, url = served
    make_key(tmp_path / "rpm/key")
    docker = [repository for repository in load_rpm_packages() if repository.repo == "docker"]
    rpmrepo.make_repositories(docker, tmp_path / "rpm", tmp_path / "rpm/key")
    (folder / "docker").symlink_to(tmp_path / "rpm/docker/el9")
    (tmp_path / "node").mkdir()
    with real_dnf.node_of(tmp_path / "node", tmp_path / "rpm") as node:
        for entry in (node.root / "etc/yum.repos.d").iterdir():
            entry.unlink()
        for tls, works in (({}, False), (tls_of(papers), True)):
            key = (tmp_path / "rpm/key/key.asc").read_text()
            texts = written("el9", "docker", f"{url}/docker/", tls, key)
            for path, text in texts.items():
                file = node.root / path.lstrip("/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.replace("file:///etc", f"file://{node.root}/etc"))
            answer = node.dnf({"name": [], "update_cache": True}, check=False)
            assert (not answer.get("failed")) is works, answer
            if not works:
                told = repos.repos_refusal(answer["msg"], [{"name": "docker", "url": f"{url}/docker/"}])
                assert "wants a certificate (repos_client_certificate, repos_ca)" in told, answer
        found = node.dnf({"list": "docker-ce-cli"}, check=False)["results"]
    assert found, "its packages are known"
