"""Makes the training image for GPUs as the Dockerfiles of role horovod do, in a folder: without Docker, without a GPU.

    .venv/bin/python benchmarks/training_image.py /var/tmp/image                   # about 20 GB, as root
    .venv/bin/python benchmarks/training_image.py /var/tmp/image --wheel FILE      # leaves out what compiles Horovod
    .venv/bin/python benchmarks/training_image.py /var/tmp/image --check           # of what is there already

The role's own templates are rendered with its defaults and the stack release `current`; of the Dockerfiles FROM, COPY,
ARG and RUN are followed, each RUN in a chroot with the network of this machine. Then what the role asks of an image
is looked at: versions, links, `horovodrun --check-build`, and two ranks of the short training by each launcher on
processors.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import jinja2
import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLE = ROOT / "roles/horovod"
CHROOT = """
set -e; root=$1; shift
mount --make-rprivate /; mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
"""


def release() -> dict[str, str]:
    """What the stack release `current` says of the image."""
    sets = yaml.safe_load((ROOT / "stacks/current.yml").read_text())["stack_data"]["sets"]
    found: dict[str, str] = sets["ubuntu2404"]["horovod"]
    return found


def rendered(name: str) -> str:
    """A template of the role with its defaults."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    wanted = [f"{key}=={release()[key]}" for key in ("torch", "torchvision", "timm")]
    loader = jinja2.FileSystemLoader(ROLE / "templates")
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, loader=loader)
    template = environment.from_string((ROLE / "templates" / name).read_text())
    names = {"lock": "", "lock_build": ".build"}
    locks = {f"__horovod_{name}": {"path": str(lock(kind)), "sha256": ""} for name, kind in names.items()}
    return template.render({**defaults, **locks, "horovod_wheels": "", "__horovod_wheels_wanted": wanted})


def lock(kind: str) -> Path:
    """The role's list of the wheels' SHA-256 for these releases; kind: "" of the image, ".build" of the compiler."""
    parts = "_".join(f"{key}-{release()[key]}" for key in ("torch", "torchvision", "timm"))
    return ROLE / f"files/locks/{parts}{kind}.lock"


def inside(root: Path, command: list[str], **variables: str) -> str:
    """Runs a command in the folder as a container would; its output, both streams. Ends the program where it fails."""
    given = [f"{key}={value}" for key, value in variables.items()]
    call = ["unshare", "-m", "bash", "-c", CHROOT, "_", str(root), *given, *command]
    ran = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{ran.stdout[-4000:]}\n{command[:3]} ended with {ran.returncode}")
    return ran.stdout


def size_mb(root: Path) -> int:
    """What a folder takes, in megabytes of 10^6 bytes."""
    words = ["du", "-sx", "--apparent-size", "--block-size=1", str(root)]
    told = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return round(int(told.stdout.split()[0]) / 1e6)


