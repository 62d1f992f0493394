"""Words of torch's that the server of engine torch changes before a client reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from toolkit.engine.torch_build import TORCH

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 GiB is free. "
)
OWN = "Including non-PyTorch memory, this process has 3.00 GiB memory in use. "
REST = "Of the allocated memory 2.50 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
PROGRAM = """
#include "server/processes.h"
#include <iostream>
#include <iterator>
int main() {
  std::cout << eat::without_processes(std::string(std::istreambuf_iterator<char>(std::cin), {}));
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.cc").write_text(PROGRAM)
    command = [
        "g++",
        "-std=c++20",
        "-Wall",
        "-Werror",
        f"-I{TORCH}",
        str(folder / "words.cc"),
        "-o",
        str(folder / "words"),
    ]
    subprocess.run(command, check=True)
    return folder / "words"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{FULL}Process 4711 has 40.25 GiB memory in use. {OWN}Process 1 has 512.00 MiB memory in use. {REST}",
         FULL + OWN + REST),
        (f"{FULL}Process 4711 has 17179869184.00 GiB memory in use. Process 4712 has 1 bytes memory in use. ", FULL),
        (FULL + OWN + REST, FULL + OWN + REST),
        ("Process 12 has no end", "Process 12 has no end"),
        ("Process x has 1 GiB memory in use. ", "Process x has 1 GiB memory in use. "),
        ("Process ", "Process "),
    ],
)  # fmt: skip
def test_nothing_is_said_of_other_programs_on_the_gpu(program: Path, text: str, left: str) -> None:
    """Torch asks NVML for them, and puts them into the error of a full GPU."""
    assert subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout == left
