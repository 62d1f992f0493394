"""The base image of lab nodes: bootstrapped once from the machine's own apt sources, cached, never written to again.

`python3 -m toolkit.lab.image` builds that of the machine's own release ahead of `toolkit lab up`, as root. It needs the
standard library alone, so that it can run while the rest is still being installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import LabError
from toolkit.lab.sh import run, run_telling
from toolkit.lab.sources import Release, apt_proxies, key_files, os_key, release_for, served, sources_for
from toolkit.lab.spec import cache_root
from toolkit.working import working
from validation.base.errors import ToolkitError

if TYPE_CHECKING:
    from toolkit.lab.standin import Guise

PACKAGES = (
    "ca-certificates,curl,dbus,iproute2,iputils-ping,kmod,less,openssh-server,procps,python3,python3-apt,sudo,"
    "systemd,systemd-sysv,udev"
)
#: what the lab puts into the image; part of the cache key, so a change makes a new image
FILES = {
    "lab-runc": ("usr/local/libexec/elastic-ai-lab/runc", 0o755),
    "lab-apt": ("etc/apt/apt.conf.d/80lab", 0o644),
    "lab-dpkg": ("etc/dpkg/dpkg.cfg.d/lab", 0o644),
    "lab-dpkg-deb": ("usr/local/bin/dpkg-deb", 0o755),
    "lab-cgroup-rw.service": ("etc/systemd/system/lab-cgroup-rw.service", 0o644),
}
#: Ordinary users, with the same number on every node, as a pool wants it; part of the cache key, too.
USERS = {"alice": 2001, "bob": 2002}
CA_FOLDER = Path("/usr/local/share/ca-certificates")


def _lab_file(name: str) -> str:
    return (resources.files("toolkit.lab") / "files" / name).read_text()


def base_image(release: Release, say: Callable[[str], None]) -> Path:
    """The folder of the base image of `release`, built first when the cache lacks it (about half a minute).

    Of a system that is stood in for it is its base's, with what nodes show of that system. Raises LabError with
    mmdebstrap's last lines when that fails. Safe to call from several processes.
    """
    base, shown = release.base, _guise(release, say)
    codename, packages = base.codename, ",".join([PACKAGES, *(shown.system.packages if shown else ())])
    sources = sources_for(base)
    recipe = "\n".join([codename, packages, sources, apt_proxies(), *(_lab_file(f) for f in FILES), str(USERS)])
    recipe += f"\n{shown.recipe}" if shown else ""
    key = f"{codename}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    key = f"{os_key(release.title)}-over-{key}" if shown else key
    images = cache_root() / "images"
    images.mkdir(parents=True, exist_ok=True)
    image = images / key
    with (images / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.is_dir():
            say(f"building the base image {key} ({os_key(release.title)}) from this machine's apt sources (once)")
            wanted = served(sources) if base.id == "debian" else sources
            partial = _build(images, key, codename, packages, wanted, say)
            if shown:
                shown.dress(partial)
                if shown.system.python and not shown.python:
                    say(f"no Python {shown.system.python} of pyenv's on this machine: modules run on the base's")
            partial.rename(image)
    return image


def _guise(release: Release, say: Callable[[str], None]) -> Guise | None:
    """What nodes show of a system that they stand in for; None of a release that they run."""
    if not release.over:
        return None
    from toolkit.lab.standin import guise, repositories  # here, for they need more than the standard library

    key = os_key(release.title)
    return guise(key, repositories(key, say))


def _build(images: Path, key: str, codename: str, packages: str, sources: str, say: Callable[[str], None]) -> Path:
    """The folder of a new image, under a name that no node uses."""
    partial = images / f"{key}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # left by a build that was killed
    deb822 = sources.startswith(("Types:", "URIs:", "Suites:"))
    listing = images / (f"{key}.sources" if deb822 else f"{key}.list")
    listing.write_text(sources)
    # Its own mount and PID namespaces end with this process, so that even kill -9 leaves no mount and no process.
    fence = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    options = ["--mode=root", "--variant=minbase", f"--include={packages}"]
    run_telling([*fence, "mmdebstrap", *options, codename, str(partial), str(listing)], say)
    _customise(partial, sources)
    return partial


def _customise(root: Path, sources: str) -> None:
    """What makes the tree a lab node; on a site's machines none of this exists."""
    for name, (target, mode) in FILES.items():
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_lab_file(name))
        path.chmod(mode)
    for user, number in USERS.items():
        run(["chroot", str(root), "useradd", "--create-home", "--uid", str(number), "--shell", "/bin/bash", user])
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "lab-cgroup-rw.service").symlink_to("/etc/systemd/system/lab-cgroup-rw.service")
    for key in key_files(sources):
        copy = root / key.relative_to("/")
        if copy.exists():  # the release's own archive keyring
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(key, copy)
    proxies = apt_proxies()
    if proxies:
        (root / "etc/apt/apt.conf.d/80machine-proxy").write_text(proxies)
    if CA_FOLDER.is_dir() and any(CA_FOLDER.iterdir()):
        shutil.copytree(CA_FOLDER, root / CA_FOLDER.relative_to("/"), dirs_exist_ok=True)
        run(["chroot", str(root), "update-ca-certificates"])
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()  # every node gets its own
    if not (root / "usr/sbin/sshd").exists():
        raise LabError("the base image has no sshd: the machine's apt sources lack openssh-server")


if __name__ == "__main__":
    os.umask(0o022)
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    try:
        with working("building the base image of the lab's nodes", sys.stderr) as shown:
            base_image(release_for(None), shown.say)
    except ToolkitError as error:
        sys.exit(f"error: {error}")
