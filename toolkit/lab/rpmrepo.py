"""Signed RPM repositories of stand-in packages: made with rpmbuild, createrepo_c and gpg, cached by what is in them."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from toolkit.errors import LabError
from toolkit.lab.debrepo import DESCRIPTION, EPOCH, Served, fingerprint, gpg_home, signing_key
from toolkit.lab.rpm_packages import (
    RELATIONS,
    RpmPackage,
    RpmRepository,
    Streams,
    fingerprint_of,
    load_rpm_packages,
    stream_of,
)
from toolkit.lab.sh import run
from toolkit.lab.spec import cache_root

MACHINE = platform.machine()
HEAD = f"""\
%global debug_package %{{nil}}
%define __os_install_post %{{nil}}
%define _build_id_links none
Name: stand-ins
Version: 1
Release: 1
Summary: {DESCRIPTION}
License: none
AutoReqProv: no
%description
{DESCRIPTION}
"""


def rpm_repositories(system: str, say: Callable[[str], None]) -> Served:
    """The repositories of a system's packaged data, made first when the cache lacks them. Safe from several processes.

    Raises LabError for data that do not fit, or for packages that rpmbuild refuses.
    """
    repositories = load_rpm_packages(system)
    root = cache_root() / "vendor"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = signing_key(root)
        signer = fingerprint(keys / "key.asc")
        recipe = "\n".join([fingerprint_of(repositories), signer, MACHINE, Path(__file__).read_text()])
        folder = root / f"{system}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
        if not folder.is_dir():
            say("making the RPM stand-in packages (once per change)")
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            make_repositories(repositories, partial, keys)
            partial.rename(folder)
    return Served(folder, tuple(r.repo for r in repositories if not r.of_system), keys / "key.asc", signer)


def make_repositories(repositories: Sequence[RpmRepository], root: Path, keys: Path) -> None:
    """`root`/<repo>/<system>/ for each: packages and index signed with the key in `keys`, streams in the index."""
    for one in repositories:
        folder = root / one.repo / one.system
        folder.mkdir(parents=True)
        _build(one, folder, root / "build")
    shutil.rmtree(root / "build")
    with gpg_home() as gpg:
        run([*gpg, "--import", str(keys / "secret.asc")])
        home = gpg[gpg.index("--homedir") + 1]
        settings = {
            "__gpg": shutil.which("gpg") or "gpg",
            "_gpg_path": home,
            "_gpg_name": fingerprint(keys / "key.asc"),
            "_gpg_digest_algo": "sha256",
        }
        defined = [f"--define={name} {value}" for name, value in settings.items()]
        for one in repositories:
            folder = root / one.repo / one.system
            run(["rpmsign", *defined, "--addsign", *map(str, sorted(folder.glob("*.rpm")))])
            run(["createrepo_c", "--quiet", "--workers=2", str(folder)])
            if one.streams:
                listing = root / "modules.yaml"
                listing.write_text(_modules(one, one.streams), encoding="utf-8")
                run(["modifyrepo_c", "--mdtype=modules", str(listing), str(folder / "repodata")])
                listing.unlink()
            index = folder / "repodata/repomd.xml"
            run([*gpg, "--armor", "--output", f"{index}.asc", "--detach-sign", str(index)])


def _build(one: RpmRepository, folder: Path, work: Path) -> None:
    """The packages of a repository. A spec file holds one version of each name, so there is one for each age."""
    for age in range(max(len(package.every_version()) for package in one.packages)):
        chosen = [(p, p.every_version()[age]) for p in one.packages if len(p.every_version()) > age]
        top = work / f"{one.repo}-{age}"
        install = "".join(_installed(p, version, top / "sources") for p, version in chosen)
        sections = "".join(_section(p, version) for p, version in chosen)
        spec = top / "stand-ins.spec"
        top.mkdir(parents=True, exist_ok=True)
        spec.write_text(f"{HEAD}{sections}%install\ntrue\n{install}", encoding="utf-8")
        places = [f"--define=_topdir {top}", f"--define=_rpmdir {folder}", f"--define=_dbpath {top}/db"]
        places.append("--define=_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm")
        try:
            run(["env", f"SOURCE_DATE_EPOCH={EPOCH}", "rpmbuild", "-bb", "--quiet", *places, str(spec)])
        except LabError as e:
            raise LabError(f"toolkit/lab/vendor/{one.system}/{one.repo}.yml: {e}") from e


def _filled(package: RpmPackage, version: str, text: str) -> str:
    epoch = "" if package.epoch is None else f"{package.epoch}:"
    number = version.rsplit("-", 1)[0]
    words = {"{version}": version, "{upstream}": number, "{evr}": epoch + version, "{machine}": MACHINE}
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _section(package: RpmPackage, version: str) -> str:
    """A package's part of a spec file."""
    name, (number, release) = package.name, version.rsplit("-", 1)
    lines = [f"%package -n {name}", f"Summary: {name} ({DESCRIPTION})", f"Version: {number}", f"Release: {release}"]
    lines += [] if package.epoch is None else [f"Epoch: {package.epoch}"]
    for relation in RELATIONS:
        tag = relation.capitalize()
        lines += [f"{tag}: {_filled(package, version, text)}" for text in getattr(package, relation)]
    lines += ["AutoReqProv: no", f"%description -n {name}", f"Replaces {name}. It holds none of its software."]
    for script, text in package.every_script().items():
        lines += [f"%{script} -n {name}", _filled(package, version, text).rstrip().replace("%", "%%")]
    lines.append(f"%files -n {name}")
    lines += [f"%dir %attr(0755, root, root) {folder}" for folder in package.every_folder()]
    for path, file in package.every_file().items():
        attributes = "" if file.link else f"%attr({file.mode}, root, root) "
        # What a package brings below /etc is the administrator's to change.
        lines.append(f"{attributes}{'%config(noreplace) ' if path.startswith('/etc/') else ''}{path}")
    return "\n".join(lines) + "\n"


