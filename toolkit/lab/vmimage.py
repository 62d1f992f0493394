"""The image of a lab's virtual machines: the containers' base image plus the release's stock kernel, built once.

A folder with three files: disk.raw (ext4, never written to: every machine has an overlay of its own), vmlinux (the
unpacked kernel, which boots faster than the packed one under emulation) and initrd (busybox and a few modules).
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import lzma
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab import cpio
from toolkit.lab.image import base_image
from toolkit.lab.sh import run, run_telling
from toolkit.lab.sources import Release, os_key
from toolkit.lab.spec import cache_root

#: What site.yml installs on GPU servers, by the role that asks for it, and NFS, by which a site's machines share a
#: storage. Here so that it is unpacked once at the host's speed and not by every emulated machine; the roles find it
#: there and configure it.
PREINSTALLED = {
    "lab": ["busybox-static", "e2fsprogs", "iptables"],
    "base": ["chrony", "ethtool", "iproute2", "iputils-ping", "pciutils", "procps", "python3-venv"],
    "ofed": [
        "rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags", "perftest", "mstflint"
    ],
    "acceptance": ["fio", "iperf3", "sockperf", "ucx-utils"],
    "storage": ["nfs-common", "nfs-kernel-server"],
    "docker": ["docker.io"],
    "slurm": ["slurmd", "slurm-client", "munge"],
}  # fmt: skip
#: Services of these packages: as on a fresh node nothing of them runs until a role wants it.
DISABLED = (
    "chrony docker.service docker.socket containerd munge slurmd iperf3 rdma-ndd iwpmd "
    "nfs-server nfs-client.target nfs-blkmap rpcbind.service rpcbind.socket"
)
#: Folders and files below the kernel's modules, without ".ko"; what they depend on comes along. Found by prefix.
MODULES = (
    "kernel/drivers/infiniband", "kernel/drivers/net/bonding", "kernel/drivers/net/dummy", "kernel/drivers/net/ifb",
    "kernel/drivers/net/macvlan", "kernel/drivers/net/veth", "kernel/drivers/net/virtio_net",
    "kernel/drivers/net/vxlan", "kernel/drivers/block/loop", "kernel/drivers/block/virtio_blk",
    "kernel/drivers/virtio", "kernel/drivers/char/hw_random",
    "kernel/fs/autofs", "kernel/fs/configfs", "kernel/fs/ext4", "kernel/fs/fuse/fuse", "kernel/fs/lockd",
    "kernel/fs/nfs", "kernel/fs/overlayfs", "kernel/net/sunrpc",
    "kernel/net/8021q", "kernel/net/bridge", "kernel/net/core", "kernel/net/ipv4", "kernel/net/ipv6",
    "kernel/net/netfilter", "kernel/net/rds", "kernel/net/sched", "kernel/net/smc",
    "kernel/net/vmw_vsock", "kernel/crypto", "kernel/arch/x86/crypto", "kernel/lib",
)  # fmt: skip
#: What the root disk and the network cards need, in the initial RAM disk; crc32c is ext4's, asked for by
#: name, autofs4 and configfs are systemd's, which else starts a program for each; the 9p ones are for the folders of
#: the host that machines see.
BOOT_MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "crc32c_generic", "crc32c_intel", "ext4", "autofs4", "configfs",
    "9pnet_virtio", "9p",
)  # fmt: skip
#: Units that cost seconds under emulation and that a lab node has no use for (timers would hold apt's lock).
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer man-db.timer "
    "e2scrub_reap.service getty@tty1.service serial-getty@ttyS0.service systemd-pstore.service "
    "systemd-update-utmp.service systemd-journal-flush.service systemd-random-seed.service systemd-binfmt.service "
    "systemd-udev-settle.service modprobe@drm.service modprobe@efi_pstore.service modprobe@dm_mod.service "
    "modprobe@loop.service modprobe@fuse.service modprobe@configfs.service sys-kernel-debug.mount "
    "sys-kernel-tracing.mount kmod-static-nodes.service systemd-sysusers.service systemd-update-utmp-runlevel.service"
)
#: Generators, which run before anything else, for what a lab node has not (disks to decrypt, swap to resume from, …).
MASKED_GENERATORS = "cryptsetup getty gpt-auto hibernate-resume integritysetup rc-local run system-update veritysetup"
FILES = {
    # Only what systemd's units can wait for: going through every device costs seconds under emulation.
    "etc/systemd/system/systemd-udev-trigger.service.d/lab.conf": (
        "[Service]\nExecStart=\nExecStart=-/usr/bin/udevadm trigger --action=add --subsystem-match=net "
        "--subsystem-match=block --subsystem-match=infiniband\n"
    ),
    # An emulated machine is slow, not broken.
    "etc/systemd/system.conf.d/lab.conf": "[Manager]\nDefaultTimeoutStartSec=300s\nDefaultTimeoutStopSec=30s\n",
    # The way in comes first.
    "etc/systemd/system/systemd-logind.service.d/lab.conf": "[Unit]\nAfter=ssh.service\n",
    "etc/systemd/system/ssh.service.d/lab.conf": "[Service]\nExecStartPre=\n",
}
DISK_BYTES = 20 << 30
#: Free space that building takes, and what one machine may write (10^9 bytes).
BUILD_GB = 5.0
OVERLAY_GB = 3.0


#: Dropped from PAM's list for sshd: each starts programs or reads files at every login to greet somebody, which takes
#: longer under emulation than the login itself. What a session gets (limits, environment) is left as it is.
GREETERS = ("pam_motd", "pam_mail")


@dataclass(frozen=True)
class VmImage:
    """A built image."""

    folder: Path

    @property
    def disk(self) -> Path:
        """Raw ext4 file system of the root disk; machines write into overlays over it."""
        return self.folder / "disk.raw"

    @property
    def kernel(self) -> Path:
        """The kernel, as qemu's -kernel wants it."""
        return self.folder / "vmlinux"

    @property
    def initrd(self) -> Path:
        """The initial RAM disk without any node's own files."""
        return self.folder / "initrd"