def follow(dockerfile: str, root: Path, context: Path, **arguments: str) -> None:
    """The steps of a Dockerfile of one stage, each with its seconds and the size after it."""
    text = re.sub(r"\\\n", "", "\n".join(line for line in dockerfile.splitlines() if not line.startswith("#")))
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        begin = time.monotonic()
        if word == "COPY":
            source, target = rest.split()
            at = root / target.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            if (context / source).is_dir():
                shutil.copytree(context / source, at, dirs_exist_ok=True)
            else:
                shutil.copy(context / source, at)
        elif word == "RUN":
            shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
            # as Docker writes it: torchrun meets at localhost
            (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
            (root / "tmp/step.log").write_text(inside(root, ["/bin/sh", "-c", rest], **arguments))
        else:
            continue
        said = " ".join(line.split())[:70]
        print(
            f"{time.strftime('%H:%M:%S')} {time.monotonic() - begin:8.1f} s {size_mb(root):6d} MB  {said}", flush=True
        )


def make(work: Path, wheel: Path | None) -> None:
    """Base, packages, the wheel unless it is given, and the image, in `work`/image."""
    image, builder, context = work / "image", work / "builder", work / "context"
    (context / "rdma").mkdir(parents=True, exist_ok=True)
    (context / "wheel").mkdir(exist_ok=True)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", context / "index.crt")
    shutil.copy(lock(""), context / "wheels.lock")
    shutil.copy(lock(".build"), context / "build.lock")
    begin = time.monotonic()
    excluded = [f"--dpkgopt=path-exclude={path}" for path in yaml.safe_load((ROLE / "vars/main.yml").read_text())
                ["__horovod_excluded"]]  # fmt: skip
    sources = "/etc/apt/sources.list.d/debian.sources"
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", *excluded, "bookworm", str(image), sources]
    subprocess.run(command, check=True, capture_output=True)
    print(
        f"{time.strftime('%H:%M:%S')} {time.monotonic() - begin:8.1f} s {size_mb(image):6d} MB  mmdebstrap", flush=True
    )
    follow(rendered("Dockerfile.cuda.j2"), image, context)
    if wheel is None:
        version = release()["version"]
        fetch = ["pip", "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(context)]
        subprocess.run([sys.executable, "-m", *fetch, f"horovod=={version}"], check=True, capture_output=True)
        next(context.glob("horovod-*.tar.gz")).rename(context / "horovod.tar.gz")
        subprocess.run(["cp", "-a", str(image), str(builder)], check=True)
        follow(rendered("Dockerfile.builder.cuda.j2"), builder, context, JOBS=str(os.cpu_count()))
        wheel = next((builder / "build/wheel").glob("*.whl"))
    shutil.copy(wheel, context / "wheel")
    follow((ROLE / "templates/Dockerfile.j2").read_text(), image, context)


def check(work: Path) -> None:
    """What is in the image, each command and its output as it is."""
    image = work / "image"
    shutil.copy(ROLE / "files/versions.py", image / "tmp/versions.py")
    shutil.copytree(ROOT / "validation", image / "tmp/elastic/validation", dirs_exist_ok=True)
    module = "$(python3 -c 'import horovod; print(list(horovod.__path__)[0])')/torch/mpi_lib_v2*.so"
    train = "-I /tmp/elastic/validation/probes/train_cnn.py --warmup 2 --steps 10 --batch 16 --time-limit-s 300"
    train += " --device cpu"
    mpirun = "mpirun --allow-run-as-root --oversubscribe --mca pml ob1 --mca btl tcp,self -np 2"
    for command in (
        "horovodrun --check-build",
        "python3 /tmp/versions.py",
        f"ldd {module} | grep -E 'nccl|cudart|libmpi|torch|not found' | sed 's/ (0x.*//' | sort",
        "ldconfig -p | grep -E 'libnccl|libcudnn.so|libcudart|libibverbs' | sed 's/^ *//'",
        "dpkg-query -W rdma-core libibverbs1 ibverbs-providers openmpi-bin perftest python3",
        "which gcc cc c++ nvcc || echo no compiler",
        "python3 -c 'import timm, torch, torchvision; print(torch.version.cuda, torch.cuda.is_available(), "
        'timm.create_model("inception_v4").num_classes, torchvision.models.vgg16().classifier[6].out_features)\'',
        f"{mpirun} python3 {train} --framework horovod | cut -c 1-400",
        f"{mpirun} python3 {train} --framework ddp --meet tcp://127.0.0.1:29542 | cut -c 1-400",
        f"python3 -m torch.distributed.run --standalone --nproc_per_node 2 {train.removeprefix('-I ')} --framework ddp "
        "2>/dev/null | cut -c 1-400",
        "du -sm /usr/local/lib/python3*/dist-packages /usr/local/lib/python3*/dist-packages/nvidia/* "
        "/usr/local/lib/python3*/dist-packages/torch",
    ):
        begin = time.monotonic()
        told = inside(image, ["/bin/bash", "-c", command], OMP_NUM_THREADS="1")
        print(f"$ {command}\n{told.rstrip()}\n  ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"size: {size_mb(image)} MB")


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.check:
        make(args.work, args.wheel)
    check(args.work)


if __name__ == "__main__":
    main()
