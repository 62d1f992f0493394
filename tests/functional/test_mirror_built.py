"""A mirror planned, built, verified and served with the real apt, on repositories of a few tiny packages.

They stand in for those of Ubuntu 24.04 and of a vendor. What the roles want is said here; that they can be asked is the
last test. EL 9: test_mirror_el.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import tiny_repos
from toolkit.errors import UsageFault
from toolkit.lab.debrepo import fingerprint, make_key, make_repositories
from toolkit.lab.fake_packages import load_fake_packages
from toolkit.mirror import building, manifest, openpgp, planning, room, serving, verifying
from toolkit.mirror.asking import Asked, ask
from toolkit.mirror.documents import Plan
from validation.signing import ssh

REPO = Path(__file__).parents[2]
NAME = "nvidia-container-toolkit"
TOOLS = ("apt-get", "apt-ftparchive", "dpkg-deb", "gpg", "ssh-keygen")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
]


def asked(folder: Path, wanted: dict[str, dict[str, str]], **changed: Any) -> Asked:
    """What the roles answer of a node of Ubuntu 24.04 with a vendor's repository."""
    vendor = {"name": NAME, "system": "ubuntu2404", "url": f"file:{folder}/vendor/{NAME}/ubuntu2404/",
              "suite": "/", "components": "", "key_url": "", "architecture": "amd64",
              "fingerprints": [fingerprint(folder / f"keys/{NAME}.asc")]}  # fmt: skip
    packages = {"os_key": "ubuntu2404", "wanted": wanted, "image": [], "pins": [], "notes": []}
    upstream = {"repos_mirror": "", "repos_urls": {}, "repos_key_dir": str(folder / "keys")}
    sources = {"repositories": [vendor], "pins": [], "upstream": upstream}
    return Asked.model_validate({"packages": packages, "sources": sources, **changed})


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution's repository (flat), a vendor's, which is signed, and its key."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "own").mkdir()
    tiny_repos.deb(folder / "own", "shell", essential=True)
    tiny_repos.deb(folder / "own", "tool", "2:1.0+b~1", depends="lib (>= 1)")
    tiny_repos.deb(folder / "own", "lib")
    tiny_repos.deb(folder / "own", "unwanted")
    tiny_repos.apt_index(folder / "own")
    make_key(folder / "secret")
    vendor = [one for one in load_fake_packages() if one.repo == NAME]
    make_repositories(vendor, folder / "vendor", folder / "secret/secret.asc")
    (folder / "keys").mkdir()
    shutil.copy(folder / "secret/key.asc", folder / f"keys/{NAME}.asc")
    (folder / "own.list").write_text(f"deb [trusted=yes] file:{folder}/own ./\n")
    return folder


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssh.Key:
    """Who signs; and the mirror's own key is one of this test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return ssh.read_key(tmp_path / "key")


WANTED = {"base": {"tool": ""}, "docker": {"libnvidia-container1": ""}}


def planned(sources: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, dict[str, str]]) -> Plan:
    monkeypatch.setattr(planning, "ask", lambda inventory, recorded: {"head": asked(sources, wanted)})
    monkeypatch.setattr(planning.extras, "wheels", tuple)
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)
    request = planning.Wanted(sources, {"ubuntu2404": sources / "own.list"})
    return planning.plan(request, lambda words: None)


def built(sources: Path, monkeypatch: pytest.MonkeyPatch, key: ssh.Key, folder: Path) -> building.Built:
    return building.build(planned(sources, monkeypatch, WANTED), folder, key, lambda words: None)


def test_the_plan_is_apts_closure_and_names_what_is_missing(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {**WANTED, "cuda": {"cuda-toolkit": "13.0", "tool": ""}, "roce": {"lib": "9"}}
    plan = planned(sources, monkeypatch, wanted)
    names = {one.name: sorted(p.name for p in one.packages) for one in plan.repositories}
    assert names == {"distribution": ["lib", "shell", "tool"], NAME: ["libnvidia-container1"]}
    assert [(m.role, m.name, m.version, m.versions) for m in plan.missing] == [
        ("cuda", "cuda-toolkit", "13.0", ()), ("roce", "lib", "9", ("1.0",))
    ]  # fmt: skip
    docker = next(one for one in plan.repositories if one.name == NAME)
    assert (docker.suite, docker.label) == ("/", "Elastic AI lab stand-in")
    assert plan.size == sum(p.size for one in plan.repositories for p in one.packages) > 0


SIGNED = """
import sys
from pathlib import Path
from toolkit.mirror import openpgp
file = Path(sys.argv[1])
openpgp.sign(file, clear=None, detached=file.with_suffix(".asc"))
openpgp.own_public(file.with_suffix(".key"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a /run/user of its own")
@pytest.mark.parametrize("run_user", ["/run/user/0", "/run/user/none"])
def test_its_key_signs_wherever_the_home_of_its_user_is(tmp_path: Path, run_user: str) -> None:
    """Without /run/user/0, as by cron or in a container, the socket of gpg's agent is in the folder of the key."""
    data = tmp_path / ("long" * 25)
    file = tmp_path / "Release"
    file.write_text("an index")
    script = f'mkdir -p /run/user && mount -t tmpfs none /run/user && mkdir -m 700 {run_user} && "$@" && find /run/user'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", SIGNED, str(file)]
    place = {**os.environ, "XDG_DATA_HOME": str(data), "PYTHONPATH": str(REPO)}
    done = subprocess.run(words, env=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", ring, file.with_suffix(".key")], check=True)
    subprocess.run(["gpgv", "--keyring", ring, file.with_suffix(".asc"), file], check=True, capture_output=True)
    left = [line for line in done.stdout.splitlines() if "/d." in line]
    assert (left, [one.name for one in data.rglob("S.*")]) == ([], [])  # its agent has ended


def test_a_key_that_is_not_the_declared_one_is_refused(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"repository docker: its key is [0-9A-F]{40}, and the declared one is AB"):
        openpgp.only(sources / f"keys/{NAME}.asc", ["AB"], "docker", tmp_path / "out.asc")
    assert not (tmp_path / "out.asc").exists()


def test_a_node_installs_from_the_mirror_alone_and_every_fault_is_named(
    sources: Path, monkeypatch: pytest.MonkeyPatch, key: ssh.Key, tmp_path: Path
) -> None:
    folder = tmp_path / "mirror"
    assert built(sources, monkeypatch, key, folder).came == 4
    checked = verifying.verify(folder, None, lambda words: None)
    assert checked.faults == ()
    assert not [path for path in folder.rglob("*") if path.is_symlink()]  # as apt makes them of what is here already
    again = built(sources, monkeypatch, key, folder)  # incremental: nothing comes, no index is written
    assert (again.came, again.published) == (0, 0)

    with served(folder) as url:
        variables = yaml.safe_load(serving.variables(folder, serving.read_plan(folder), again.fingerprint, url))
        assert variables["repos_mirror"] == f"{url}/packages"
        assert variables["repos_fingerprints"] == {"distribution": [again.fingerprint], NAME: [again.fingerprint]}
        assert variables["mirror_upstream"]["repos_key_dir"] == str(sources / "keys")
        listed = installable(tmp_path / "node", variables, ["tool", "libnvidia-container1"])
        assert {name for name in listed if name != "shell"} == {"tool", "lib", "libnvidia-container1"}
        for place in ("/.partial/lock", "/packages/", "/../key", "/%2e%2e/key"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url + place, timeout=10)

    pool = folder / "packages/distribution/ubuntu2404/pool"
    damaged, missing = next(pool.glob("lib_*")), next(pool.glob("shell_*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    missing.unlink()
    tiny_repos.deb(tmp_path, "tool", "3.0").replace(next(pool.glob("tool_*")))
    (folder / "added").write_text("x")
    faults = verifying.verify(folder, None, lambda words: None).faults
    assert len(faults) == 4
    assert any(damaged.name in one and "is damaged" in one for one in faults)
    assert any(missing.name in one and "is missing" in one for one in faults)
    assert any("is of another release: tool 3.0, and the mirror has tool 2:1.0+b~1" in one for one in faults)
    assert any(one.startswith("added: is not of this mirror") for one in faults)


def test_a_signature_of_another_key_or_a_changed_list_is_not_good(
    sources: Path, monkeypatch: pytest.MonkeyPatch, key: ssh.Key, tmp_path: Path
) -> None:
    folder = tmp_path / "mirror"
    built(sources, monkeypatch, key, folder)
    signers = tmp_path / "signers"
    signers.write_text(f"me {key.path.with_suffix('.pub').read_text()}")
    assert manifest.read(folder, signers).good
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    signers.write_text(f"me {(tmp_path / 'other.pub').read_text()}")
    assert not manifest.read(folder, signers).good
    (folder / manifest.MANIFEST).write_text("")
    assert "is not the one that was signed" in manifest.read(folder, None).words


def test_a_medium_that_is_full_is_one_sentence_and_leaves_nothing_trusted(
    sources: Path, monkeypatch: pytest.MonkeyPatch, key: ssh.Key, tmp_path: Path
) -> None:
    """Told before anything comes; and where it fills up meanwhile, the mirror is not signed any more."""
    folder = tmp_path / "mirror"
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as changed:
        changed.setattr(room.shutil, "disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(UsageFault, match=r"has 1 kB free, and \d+ MB are needed; make room"):
            built(sources, monkeypatch, key, folder)
    assert not list(folder.rglob("*.deb"))

    built(sources, monkeypatch, key, folder)
    next(folder.glob(f"packages/{NAME}/*/pool/*.deb")).unlink()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as changed:
        changed.setattr(building, "fetch", full)
        with pytest.raises(UsageFault, match=r"cannot be written: the medium is full; .*the mirror is not signed"):
            built(sources, monkeypatch, key, folder)
    with pytest.raises(UsageFault, match=r"mirror.txt.sig: is missing: .* not finished"):
        verifying.verify(folder, None, lambda words: None)
    assert built(sources, monkeypatch, key, folder).came == 1


def test_a_server_that_stops_in_the_middle_is_gone_on_with(
    sources: Path, monkeypatch: pytest.MonkeyPatch, key: ssh.Key, tmp_path: Path
) -> None:
    """A package that is no longer the planned one is not taken, and what came stays."""
    folder, moved = tmp_path / "mirror", tmp_path / "sources"
    shutil.copytree(sources, moved)
    (moved / "own.list").write_text(f"deb [trusted=yes] file:{moved}/own ./\n")
    plan = planned(moved, monkeypatch, WANTED)
    gone = moved / "own/lib_1.0_all.deb"
    gone.rename(tmp_path / "kept")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(UsageFault, match=r"lib_1.0_all.deb cannot be had: .*1 file of the mirror.* goes on") as said:
        building.build(plan, folder, key, lambda words: None)
    assert "\n" not in str(said.value)
    gone.write_bytes((tmp_path / "kept").read_bytes()[:-1] + b"x")
    with pytest.raises(UsageFault, match=r"lib_1.0_all.deb cannot be had"):
        building.build(plan, folder, key, lambda words: None)
    assert not list(folder.rglob("pool/lib_*"))
    (tmp_path / "kept").replace(gone)
    assert building.build(plan, folder, key, lambda words: None).came == 1


def test_the_roles_of_an_inventory_are_asked_without_a_node(tmp_path: Path) -> None:
    """And an inventory that has a mirror's variables already is asked for what it had before."""
    upstream = {"repos_mirror": "http://vendors", "repos_urls": {}, "repos_key_dir": "/k", "repos_fingerprints": {}}
    everything = {"stack": {"os": "ubuntu 24.04"}, "repos_mirror": "http://mirror/packages", "repos_distribution": True}
    everything |= {"mirror_upstream": upstream, "mirror_packages": ["htop"], "repos_enabled": ["docker"]}
    site = {"all": {"vars": everything, "children": {"heads": {"hosts": {"head": None}}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(site))
    (answer,) = ask(tmp_path, None).values()
    assert answer.packages.os_key == "ubuntu2404"
    assert {"htop"} == set(answer.packages.wanted["inventory"])
    assert "chrony" in answer.packages.wanted["base"]
    assert [one.url for one in answer.sources.repositories] == ["http://vendors/docker/ubuntu2404/"]
    assert answer.sources.upstream == upstream


class served:
    """A mirror on a port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.server = serving.Server(serving.Place("127.0.0.1", 0), folder, manifest.read(folder, None).manifest)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def installable(folder: Path, variables: dict[str, Any], names: list[str]) -> list[str]:
    """What apt would install of the mirror alone, with the keys that the inventory gets, on an empty system."""
    root = planning.AptRoot(folder, "amd64")
    stanzas = {}
    for name, suite, components in (("distribution", "noble", "Components: main\n"), (NAME, "/", "")):
        address = f"{variables['repos_mirror']}/{name}/ubuntu2404/"
        stanzas[name] = (
            f"Types: deb\nURIs: {address}\nSuites: {suite}\n{components}"
            f"Signed-By: {variables['repos_key_dir']}/{name}.asc\n"
        )
    root.make(stanzas, 'Acquire::http::Proxy "DIRECT";\n')
    root.update()
    return [entry.name for entry in root.closure(dict.fromkeys(names, ""), [])]
