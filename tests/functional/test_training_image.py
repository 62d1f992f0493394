"""The training image for GPUs: when it is one, what its recipe does, and that a vendor's without Horovod is taken."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.training_images import READY, SET, Ran, played

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    return played(tmp_path_factory.mktemp("image"))


def test_servers_with_gpus_get_torch_of_the_release(done: dict[str, Ran]) -> None:
    ran = done["gpus"]
    assert not ran.failed, ran.said
    packages, builder = ran.files["Dockerfile.packages"], ran.files["Dockerfile.builder"]
    for name in ("torch", "torchvision", "timm"):
        assert f" {name}=={SET[name]}" in packages
    assert "python3-torch" not in packages
    assert "--no-index" not in packages + builder.split("COPY horovod")[0]
    assert ran.suite == "noble", "the RDMA libraries are those of the nodes' own release"
    assert "Components: main universe\n" in ran.files["base.sources"]
    assert len(ran.tags) == 1, "head and servers have to mean the same image"
    assert "JOBS=8" in ran.files["make-packages"]
    assert "/etc/ssl/certs/ca-certificates.crt" in {call["args"].get("src") for call in ran.of("copy")}
    assert done["debian"].suite == "bookworm"


def test_servers_without_gpus_keep_the_image_for_processors(done: dict[str, Ran]) -> None:
    none = done["none"]
    assert not none.failed, none.said
    assert "python3-torch" in none.files["Dockerfile.packages"]
    assert "nvcc" not in none.files["Dockerfile.builder"]
    assert done["left out"].tags == none.tags
    assert done["debian"].tags != none.tags


def test_tensorflow_goes_into_an_image_for_processors_where_it_is_asked_for(done: dict[str, Ran]) -> None:
    none, ran, wheels = done["none"].files, done["tensorflow"], done["tensorflow of wheels"].files
    assert not ran.failed, ran.said
    assert f" tensorflow-cpu=={SET['tensorflow']}" in ran.files["Dockerfile.packages"]
    assert "HOROVOD_WITH_TENSORFLOW=1" in ran.files["Dockerfile.builder"]
    assert "HOROVOD_WITH_PYTORCH=1" in ran.files["Dockerfile.builder"]
    assert "PIP_INDEX_URL=https://mirror.example/simple" in ran.files["make-packages"]
    assert "/etc/ssl/certs/ca-certificates.crt" in {call["args"].get("src") for call in ran.of("copy")}
    assert "--no-index --find-links /wheels tensorflow-cpu" in wheels["Dockerfile.packages"]
    assert "COPY wheels" not in wheels["Dockerfile.packages"].rpartition("\nFROM ")[2]
    assert done["tensorflow"].tags != done["none"].tags
    assert not re.search("tensorflow-cpu|index|AS system", none["Dockerfile.packages"] + none["make-packages"])
    assert "HOROVOD_WITHOUT_TENSORFLOW=1" in none["Dockerfile.builder"]


def test_an_image_whose_horovod_does_not_load_with_tensorflow_is_none(done: dict[str, Ran]) -> None:
    said = " ".join(done["image without TensorFlow"].said.split())
    assert "Horovod does not load with TensorFlow" in said
    assert not done["image with TensorFlow"].failed, done["image with TensorFlow"].said


def test_the_tag_follows_what_is_in_the_image_and_nothing_else(done: dict[str, Ran]) -> None:
    same = [done[name].tags for name in ("gpus", "site", "doca", "debian")]
    assert all(len(tags) == 1 and tags == same[0] for tags in same)
    other = [done[name].tags for name in ("torch", "timm", "build")]
    assert len({min(tags) for tags in [same[0], *other]}) == 4


def test_a_mirror_and_a_proxy_are_given_to_the_build_alone(done: dict[str, Ran]) -> None:
    files = done["site"].files
    assert "PIP_INDEX_URL=https://mirror.example/simple" in files["make-packages"]
    assert "https_proxy=http://proxy.example:3128" in files["make-packages"]
    assert "JOBS=3" in files["make-packages"]
    assert "mirror.example/simple" not in files["Dockerfile.packages"] + files["Dockerfile.builder"]


def test_a_site_without_internet_gives_a_folder_of_wheels(done: dict[str, Ran]) -> None:
    ran = done["wheels"]
    assert not ran.failed, ran.said
    packages, builder = ran.files["Dockerfile.packages"], ran.files["Dockerfile.builder"]
    for text in (packages, builder):
        asked = re.findall(r"pip install[^;]*", text)
        assert asked
        assert all("--no-index --find-links /wheels" in words for words in asked)
    last = packages.rpartition("\nFROM ")[2]
    assert "COPY wheels" not in last, "the wheels are as large as what they hold"
    assert "COPY --from=wheels /usr/local /usr/local" in last
    assert any("/wheels/" in str(call["args"].get("dest")) for call in ran.of("copy"))


def test_rdma_libraries_of_a_vendor_come_from_the_same_source(done: dict[str, Ran]) -> None:
    looked = {call["args"]["path"] for call in done["doca"].of("stat")}
    assert "/etc/apt/sources.list.d/elastic-ai-doca.sources" in looked
    assert "/etc/apt/keyrings/elastic-ai-doca.asc" in looked
    assert not any("/etc/apt" in str(call["args"]["path"]) for call in done["gpus"].of("stat"))


def runs(dockerfile: str) -> list[str]:
    """The shell programs of a Dockerfile."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in dockerfile.splitlines() if not line.startswith("#")))
    return [line.removeprefix("RUN ") for line in joined.splitlines() if line.startswith("RUN ")]


