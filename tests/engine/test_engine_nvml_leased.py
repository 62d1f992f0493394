"""NVML of a lease's client: what it tells of the lease's GPUs, what nobody tells, and what it is told in damage."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.support.engine_run import MIB, ROOT, UUIDS, built
from tests.support.leased_nvml import HALF, WHOLE, asked, environment, use_file
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
NOT_SUPPORTED, NOT_LOADED = pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED
NO_DATA = pynvml.NVML_ERROR_NO_DATA


def test_who_the_gpus_are() -> None:
    said = asked(
        """
said([[[pynvml.nvmlDeviceGetName(g), pynvml.nvmlDeviceGetUUID(g), pynvml.nvmlDeviceGetIndex(g),
        pynvml.nvmlDeviceGetCudaComputeCapability(g), pynvml.nvmlDeviceIsMigDeviceHandle(g).value] for g in gpus],
      pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetNVMLVersion(), pynvml.nvmlSystemGetCudaDriverVersion(),
      pynvml.nvmlSystemGetCudaDriverVersion_v2()])
""",
        environment(),
    )
    assert said == [
        [[HALF["name"], UUIDS[0], 0, [9, 0], 0], [WHOLE["name"], UUIDS[1], 1, [7, 0], 0]],
        # of several servers the oldest
        "570.9.1", "570.9.1", 12080, 12080,
    ]  # fmt: skip


def test_a_gpu_is_found_by_its_uuid() -> None:
    script = """
