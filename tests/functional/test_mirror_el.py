"""A mirror of an EL 9 site with the real dnf and createrepo_c, on packages that rpmbuild makes here (stand-ins)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_repos
from tests.support.node_modules import load
from toolkit.errors import ToolkitError
from toolkit.lab.debrepo import fingerprint, make_key
from toolkit.mirror import building, planning, verifying
from toolkit.mirror.asking import Asked
from toolkit.mirror.dnf_closure import DnfRoot
from validation.signing import ssh

repos: Any = load("plugins/plugin_utils/repos.py")
TOOLS = ("dnf", "rpmbuild", "createrepo_c", "gpg", "ssh-keygen")
PLUGIN = list(Path("/usr/lib/python3/dist-packages/dnf-plugins").glob("download.py"))
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
    pytest.mark.skipif(not PLUGIN, reason="needs dnf-plugins-core"),
]


def written(name: str, folder: Path) -> str:
    """The entry as role repos writes it for a mirror, with the key in the mirror's folder."""
    wanted = {"system": "el9", "machine": "x86_64", "release": "9.6", "mirror": f"file://{folder}/packages", "urls": {},
              "key_urls": {}, "fingerprints": {}, "doca_version": "", "signed": True}  # fmt: skip
    entry = {"description": name, "url": "", "key_url": ""}
    (repo,) = repos.repos_plan([name], {name: entry}, wanted)
    return repos.source_text(repo).replace(repos.key_path(name, "el9"), f"{folder}/keys/{name}.asc")


def test_a_node_installs_from_the_mirror_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is signed by the mirror's key, and the packages of what a role wants come with what they need."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own, vendor, keys = (tmp_path / name for name in ("own", "vendor", "keys"))
    for folder in (own, vendor, keys):
        folder.mkdir()
    tiny_repos.rpms(own, [("lib", ""), ("unwanted", "")])
    tiny_repos.rpms(vendor, [("tool", "lib")])
    make_key(tmp_path / "secret")
    shutil.copy(tmp_path / "secret/key.asc", keys / "docker.asc")
    (tmp_path / "own.repo").write_text(f"[own]\nname=own\nbaseurl=file://{own}\ngpgcheck=0\n")
    docker = {"name": "docker", "system": "el9", "url": f"file://{vendor}/", "suite": "/", "components": "",
              "key_url": "", "architecture": "x86_64", "fingerprints": [fingerprint(keys / "docker.asc")]}  # fmt: skip
    packages = {"os_key": "el9", "wanted": {"docker": {"tool": "0:1-1"}, "dcgm": {"dcgm": ""}}, "image": [], "pins": []}
    upstream = {"repos_key_dir": str(keys)}
    sources = {"repositories": [docker], "pins": [], "upstream": upstream}
    answer = Asked.model_validate({"packages": {**packages, "notes": []}, "sources": sources})
    monkeypatch.setattr(planning, "ask", lambda inventory, recorded: {"head": answer})
    monkeypatch.setattr(planning.extras, "wheels", tuple)
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)

    plan = planning.plan(planning.Wanted(tmp_path, {"el9": tmp_path / "own.repo"}), lambda words: None)
    names = {one.name: [p.name for p in one.packages] for one in plan.repositories}
    assert names == {"distribution": ["lib"], "docker": ["tool"]}
    assert [(one.role, one.name) for one in plan.missing] == [("dcgm", "dcgm")]

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    folder = tmp_path / "mirror"
    made = building.build(plan, folder, ssh.read_key(tmp_path / "key"), lambda words: None)
    assert (made.came, made.published) == (2, 2)
    assert verifying.verify(folder, None, lambda words: None).faults == ()
    prints = building.fingerprints(plan, made.fingerprint)
    assert prints["docker"] == [made.fingerprint, fingerprint(keys / "docker.asc")]  # who signs index, and packages

    root = DnfRoot(tmp_path / "node", "el9")
    root.make({name: written(name, folder) for name in names})
    root.dnf("-y", "makecache")
    assert sorted(url.rsplit("/", 1)[-1] for url in root.closure(["tool"])) == [
        "lib-1-1.noarch.rpm", "tool-1-1.noarch.rpm"
    ]  # fmt: skip

    index = folder / "packages/docker/el9/repodata/repomd.xml"
    told = index.read_text()
    index.write_text(told.replace("<revision>", "<revision>1"))
    fresh = DnfRoot(tmp_path / "node2", "el9")
    fresh.make({name: written(name, folder) for name in names})
    with pytest.raises(ToolkitError, match="GPG"):
        fresh.dnf("-y", "makecache")
    index.write_text(told)

    place = next((folder / "packages/docker/el9/pool").iterdir())
    other = tmp_path / "other"
    other.mkdir()
    tiny_repos.rpms(other, [("lib", "")])
    shutil.copy(next(other.glob("lib-*.rpm")), place)
    (fault,) = verifying.verify(folder, None, lambda words: None).faults
    assert "is of another release: lib 0:1-1, and the mirror has tool 0:1-1" in fault