@pytest.mark.parametrize(
    ("name", "count"), [("gpus", 6), ("wheels", 6), ("none", 3), ("tensorflow", 4), ("tensorflow of wheels", 4)]
)
def test_every_step_is_a_program_that_a_shell_understands(done: dict[str, Ran], name: str, count: int) -> None:
    files = done[name].files
    steps = [step for file in ("Dockerfile.packages", "Dockerfile.builder") for step in runs(files[file])]
    assert len(steps) == count
    for step in steps:
        checked = subprocess.run(["sh", "-n", "-c", step], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, step + checked.stderr


#: Lines of Horovod 0.28.1 that do not go with today's torch and CUDA.
HOROVOD = {
    "CMakeLists.txt": "set(CMAKE_CXX_STANDARD 14)\nset(CMAKE_CXX_STANDARD_REQUIRED ON)\n",
    "horovod/torch/CMakeLists.txt": "    set(CMAKE_CXX_STANDARD 14)\n",
    "horovod/common/ops/cuda/CMakeLists.txt": "set(CMAKE_CUDA_STANDARD 11)\nset(CMAKE_CUDA_STANDARD_REQUIRED ON)\n",
}
#: In place of the image's python3: pip keeps what it was given, all else is real.
PYTHON = """#!/bin/sh
if [ "$1 $2 $3" = "-m pip wheel" ]; then
  env | grep -E '^(HOROVOD|CUDA_HOME|MAKEFLAGS)' > {out}/environment
  cp -r source {out}/built; nvcc > {out}/nvcc
  exit 0
fi
exec {python} -S "$@"
"""


def test_horovod_is_built_with_nccl_and_the_standards_of_today(done: dict[str, Ran], tmp_path: Path) -> None:
    """The step that compiles, run as it stands on a small tree of the same shape."""
    step = runs(done["gpus"].files["Dockerfile.builder"])[-1]
    build, out, modules, programs = (tmp_path / name for name in ("build", "out", "modules", "bin"))
    for folder in (
        build,
        out,
        programs,
        modules / "torch",
        *(modules / "nvidia" / p for p in ("cu13/lib", "cu13/bin")),
    ):
        folder.mkdir(parents=True)
    (modules / "nvidia/nccl/lib").mkdir(parents=True)
    (modules / "nvidia/nccl/lib/libnccl.so.2").write_text("nccl")
    (modules / "nvidia/cu13/lib/libcudart.so.13").write_text("cudart")
    nvcc = modules / "nvidia/cu13/bin/nvcc"
    nvcc.write_text("#!/bin/sh\necho the compiler of the index\n")
    nvcc.chmod(0o755)
    (modules / "torch/__init__.py").write_text(
        "class _C:\n    @staticmethod\n    def _cuda_getArchFlags():\n        return 'sm_75 sm_90 sm_100 compute_120'\n"
    )
    (programs / "python3").write_text(PYTHON.format(out=out, python=sys.executable))
    (programs / "python3").chmod(0o755)
    with tarfile.open(build / "horovod.tar.gz", "w:gz") as archive:
        for name, text in HOROVOD.items():
            info = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(modules), "JOBS": "3"}
    done = subprocess.run(
        ["sh", "-c", step.replace("cd /build", f"cd {build}")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = {name: (out / "built" / name).read_text() for name in HOROVOD}
    assert "set(CMAKE_CXX_STANDARD 20)" in built["CMakeLists.txt"]
    assert "set(CMAKE_CXX_STANDARD 20)" in built["horovod/torch/CMakeLists.txt"]
    assert "set(CMAKE_CUDA_STANDARD 17)" in built["horovod/common/ops/cuda/CMakeLists.txt"]
    said = dict(line.split("=", 1) for line in (out / "environment").read_text().splitlines())
    assert said["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert said["HOROVOD_BUILD_CUDA_CC_LIST"] == "75,90,100"
    assert said["MAKEFLAGS"] == "-j3"
    assert Path(said["HOROVOD_NCCL_LIB"], "libnccl.so").resolve().name == "libnccl.so.2"
    assert Path(said["CUDA_HOME"], "lib64/libcudart.so").read_text() == "cudart"
    assert (out / "nvcc").read_text() == "the compiler of the index\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("el", "only a Debian or Ubuntu node can bootstrap"),
        ("no torch", "names no torch for these GPUs"),
        ("no checksums", "no list of checksums is there for torch==2.14.0"),
        ("no checksum of Horovod", "no checksum is known of horovod 0.28.2"),
        ("processors on Ubuntu", "only a Debian node can bootstrap"),
        ("tensorflow on GPUs", "TensorFlow goes into an image for processors alone"),
        ("no tensorflow", "this stack release names no TensorFlow"),
    ],
)
def test_what_cannot_be_built_is_said_first(done: dict[str, Ran], name: str, words: str) -> None:
    assert done[name].failed
    assert words in " ".join(done[name].said.split())
    assert done[name].of("managed_files", "package_set", "user") == []


def test_every_wheel_of_an_index_is_held_against_its_checksum(done: dict[str, Ran]) -> None:
    for name in ("gpus", "tensorflow"):
        files = done[name].files
        for file in ("Dockerfile.packages", *(["Dockerfile.builder"] if name == "gpus" else [])):
            asked = [words for words in re.findall(r"pip install[^;\n]*", files[file]) if "/wheel/" not in words]
            assert asked, (name, file)
            assert all("--require-hashes --requirement /opt/elastic-ai-" in words for words in asked)
        copied = {Path(call["args"]["dest"]).name for call in done[name].of("copy")}
        assert "wheels.lock" in copied
        assert ("build.lock" in copied) == (name == "gpus")


def test_a_tag_is_resolved_once_and_every_node_takes_that_digest(done: dict[str, Ran]) -> None:
    calls = done["vendor"].of("command")
    asked = [(call["host"], str(call["args"].get("argv") or call["args"])) for call in calls]
    by_tag = [host for host, words in asked if "pull" in words and READY in words]
    assert len(by_tag) == 1, "one node alone asks for the tag"
    pinned = "registry.example/vendor@sha256:12"
    assert sorted(host for host, words in asked if "pull" in words and pinned in words) == ["gpu1", "head1"]
    assert sorted(host for host, words in asked if "tag" in words and pinned in words) >= ["gpu1", "head1"]


def test_a_ready_image_needs_torch_and_no_horovod(done: dict[str, Ran]) -> None:
    for name in ("vendor", "vendor with Horovod"):
        assert not done[name].failed, done[name].said
    assert done["vendor without torch"].failed
    said = " ".join(done["vendor without torch"].said.split())
    assert "neither Horovod loads with torch and MPI, nor torch alone" in said


@pytest.mark.parametrize(
    ("name", "launcher"),
    [("here without Horovod", "elastic-ai-torchrun"), ("here with Horovod", "elastic-ai-mpirun")],
)
def test_without_horovod_torchrun_alone_is_used_and_said(done: dict[str, Ran], name: str, launcher: str) -> None:
    ran = done[name]
    assert not ran.failed, ran.said
    asked = [str(call["args"]) for call in ran.of("command")]
    launched = [words for words in asked if "/usr/local/bin/elastic-ai-" in words]
    assert len(launched) == 1
    assert launcher in launched[0]
    assert ("has no Horovod" in ran.said) == (launcher == "elastic-ai-torchrun")


with_gpus = load("plugins/plugin_utils/horovod.py").training_with_gpus


@pytest.mark.parametrize(
    ("hostvars", "found"),
    [
        ({"a": {}}, False),
        ({"a": {"bom": None}}, False),
        ({"a": {"bom": {"gpu_count": 0}}}, False),
        ({"a": {"bom": {"gpu_count": 0}}, "b": {"bom": {"gpu_count": "4"}}}, True),
        ({}, False),
    ],
)
def test_the_bill_of_materials_says_where_gpus_are(hostvars: dict[str, Any], found: bool) -> None:
    assert with_gpus(list(hostvars), hostvars) is found
