"""What our two libcuda and the emulated NVML declare, held against the publisher's own headers, from the package index.

Every prototype by its version and the size and sort of each parameter, every number by its name, every structure by its
size and its fields' places. test_engine_cuda.py has what of it is recorded, and needs no network.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.engine.test_engine_cuda import RECORDED
from toolkit.engine import build
from validation import nvml as probe_nvml
from validation.nvml import binding
from validation.probes import cuda as probe_cuda

LACKS = build.missing_tools()
pytestmark = [pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}"), pytest.mark.rest]
PINNED = ("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-nvml-dev==13.5.37")
#: Structures of ours -> theirs, whose fields are in the same order.
STRUCTURES = {"CUuuid": "CUuuid", "CUlaunchAttribute": "CUlaunchAttribute", "CUlaunchConfig": "CUlaunchConfig",
              "CUcopy2D": "CUDA_MEMCPY2D"}  # fmt: skip
#: Of the emulated NVML; in nvml.h some have another name.
NVML_STRUCTURES = {
    "nvmlMemory_t": "nvmlMemory_t", "nvmlMemory_v2_t": "nvmlMemory_v2_t", "nvmlUtilization_t": "nvmlUtilization_t",
    "nvmlProcessInfo_v1_t": "nvmlProcessInfo_v1_t", "nvmlProcessInfo_t": "nvmlProcessInfo_t",
    "nvmlPciInfo_t": "nvmlPciInfo_t", "nvmlFieldValue_t": "nvmlFieldValue_t", "nvmlValue_t": "nvmlValue_t",
    "nvmlGpuFabricInfo_t": "nvmlGpuFabricInfo_t", "nvmlGpuFabricInfo_v2_t": "nvmlGpuFabricInfo_v2_t",
}  # fmt: skip
#: Structures of NVIDIA's binding that are read here -> theirs.
BOUND = {
    "nvmlPciInfo_t": "nvmlPciInfo_t", "c_nvmlUtilization_t": "nvmlUtilization_t", "c_nvmlMemory_t": "nvmlMemory_t",
    "c_nvmlMemory_v2_t": "nvmlMemory_v2_t", "c_nvmlProcessInfo_v2_t": "nvmlProcessInfo_t",
    "c_nvmlFieldValue_t": "nvmlFieldValue_t", "c_nvmlGpuFabricInfo_t": "nvmlGpuFabricInfo_t",
    "c_nvmlGpuFabricInfo_v2_t": "nvmlGpuFabricInfo_v2_t", "c_nvmlDeviceAttributes": "nvmlDeviceAttributes_t",
    "c_nvmlRepairStatus_t": "nvmlRepairStatus_v1_t",
}  # fmt: skip
#: Numbers that have a shorter name here.
RENAMED = {
    **{f"CU_FUNC_{name}": f"CU_FUNC_ATTRIBUTE_{name}" for name in (
        "MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES", "CONST_SIZE_BYTES", "LOCAL_SIZE_BYTES", "NUM_REGS",
        "PTX_VERSION", "BINARY_VERSION", "CACHE_MODE_CA", "MAX_DYNAMIC_SHARED_SIZE_BYTES",
        "PREFERRED_SHARED_MEMORY_CARVEOUT")},
    "MEMORY_HOST": "CU_MEMORYTYPE_HOST", "MEMORY_DEVICE": "CU_MEMORYTYPE_DEVICE",
    "MEMORY_ARRAY": "CU_MEMORYTYPE_ARRAY", "MEMORY_UNIFIED": "CU_MEMORYTYPE_UNIFIED",
}  # fmt: skip
NVML_NUMBERS = {
    "OK": "NVML_SUCCESS", "UNKNOWN": "NVML_ERROR_UNKNOWN",
    **{name: f"NVML_ERROR_{name}" for name in (
        "UNINITIALIZED", "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND", "INSUFFICIENT_SIZE",
        "DRIVER_NOT_LOADED", "GPU_IS_LOST")},
}  # fmt: skip
OLD_NAMES_TOO = "-DNVML_NO_UNVERSIONED_FUNC_DEFS"  # nvml.h declares the functions without a version then
#: A parameter's size and sort: 1 a number, 5 a pointer, 8 a real number.
SORT = "(__builtin_classify_type(*({0} *)0) == 3 ? 1 : __builtin_classify_type(*({0} *)0))"


@pytest.fixture(scope="module")
def include() -> Iterator[Path]:
    """A folder with the publisher's headers."""
    with tempfile.TemporaryDirectory(prefix="eai-headers-", dir="/var/tmp") as name:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", name]
        done = subprocess.run([*words, *PINNED], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        for wheel in Path(name).glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(name)
        yield Path(name) / "nvidia/cu13/include"


def preprocessed(folder: Path, text: str) -> str:
    """Text after the compiler's preprocessor, in one line."""
    words = ["gcc", "-E", "-P", OLD_NAMES_TOO, "-x", "c", "-", "-I", str(folder)]
    return " ".join(subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout.split())


def printed(folder: Path, headers: Sequence[str], lines: dict[str, str]) -> dict[str, list[int]]:
    """Numbers that C's compiler has for each key: `lines` are comma-separated expressions."""
    shown = {
        key: "".join(f'printf(" %lld", (long long)({one})); ' for one in _split(text)) for key, text in lines.items()
    }
    body = "".join(f'printf("%s", "{key}"); {words}puts("");\n' for key, words in shown.items())
    top = "".join(f"#include {name}\n" for name in headers)
    source = (
        f"#define _GNU_SOURCE\n#include <stdio.h>\n#include <stddef.h>\n{top}int main(void) {{ {body} return 0; }}\n"
    )
    with tempfile.TemporaryDirectory() as name:
        words = ["gcc", "-w", OLD_NAMES_TOO, "-x", "c", "-", "-I", str(folder), "-o", f"{name}/numbers"]
        done = subprocess.run(words, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]
        out = subprocess.run([f"{name}/numbers"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: [int(part) for part in line.split()[1:]] for line in out.splitlines()}


def _split(text: str) -> list[str]:
    """At commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [one.strip() for one in [*found, text[start:]] if one.strip()]


def types(parameters: str) -> list[str]:
    """Of each parameter its type, without its name."""
    if parameters.strip() in ("", "void"):
        return []
    return [re.sub(r"\s*\b\w+\s*((\[\w*\])?)$", lambda m: " *" if m[1] else "", one) for one in _split(parameters)]


def sizes(parameters: str) -> str:
    """Expressions for the size and the sort of each parameter."""
    return ", ".join(f"sizeof({one}), {SORT.format(one)}" for one in types(parameters))


def test_every_prototype_is_that_of_its_version(include: Path) -> None:
    row = "#define ROW(base, version, symbol, params) ROW base version symbol params END\n"
    rows = re.findall(
        r"ROW (\w+) (\d+) (\w+) \((.*?)\) END",
        preprocessed(build.SOURCES, f'#include "shared/cu.h"\n{row}CU_API(ROW)\n'),
    )
    assert len(rows) > 100
    text = (include / "cudaTypedefs.h").read_text()
    theirs = {
        (name, int(version)): parameters
        for name, version, apart, parameters in re.findall(
            r"typedef CUresult \(CUDAAPI \*PFN_(\w+?)_v(\d+)(_ptds|_ptsz)?\)\((.*?)\);", text
        )
        if not apart
    }
    missing = [(base, version) for base, version, _, _ in rows if (base, int(version)) not in theirs]
    assert missing == []
    keys = [f"{base}.{version}" for base, version, _, _ in rows]
    ours = {f"{base}.{version}": sizes(parameters) for base, version, _, parameters in rows}
    wanted = {f"{base}.{version}": sizes(theirs[base, int(version)]) for base, version, _, _ in rows}
    mine = printed(build.SOURCES, ['"shared/cu.h"'], ours)
    their = printed(include, ["<cuda.h>"], wanted)
    assert {key: mine[key] for key in keys if mine[key] != their[key]} == {}


def test_no_later_version_of_a_function_is_left_out(include: Path) -> None:
    """A program that asks for the newest would get an older one, with other parameters, without a word."""
    row = "#define ROW(base, version, symbol, params) ROW base version symbol END\n"
    rows = re.findall(
        r"ROW (\w+) (\d+) (\w+) END", preprocessed(build.SOURCES, f'#include "shared/cu.h"\n{row}CU_API(ROW)\n')
    )
    newest: dict[str, int] = {}
    for base, version, _ in rows:
        newest[base] = max(newest.get(base, 0), int(version))
    text = (include / "cudaTypedefs.h").read_text()
    found = re.findall(r"\(CUDAAPI \*PFN_(\w+?)_v(\d+)\)\(", text)  # _ptds and _ptsz are those of per-thread streams
    late = [(name, version) for name, version in found if int(version) > newest.get(name, 10**9)]
    assert late == []


def test_every_number_is_the_publishers(include: Path) -> None:
    text = preprocessed(build.SOURCES, '#include "shared/cu.h"\n')
    declared = {
        name
        for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text)
        for name in re.findall(r"(?:^|,)\s*([A-Z]\w+)", body)
    }
    assert len(declared) > 150
    numbers = {name: name for name in declared}
    mine = printed(build.SOURCES, ['"shared/cu.h"'], numbers)
    their = printed(include, ["<cuda.h>"], {name: RENAMED.get(name, name) for name in declared})
    assert {name: (mine[name], their[name]) for name in declared if mine[name] != their[name]} == {}
    launches = {"x": "CU_LAUNCH_ATTRIBUTE_COOPERATIVE, (size_t)CU_LAUNCH_PARAM_BUFFER_POINTER, "
                     "(size_t)CU_LAUNCH_PARAM_BUFFER_SIZE, (size_t)CU_LAUNCH_PARAM_END"}  # fmt: skip
    assert printed(build.SOURCES, ['"shared/cu.h"'], launches) == printed(include, ["<cuda.h>"], launches)


def test_every_error_of_the_header_is_recorded_with_its_text(include: Path) -> None:
    body = re.search(r"typedef enum cudaError_enum \{(.*?)\} CUresult;", preprocessed(include, "#include <cuda.h>"))
    assert body is not None
    theirs = {int(number): name for name, number in re.findall(r"(CUDA_\w+) = (\d+)", body[1])}
    recorded = [line.split(" ", 2) for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    assert {int(number): name for number, name, _ in recorded} == theirs
    (library,) = (include.parent / "lib").glob("libcudart.so.*")
    runtime = ctypes.CDLL(str(library))
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    said = {number: runtime.cudaGetErrorString(number).decode() for number in theirs}
    unsaid = "unrecognized error code"
    assert {int(n): t for n, _, t in recorded} == {n: "-" if t == unsaid else t for n, t in said.items()}
    assert all(code in theirs for code in probe_cuda.HINTS)


def fields(text: str, name: str) -> list[str]:
    """Members of a structure in our headers, in order."""
    found = re.search(r"\{((?:[^{}]|\{[^{}]*\})*)\} " + name + ";", text)
    assert found is not None, name
    body = re.sub(r"\{[^{}]*\}", "", found[1])
    return [re.sub(r"\[.*?\]|\*", "", one).split()[-1] for part in body.split(";") for one in _split(part)]


def test_structures_have_the_publishers_size_and_places(include: Path) -> None:
    text = preprocessed(build.SOURCES, '#include "shared/cu.h"\n')
    for ours, theirs in STRUCTURES.items():
        names = fields(text, ours)
        places = f"sizeof({ours}), " + ", ".join(f"offsetof({ours}, {name})" for name in names)
        mine = printed(build.SOURCES, ['"shared/cu.h"'], {"x": places})["x"]
        their = printed(include, ["<cuda.h>"], {"x": _places(include, "cuda.h", theirs)})["x"]
        assert mine[0] == their[0], ours
        assert set(mine[1:]) <= set(their[1:]), ours  # three numbers of ours may be one array


def _places(include: Path, header: str, name: str) -> str:
    """Expressions for the size of a structure and the place of each of its members."""
    text = preprocessed(include, f"#include <{header}>")
    alias = re.search(rf"typedef (?:struct )?(\w+) {name};", text)
    if alias is not None and alias[1] != name:
        return f"sizeof({name}), " + _places(include, header, alias[1]).partition(", ")[2].replace(alias[1], name)
    found = re.search(r"\{((?:[^{}]|\{[^{}]*\})*)\} (?:\w+, )?" + name + ";", text)
    found = found or re.search(rf"(?:struct|union) {name} ?\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}", text)
    assert found is not None, name
    body = re.sub(r"(struct|union) \{[^{}]*\}", "int", found[1])
    names = [re.sub(r"\[.*?\]|\*", " ", one).split()[-1] for part in body.split(";") for one in _split(part)]
    return f"sizeof({name}), " + ", ".join(f"offsetof({name}, {one})" for one in names)


def test_the_emulated_nvml_is_as_nvml_h_has_it(include: Path) -> None:
    header = preprocessed(include, "#include <nvml.h>")
    theirs = dict(re.findall(r"\b(nvml[A-Z]\w+)\s*\(([^()]*)\)\s*;", header))
    units = [
        name for name in build.NVML if name.startswith("devices/") and Path(name).stem in ("nvml", "health", "nvlink")
    ]
    seen = 0
    for unit in units:
        words = ["gcc", "-E", "-P", *build.emulated_flags(), str(build.SOURCES / unit)]
        text = " ".join(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
        ours = dict(re.findall(r"visibility\(\"default\"\)\)\) (?:int|const char \*)\s*(nvml\w+) ?\(([^()]*)\);", text))
        seen += len(ours)
        assert sorted(set(ours) - set(theirs)) == []
        local = {name: sizes(p.replace("nvmlDevice_t", "void *")) for name, p in ours.items()}
        source = _declarations(text)
        measured = _measured(source, local)
        wanted = printed(include, ["<nvml.h>"], {name: sizes(theirs[name]) for name in ours})
        assert {name: (measured[name], wanted[name]) for name in ours if measured[name] != wanted[name]} == {}
        for name, other in NVML_STRUCTURES.items():
            if f"}} {name};" in text and not name.startswith("nvmlValue"):
                places = f"sizeof({name}), " + ", ".join(f"offsetof({name}, {one})" for one in fields(text, name))
                mine_ = _measured(source, {"x": places})["x"]
                their = printed(include, ["<nvml.h>"], {"x": _places(include, "nvml.h", other)})["x"]
                assert mine_ == their, name
    assert seen > 40
    ours = printed(build.SOURCES, ['"devices/nvml.h"'], {name: name for name in NVML_NUMBERS})
    assert ours == printed(include, ["<nvml.h>"], NVML_NUMBERS)


def _declarations(text: str) -> str:
    """The typedefs of a preprocessed source of ours."""
    found = re.findall(
        r"typedef (?:struct|union) \{(?:[^{}]|\{[^{}]*\})*\} nvml\w+;|typedef struct gpu \*nvmlDevice_t;", text
    )
    return "\n".join(found)


def _measured(source: str, lines: dict[str, str]) -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ours.h").write_text(f"struct gpu;\n{source}\n")
        return printed(Path(name), ['"ours.h"'], lines)


def test_the_programs_that_speak_nvml_have_its_structures_and_numbers(include: Path) -> None:
    bound = binding.load(None)
    for ours, theirs in BOUND.items():
        wanted = printed(include, ["<nvml.h>"], {"x": _places(include, "nvml.h", theirs)})["x"]
        read = getattr(bound, ours)
        found = [ctypes.sizeof(read), *(getattr(read, name).offset for name, *_ in read._fields_)]
        assert found == wanted, (ours, theirs)
    lone = printed(include, ["<nvml.h>"], {"x": _places(include, "nvml.h", "nvmlUnrepairableMemoryStatus_v1_t")})["x"]
    assert (lone, ctypes.sizeof(bound.c_nvmlUnrepairableMemory_v1_t)) == ([4, 0], 8), "Gpu.unrepairable reads both"
    reasons = {"board_limit": "BoardLimit", "reliability": "Reliability", "gpu_idle": "GpuIdle",
               "applications_clocks_setting": "ApplicationsClocksSetting", "sw_power_cap": "SwPowerCap",
               "hw_slowdown": "HwSlowdown", "sync_boost": "SyncBoost", "sw_thermal_slowdown": "SwThermalSlowdown",
               "hw_thermal_slowdown": "HwThermalSlowdown", "hw_power_brake_slowdown": "HwPowerBrakeSlowdown",
               "display_clock_setting": "DisplayClockSetting"}  # fmt: skip
    text = (include / "nvml.h").read_text()
    bits = {
        name: int(bit, 16) for name, bit in re.findall(r"#define nvmlClocks\w+?Reason(\w+)\s+(0x[0-9a-fA-F]+)LL", text)
    }
    bits = {name: bit for name, bit in bits.items() if bit}
    assert {bit: reasons[name] for bit, name in probe_nvml.REASONS.items()} == {bit: name for name, bit in bits.items()}
    codes = {4: "NO_PERMISSION", 9: "DRIVER_NOT_LOADED", 12: "LIBRARY_NOT_FOUND", 15: "GPU_IS_LOST",
             16: "RESET_REQUIRED", 18: "LIB_RM_VERSION_MISMATCH", 7: "INSUFFICIENT_SIZE", 2: "INVALID_ARGUMENT",
             3: "NOT_SUPPORTED", 13: "FUNCTION_NOT_FOUND"}  # fmt: skip
    numbers = printed(include, ["<nvml.h>"], {f"c{code}": f"NVML_ERROR_{name}" for code, name in codes.items()})
    assert numbers == {f"c{code}": [code] for code in codes}
    assert set(probe_nvml.INIT) | set(probe_nvml.GONE) | set(probe_nvml.BARRED) <= set(codes)