def _lab_file(name: str) -> str:
    return (resources.files("toolkit.lab") / "files" / name).read_text()


def recipe_digest(base: str, preinstalled: Mapping[str, Sequence[str]] = PREINSTALLED) -> str:
    """Changes with the base image and with everything that the lab puts into the machines' image."""
    recipe = [base, repr(preinstalled), DISABLED, repr(MODULES), repr(BOOT_MODULES), MASKED, repr(FILES)]
    recipe += [MASKED_GENERATORS, repr(GREETERS)]
    recipe += [str(DISK_BYTES), _lab_file("vm-init"), _lab_file("vm-build")]
    return hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:12]


def cached(images: Path, codename: str, digest: str) -> VmImage | None:
    """The newest image of that release and recipe, whichever kernel was current when it was built."""
    found = [p for p in images.glob(f"vm-{codename}-*-{digest}") if (p / "disk.raw").is_file()]
    return VmImage(max(found, key=lambda p: p.stat().st_mtime)) if found else None


def vm_image(release: Release, say: Callable[[str], None]) -> VmImage:
    """The machines' image of `release`, built first when the cache lacks it (a minute or two).

    A built image is used until it is deleted from the cache, also when the release gets a newer kernel.
    Raises LabError.
    """
    if release.id != "debian":
        raise LabError(f"virtual machines need Debian, not {release.title}; add --os debian12")
    base = base_image(release, say)
    images = cache_root() / "images"
    digest = recipe_digest(base.name)
    with (images / f"vm-{release.codename}-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = cached(images, release.codename, digest)
        if found is not None:
            return found
        check_space(images, BUILD_GB, "the virtual machines' image")
        say(f"building the virtual machines' image ({os_key(release.title)}, stock kernel; once)")
        partial = images / f"vm-{release.codename}-{digest}.partial"
        shutil.rmtree(partial, ignore_errors=True)  # left by a build that was killed
        try:
            version = _build(partial, base, say)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        done = images / f"vm-{release.codename}-{version}-{digest}"
        partial.rename(done)
    return VmImage(done)


def check_space(folder: Path, needed_gb: float, what: str) -> None:
    """LabError when the file system of `folder` has less than `needed_gb` (10^9 bytes) free."""
    free = shutil.disk_usage(folder).free / 1e9
    if free < needed_gb:
        raise LabError(f"{what} needs {needed_gb:.0f} GB of disk in {folder}, and {free:.1f} GB are free there")


def _build(partial: Path, base: Path, say: Callable[[str], None]) -> str:
    tree, work = partial / "tree", partial / "tree/lab-build"
    partial.mkdir()
    run(["cp", "-a", "--reflink=auto", str(base), str(tree)])
    work.mkdir()
    (work / "build").write_text(_lab_file("vm-build"))
    packages = " ".join(name for names in PREINSTALLED.values() for name in names)
    # Ends with this process, so that even kill -9 leaves no process and no mount behind.
    nspawn = ["setpriv", "--pdeathsig", "KILL", "systemd-nspawn", "--quiet", "--register=no", "--keep-unit"]
    nspawn += [f"--directory={tree}", "--resolv-conf=replace-host", "--timezone=off", "--console=pipe"]
    settings = [f"--setenv=PACKAGES={packages}", f"--setenv=DISABLED={DISABLED}"]
    run_telling([*nspawn, *settings, "--", "/bin/sh", "/lab-build/build"], say)
    version = (work / "version").read_text().strip()
    say("  choosing modules, making initial RAM disk and file system")
    source = work / "kernel/lib/modules" / version
    _copy_modules(source, tree / "usr/lib/modules" / version)
    run(["chroot", str(tree), "depmod", version])
    busybox = (tree / "usr/bin/busybox").read_bytes()
    (partial / "initrd").write_bytes(gzip.compress(initrd(source, busybox), 6))
    (partial / "vmlinux").write_bytes(unpacked(next((work / "kernel/boot").glob("vmlinuz-*")).read_bytes()))
    shutil.rmtree(work)
    _customise(tree)
    disk = partial / "disk.raw"
    with disk.open("wb") as handle:
        handle.truncate(DISK_BYTES)
    # Few inodes and no initialisation in the running machine: both would be written by every machine's overlay.
    options = ["-q", "-t", "ext4", "-m", "0", "-N", "400000", "-J", "size=16", "-E", "lazy_itable_init=1"]
    run(["mke2fs", *options, "-d", str(tree), str(disk)])
    shutil.rmtree(tree)
    return version


def _customise(tree: Path) -> None:
    """What makes the tree boot fast as a machine; the containers' image stays as it is."""
    units = tree / "etc/systemd/system"
    for unit in MASKED.split():
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    generators = tree / "etc/systemd/system-generators"
    generators.mkdir(parents=True, exist_ok=True)
    for name in MASKED_GENERATORS.split():
        (generators / f"systemd-{name}-generator").symlink_to("/dev/null")
    for name, text in FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("etc/resolv.conf", "etc/fstab"):  # the first is the node's own; of the second there is no use
        (tree / name).unlink(missing_ok=True)
    pam = tree / "etc/pam.d/sshd"
    lines = pam.read_text().splitlines(keepends=True)
    pam.write_text("".join(line for line in lines if not any(f" {g}.so" in line for g in GREETERS)))
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()


def dependencies(source: Path) -> dict[str, list[str]]:
    """modules.dep: a module's path -> paths of what it needs, in the order from last to first to load."""
    lines = (line.partition(":") for line in (source / "modules.dep").read_text().splitlines())
    return {path: needs.split() for path, _, needs in lines}


def module_name(path: str) -> str:
    """The module's name, as lsmod has it: dashes of the file's name are underscores."""
    return Path(path).name.split(".")[0].replace("-", "_")


def _copy_modules(source: Path, target: Path) -> None:
    needs = dependencies(source)
    wanted = {p for p in needs if p.startswith(MODULES)}
    for path in wanted.union(*(needs[p] for p in wanted)):
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / path, copy)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy2(source / name, target / name)