by = pynvml.nvmlDeviceGetHandleByUUID(os.environ["WANTED"])
said([pynvml.nvmlDeviceGetIndex(by), code(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none"),
      code(pynvml.nvmlDeviceGetHandleByIndex, 2)])
"""
    found = [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT]
    assert asked(script, environment(WANTED=UUIDS[1].lower())) == [1, *found]


def test_the_same_gpu_twice_is_two_devices() -> None:
    """Two halves of one GPU, which are two jobs of Slurm's."""
    told = environment([HALF, HALF])
    assert asked("said([pynvml.nvmlDeviceGetIndex(g) for g in gpus])", told) == [0, 1]


MEMORY = """
def memory(g):
    try: m = pynvml.nvmlDeviceGetMemoryInfo(g); n = pynvml.nvmlDeviceGetMemoryInfo(g, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as fault: return fault.value
    assert [m.total, m.free, m.used] == [n.total, n.free, n.used] and n.reserved == 0
    return [m.total >> 20, m.free >> 20, m.used >> 20]
def busy(g):
    try: u = pynvml.nvmlDeviceGetUtilizationRates(g)
    except pynvml.NVMLError as fault: return fault.value
    return [u.gpu, u.memory]
said([[memory(g), busy(g)] for g in gpus])
"""


def test_memory_is_the_part_and_its_use_what_the_server_said(tmp_path: Path) -> None:
    told = environment(**use_file(tmp_path, f"{1000 * MIB} -1 -1", f"{384 * MIB} 93 40"))
    assert asked(MEMORY, told) == [[[40_000, 39_000, 1000], NOT_SUPPORTED], [[16_384, 16_000, 384], [93, 40]]]


def test_more_in_use_than_the_part_is_all_of_it(tmp_path: Path) -> None:
    told = environment([HALF], **use_file(tmp_path, f"{60_000 * MIB} -1 -1"))
    assert asked(MEMORY, told) == [[[40_000, 0, 40_000], NOT_SUPPORTED]]


@pytest.mark.parametrize("lines", [[], [""], ["x y z"], ["-5 101 -1"], ["12"], ["1" * 90]])
def test_use_that_nobody_said_is_not_known(tmp_path: Path, lines: list[str]) -> None:
    """By NOT_SUPPORTED nvitop would take it for a GPU that shares the host's memory, and show that of this machine."""
    assert asked(MEMORY, environment([HALF], **use_file(tmp_path, *lines))) == [[NO_DATA, NOT_SUPPORTED]]
    assert asked(MEMORY, environment([HALF])) == [[NO_DATA, NOT_SUPPORTED]]
    told = environment([HALF], ELASTIC_AI_GPUS_USE=str(tmp_path))  # a folder
    assert asked(MEMORY, told) == [[NO_DATA, NOT_SUPPORTED]]


def test_use_that_was_said_long_ago_is_not_known(tmp_path: Path) -> None:
    told = environment([HALF], **use_file(tmp_path, f"{MIB} 1 1"))
    os.utime(tmp_path / "use", (1, 1))
    assert asked(MEMORY, told) == [[NO_DATA, NOT_SUPPORTED]]


def test_processes_are_none() -> None:
    script = """
lists = [getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{v}") for kind in ("Compute", "Graphics", "MPSCompute")
         for v in ("", "_v2", "_v3") if hasattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{v}")]
said([len(lists), [list(ask(g)) for ask in lists for g in gpus]])
"""
    number, found = asked(script, environment())
    assert number >= 3
    assert found == [[]] * 2 * number


def test_what_nobody_tells_is_not_supported() -> None:
    script = """
g = gpus[0]
asks = [(pynvml.nvmlDeviceGetPowerUsage, g), (pynvml.nvmlDeviceGetTemperature, g, 0), (pynvml.nvmlDeviceGetFanSpeed, g),
        (pynvml.nvmlDeviceGetClockInfo, g, 1), (pynvml.nvmlDeviceGetPciInfo, g), (pynvml.nvmlDeviceGetSerial, g),
        (pynvml.nvmlDeviceGetMinorNumber, g), (pynvml.nvmlDeviceGetMigMode, g), (pynvml.nvmlDeviceGetComputeMode, g),
        (pynvml.nvmlDeviceGetCpuAffinity, g, 4), (pynvml.nvmlDeviceGetNvLinkState, g, 0), (pynvml.nvmlUnitGetCount,),
        (pynvml.nvmlDeviceSetPersistenceMode, g, 1), (pynvml.nvmlDeviceGetTotalEnergyConsumption, g)]
said([code(*ask) for ask in asks])
"""
    assert set(asked(script, environment())) == {NOT_SUPPORTED}


@pytest.mark.parametrize(
    ("key", "ask"),
    [
        ("name", "pynvml.nvmlDeviceGetName, gpus[0]"),
        ("capability", "pynvml.nvmlDeviceGetCudaComputeCapability, gpus[0]"),
        ("driver", "pynvml.nvmlSystemGetDriverVersion,"),
        ("cuda", "pynvml.nvmlSystemGetCudaDriverVersion,"),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_what_a_server_did_not_say_is_not_supported(key: str, ask: str, empty: bool) -> None:
    gpu = {name: value for name, value in HALF.items() if name != key}
    if empty:
        gpu[key] = None if key == "cuda" else ""
    assert asked(f"said(code({ask}))", environment([gpu])) == NOT_SUPPORTED
    assert asked(f"said(code({ask}))", environment([HALF])) == 0


def test_nothing_answers_before_it_is_initialised_and_after() -> None:
    script = """
pynvml.nvmlInit()
pynvml.nvmlShutdown(); still = code(pynvml.nvmlDeviceGetCount)
pynvml.nvmlShutdown(); calls = [pynvml.nvmlDeviceGetCount, pynvml.nvmlSystemGetDriverVersion, pynvml.nvmlShutdown]
late = [code(call) for call in calls]
late += [code(call, gpus[0]) for call in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetSerial)]
pynvml.nvmlInit(); said([still, late, pynvml.nvmlDeviceGetName(gpus[0])])
"""
    assert asked(script, environment()) == [0, [pynvml.NVML_ERROR_UNINITIALIZED] * 5, HALF["name"]]


def test_every_function_of_the_binding_is_there_and_survives_whatever_it_is_given(tmp_path: Path) -> None:
    """Each is called with addresses of zeros, with nothing and with a handle that is none."""
    source = Path(pynvml.__file__).read_text()
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(nvml[A-Z]\w+)"', source)))
    assert len(names) > 300
    script = """
library = ctypes.CDLL("libnvidia-ml.so.1")
names = json.load(sys.stdin)
missing = [name for name in names if not hasattr(library, name)]
zeros = [ctypes.create_string_buffer(1 << 16) for _ in range(7)]
for name in names:
    if name in missing or name == "nvmlShutdown" or name.startswith("nvmlInit"): continue
    function = getattr(library, name)
    of_device = name.startswith("nvmlDevice") and not name.startswith(("nvmlDeviceGetCount", "nvmlDeviceGetHandle"))
    for first in (gpus[0], None, ctypes.c_void_p(1), zeros[6]) if of_device else (None, zeros[6]):
        function(first, *zeros[:6]); function(first, *[None] * 6)
said([missing, pynvml.nvmlDeviceGetName(gpus[0])])
"""
    (tmp_path / "names").write_text(json.dumps(names))
    with (tmp_path / "names").open() as stdin:
        done = subprocess.run(
            [sys.executable, "-c", _PRELUDE + script],
            stdin=stdin, env=environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], HALF["name"]]


_PRELUDE = """
import ctypes, json, sys, pynvml
def said(value): print(json.dumps(value))
pynvml.nvmlInit(); gpus = [pynvml.nvmlDeviceGetHandleByIndex(0)]
"""
_START = """
import ctypes
n = ctypes.CDLL('libnvidia-ml.so.1'); print(n.nvmlInit_v2(), n.nvmlInit(), n.nvmlDeviceGetCount_v2(None))
"""


def started(told: dict[str, str]) -> tuple[str, str]:
    """What initialisation says, and on stderr."""
    done = subprocess.run([sys.executable, "-c", _START], env=told, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_program_of_no_lease_has_no_driver() -> None:
    told = environment()
    del told["ELASTIC_AI_GPUS"]
    assert started(told) == (f"{NOT_LOADED} {NOT_LOADED} 1", "")
    assert started(environment("")) == (f"{NOT_LOADED} {NOT_LOADED} 1", "")


ONE = json.dumps([HALF])
OF_JSON = '"\\u{}[],:0e9-.nx\x7f\udcc3\udcff'


@pytest.mark.parametrize(
    "text",
    [
        "x", "[", "{}", "[{}]", "[1]", '[{"uuid":', '["GPU"]', ONE[:-1], ONE[:-2], f"{ONE}x", ONE.replace("40", "-40"),
        ONE.replace(str(HALF["memory_bytes"]), "1.5"), ONE.replace(str(HALF["memory_bytes"]), "9" * 30),
        ONE.replace(str(HALF["memory_bytes"]), "0"), ONE.replace("false", "maybe"), ONE.replace("NVIDIA", "\\x"),
        ONE.replace("NVIDIA", "\\u12"), ONE.replace("NVIDIA", "NVIDIA\\"), json.dumps([{**HALF, "uuid": ""}]),
        json.dumps([{**HALF, "new": json.loads("[" * 20 + "]" * 20)}]), json.dumps([HALF] * 257),
    ],
)  # fmt: skip
def test_damage_is_said_in_one_sentence(text: str) -> None:
    code, words = started(environment(text))
    assert code == f"{NOT_LOADED} {NOT_LOADED} 1"
    assert set(words.splitlines()) == {
        "elastic-ai: ELASTIC_AI_GPUS does not tell the devices of a lease, of which there are 256 at most: "
        "start the program by toolkit run"
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('Größe \U0001f600 \\ " /', 'Größe \U0001f600 \\ " /'),
        ("a\tb\nc\x1b[31m", "a b c [31m"),
        ("ü" * 200, "ü" * 47),
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_names_come_as_they_were_told(name: str, shown: str, ascii_only: bool) -> None:
    told = environment(json.dumps([{**HALF, "name": name}], ensure_ascii=ascii_only))
    assert asked("said(pynvml.nvmlDeviceGetName(gpus[0]))", told) == shown


def test_what_a_newer_toolkit_tells_is_passed_over() -> None:
    more: dict[str, Any] = {"new": [1, {"a": [None, True, -1.5e3, "}"]}, []], "other": {}, **HALF, "last": "x"}
    assert asked("said(len(gpus))", environment([more] * 256)) == 256


def test_no_damage_of_the_text_reads_or_writes_beside_it(tmp_path: Path) -> None:
    """By the address sanitizer, from one seed."""
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no address sanitizer here")
    library, _ = build.compile_shown(tmp_path, sanitized=True)
    draw = random.Random(37)  # the same each time
    base = json.dumps([HALF, {**WHOLE, "name": 'ü\U0001f600\\"', "more": [{"a": None}]}])
    texts = []
    for _ in range(1500):
        text = list(base)
        for _ in range(draw.randint(0, 3)):
            at = draw.randrange(len(text))
            text[at : at + draw.randint(0, 4)] = draw.choices(OF_JSON, k=draw.randint(0, 5))
        texts.append("".join(text)[: draw.choice([len(text), draw.randint(1, len(text))])])
    (tmp_path / "texts").write_text(json.dumps(texts))
    script = f"""
import ctypes, json, os
n = ctypes.CDLL({str(library)!r}); started = 0
for text in json.load(open({str(tmp_path / "texts")!r})):
    os.environ["ELASTIC_AI_GPUS"] = text
    if n.nvmlInit_v2() == 0: started += 1; n.nvmlShutdown()
print(started)
"""
    told = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 0 < int(done.stdout) < 1500, "some of them are still a lease, others are not"


def test_it_opens_nothing(tmp_path: Path) -> None:
    """No file, but what says how the GPUs are used, and no socket."""
    assert (built() / "client/lib/libnvidia-ml.so.1").is_file()
    wanted = subprocess.run(
        ["objdump", "-T", str(built() / "client/lib/libnvidia-ml.so.1")], capture_output=True, text=True, check=True
    ).stdout
    asks = set(re.findall(r"\*UND\*.*\s(\w+)$", wanted, re.M))
    assert "fopen" in asks
    assert not asks & {"socket", "connect", "open", "openat", "dlopen", "execve", "system", "popen", "fork"}


def test_as_torch_counts_without_a_context() -> None:
    """torch.cuda._raw_device_count_nvml and _raw_device_uuid_nvml, by which accelerate has it look."""
    said = asked(
        """
from ctypes import CDLL, byref, c_int, c_void_p, create_string_buffer
n = CDLL("libnvidia-ml.so.1"); count = c_int(-1)
found = [n.nvmlInit(), n.nvmlDeviceGetCount_v2(byref(count)), count.value]
for i in range(count.value):
    one, text = c_void_p(), create_string_buffer(96)
    got = [n.nvmlDeviceGetHandleByIndex_v2(i, byref(one)), n.nvmlDeviceGetUUID(one, text, 96)]
    found.append([*got, text.value.decode()])
said(found)
""",
        environment(CUDA_VISIBLE_DEVICES=""),  # NVML knows nothing of it
    )
    assert said == [0, 0, 2, [0, 0, UUIDS[0]], [0, 0, UUIDS[1]]]
