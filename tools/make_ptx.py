#!/usr/bin/env python3
"""PTX of the kernels in engine/kernels and toolkit/lease/programs/kernels, from their CUDA C++ sources.

    pip install 'cuda-toolkit[nvcc,cccl]==13.0.3' 'nvidia-cuda-nvcc-cu12==12.9.86'
    tools/make_ptx.py --nvcc .../nvidia/cu13/bin/nvcc --ptxas .../nvidia/cuda_nvcc/bin/ptxas

writes NAME.ptx beside each NAME.cu. The compiler is that of CUDA 13.0. The kernels ask for so little that their PTX is
valid for Pascal and drivers of CUDA 9 too, so it is given out as PTX 6.0 for sm_60, and ptxas of CUDA 12.9, the last
that knows all architectures, has to compile it for each of them before it is written. With --check nothing is written:
exit 1 where a file is not what the source gives.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "engine/kernels"
FOLDERS = (KERNELS, ROOT / "toolkit/lease/programs/kernels")
VERSION, TARGET = "6.0", "sm_60"
#: From Pascal on, what the stack's releases support: P100, P40, V100, T4, A100, A10, L40S, H100, B200, RTX PRO 6000.
ARCHITECTURES = ("60", "61", "70", "75", "80", "86", "89", "90", "100", "120")
FLAGS = ("-ptx", "-arch=compute_75", "-fmad=false", "-O3")


def made(source: Path, nvcc: str, ptxas: str) -> str:
    """The text of a source's .ptx; CalledProcessError where a compiler refuses."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "out.ptx"
        subprocess.run([nvcc, *FLAGS, "-I", str(KERNELS), "-o", str(path), str(source)], check=True)
        raw = path.read_text(encoding="utf-8")
        release = re.search(r"release [\d.]+, V([\d.]+)", raw)
        body = re.sub(r"^\.version .*$", f".version {VERSION}", raw[raw.index(".version") :], flags=re.M)
        body = re.sub(r"^\.target .*$", f".target {TARGET}", body, flags=re.M)
        text = (
            f"// {source.name}, sha256 {hashlib.sha256(source.read_bytes()).hexdigest()}\n"
            f"// nvcc {release.group(1) if release else 'unknown'} {' '.join(FLAGS)}; compiled by ptxas for"
            f" {' '.join(f'sm_{a}' for a in ARCHITECTURES)}; see tools/make_ptx.py\n\n{body.rstrip()}\n"
        )
        path.write_text(text, encoding="utf-8")
        for architecture in ARCHITECTURES:
            subprocess.run([ptxas, f"-arch=sm_{architecture}", "-o", "/dev/null", str(path)], check=True)
        return text


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc", help="of CUDA 13.0")
    parser.add_argument("--ptxas", default="ptxas", help="of CUDA 12.9")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args()
    wrong = []
    for source in sorted(path for folder in FOLDERS for path in folder.glob("*.cu")):
        text, target = made(source, asked.nvcc, asked.ptxas), source.with_suffix(".ptx")
        if asked.check:
            wrong += [] if target.is_file() and target.read_text(encoding="utf-8") == text else [target.name]
        else:
            target.write_text(text, encoding="utf-8")
    if wrong:
        print(f"not what the sources give: {', '.join(wrong)}; run tools/make_ptx.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