def initrd(source: Path, busybox: bytes) -> bytes:
    """The initial RAM disk as a cpio archive: busybox, the boot's modules in loading order, the lab's init."""
    needs = dependencies(source)
    builtin = {module_name(line) for line in (source / "modules.builtin").read_text().splitlines()}
    order: list[str] = []
    for name in BOOT_MODULES:
        path = next((p for p in needs if module_name(p) == name), None)
        # Newer kernels have crc32c built into what needs it.
        if path is None and name not in builtin and not name.startswith("crc32c"):
            raise LabError(f"the stock kernel has no module {name}")
        if path is not None:
            order += [p for p in [*reversed(needs[path]), path] if p not in order]
    entries = [cpio.folder(f) for f in ("bin", "dev", "modules", "node", "proc", "root", "sys")]
    entries += [cpio.file("bin/busybox", busybox, 0o755), cpio.file("init", _lab_file("vm-init").encode(), 0o755)]
    names = []
    for path in order:
        data, name = (source / path).read_bytes(), Path(path).name
        if name.endswith(".xz"):
            data, name = lzma.decompress(data), name.removesuffix(".xz")
        names.append(name)
        entries.append(cpio.file(f"modules/{name}", data))
    entries.append(cpio.file("modules/order", "\n".join(names).encode()))
    return cpio.archive(entries)


def unpacked(kernel: bytes) -> bytes:
    """The ELF kernel inside a bzImage (qemu starts it by its PVH entry); the bzImage itself where that is packed in a
    way that Python cannot unpack: it boots too, some seconds later."""
    start = kernel.find(b"\xfd7zXZ\x00")  # the xz format's magic bytes
    if start >= 0:
        try:
            elf = lzma.LZMADecompressor().decompress(kernel[start:])
        except lzma.LZMAError:
            return kernel
        if elf.startswith(b"\x7fELF"):
            return elf
    return kernel