def _installed(package: RpmPackage, version: str, sources: Path) -> str:
    """Lines of a spec file that put the package's files where rpmbuild takes them from."""
    lines = []
    for number, (path, file) in enumerate(package.every_file().items()):
        lines.append(f'mkdir -p "%{{buildroot}}{Path(path).parent}"')
        if file.link is not None:
            lines.append(f'ln -s "{file.link}" "%{{buildroot}}{path}"')
            continue
        sources.mkdir(parents=True, exist_ok=True)
        source = sources / f"{package.name}-{number}"
        source.write_text(_filled(package, version, file.content or ""), encoding="utf-8")
        lines.append(f'cp "{source}" "%{{buildroot}}{path}"')
    return "".join(f"{line}\n" for line in lines)


def _modules(one: RpmRepository, streams: Streams) -> str:
    """Metadata of module streams, each with the packages of its releases."""
    parts: dict[str, list[str]] = {}
    for package in one.packages:
        # Those of a driver have its epoch; what has none is no part of it.
        if package.epoch is None or streams.apart in package.name or package.stack != "nvidia_driver.version":
            continue
        for version in package.every_version():
            parts.setdefault(stream_of(streams, version), []).append(
                f"{package.name}-{package.epoch}:{version}.{MACHINE}"
            )
    documents: list[dict[str, object]] = []
    for stream, rpms in sorted(parts.items()):
        about = {"summary": DESCRIPTION, "description": DESCRIPTION, "license": {"module": ["none"]}}
        names = {"name": streams.module, "stream": stream, "version": 1, "context": "1", "arch": MACHINE}
        data = {**names, **about, "artifacts": {"rpms": sorted(rpms)}}
        documents.append({"document": "modulemd", "version": 2, "data": data})
    default = {"module": streams.module, "stream": streams.default}
    documents.append({"document": "modulemd-defaults", "version": 1, "data": default})
    return "".join(f"---\n{yaml.safe_dump(document)}...\n" for document in documents)
