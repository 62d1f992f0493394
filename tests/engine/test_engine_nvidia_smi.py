"""nvidia-smi of a lease's client and of a lab's nodes: what it shows, what it refuses, and when it steps aside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.engine_run import MIB, UUIDS, built, describe, local
from tests.support.leased_nvml import HALF, environment, smi, use_file
from toolkit.engine import build
from validation.probes import smi as probe

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
HERE, HELP = "nvidia-smi (Elastic AI): ", "; --help says what is\n"


def emulated(folder: Path, **more: int | str) -> dict[str, str]:
    """Of a node of a lab with two emulated GPUs."""
    library = built() / "devices"
    return {
        **describe(folder, **more),
        "PATH": f"{library}:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(library),
        "TZ": "UTC",
    }


def test_the_list_has_a_line_for_each_gpu_and_says_whose_it_is() -> None:
    assert smi("-L") == smi("--list-gpus")
    assert smi("-L") == (
        0,
        f"GPU 0: NVIDIA H100 80GB HBM3, leased over the network from gpu1, part: 1/2 of 81559MiB (UUID: {UUIDS[0]})\n"
        f"GPU 1: Tesla V100-SXM2-16GB, leased over the network from gpu2 (UUID: {UUIDS[1]})\n",
        "",
    )


def test_the_table_of_a_lease() -> None:
    code, text, errors = smi()
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    assert {len(line) for line in lines[1:] if line} == {89}, "all lines are of one width"
    assert (
        "| LEASED, over the network from gpu1, gpu2: Elastic AI lease 42, no GPU is in this      |\n| machine   "
        in text
    )
    assert re.search(r"Driver Version: 570\.9\.1 +CUDA Version: 12\.8 ", text)
    assert re.search(r"\|   0  NVIDIA H100 80GB HBM3 +N/A  \| gpu1:3 +\| +N/A \|", text)
    assert re.search(r"N/A / N/A  \| +N/A / 40000MiB \| +N/A +N/A \|", text)
    assert re.search(r"\| part: 1/2 of 81559MiB +\| ", text)
    assert text.count("part:") == 1
    assert "Not told: they run on the servers" in text


def test_the_table_of_a_lab(tmp_path: Path) -> None:
    told = emulated(tmp_path, temperature_c=40, power_limit_mw=300_000, ecc_enabled=1, ecc_uncorrected=2, persistence=1)
    code, text, errors = smi(told=told)
    assert (code, errors) == (0, "")
    assert {len(line) for line in text.splitlines()[1:] if line} == {89}
    driver = f"{build.emulated_driver()[0]}-emulated"
    assert f"| EMULATED devices of an Elastic AI lab, over host memory: no figure is a GPU's {' ' * 7} |" in text
    assert f"Driver Version: {driver} " in text
    assert re.search(r"\|   1  Emulated V100 +On  \| 00000000:11:00.0 +\| +2 \|", text)
    assert re.search(r"\| N/A  40C    N/A +N/A / 300W  \| +0MiB / 256MiB \| +0% +Default \|", text)
    assert "No running processes found" in text
    assert smi("-L", told=told)[1].splitlines()[0] == f"GPU 0: Emulated V100 (UUID: {UUIDS[0]})"


def test_the_log_of_a_lab(tmp_path: Path) -> None:
    text = smi("-q", told=emulated(tmp_path, temperature_c=40, sm_mhz=1530, memory_mhz=877))[1]
    for name, value in (("GPU Current Temp", "40 C"), ("SM", "1530 MHz"), ("Memory", "877 MHz"), ("Used", "0 MiB")):
        assert len(re.findall(rf"^        {name} +: {value}$", text, re.M)) == 2, name


def test_emulated_gpus_of_a_lease_are_said_to_be_so() -> None:
    assert "| LEASED, EMULATED, over the network from gpu1: " in smi(told=environment([{**HALF, "emulated": True}]))[1]


def test_what_the_servers_say_soon_is_waited_for(tmp_path: Path) -> None:
    """The first thing that anybody types: the program is there before their first word."""
    query = ["--query-gpu=memory.used", "--format=csv,noheader"]
    told = environment([HALF], ELASTIC_AI_GPUS_USE=str(tmp_path / "use"))
    process = subprocess.Popen([built() / "client/bin/nvidia-smi", *query], env=told, stdout=subprocess.PIPE, text=True)
    (tmp_path / "new").write_text(f"{7 * MIB} -1 -1\n")
    (tmp_path / "new").rename(tmp_path / "use")
    assert process.communicate()[0] == "7 MiB\n"
    (tmp_path / "use").unlink()
    os.utime(tmp_path, (1, 1))
    assert smi(*query, told=told)[1] == "[N/A]\n", "nobody says anything, and it goes on"


QUERY = "--query-gpu=index,name,uuid,memory.total,memory.used,utilization.gpu,power.draw,compute_cap,driver_version"


def test_fields_as_csv(tmp_path: Path) -> None:
    told = environment(**use_file(tmp_path, f"{1000 * MIB} -1 -1", f"{384 * MIB} 93 40"))
    code, text, errors = smi(QUERY, "--format=csv", told=told)
    assert (code, errors) == (0, "")
    assert text.splitlines() == [
        "index, name, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], compute_cap, "
        "driver_version",
        f"0, NVIDIA H100 80GB HBM3, {UUIDS[0]}, 40000 MiB, 1000 MiB, [N/A], [N/A], 9.0, 570.9.1",
        f"1, Tesla V100-SXM2-16GB, {UUIDS[1]}, 16384 MiB, 384 MiB, 93 %, [N/A], 7.0, 570.9.1",
    ]
    bare = smi("--query-gpu=gpu_name, memory.free", "--format=csv,noheader,nounits", told=told)[1]
    assert bare.splitlines() == ["NVIDIA H100 80GB HBM3, 39000", "Tesla V100-SXM2-16GB, 16000"]
    assert smi("--query-gpu", "count", "--format", "csv,noheader", "-i", "1", told=told)[1] == "2\n"


def test_the_total_is_known_where_the_use_is_not() -> None:
    assert smi("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader", "-i", "0")[1] == (
        "40000 MiB, [N/A], [N/A]\n"
    )


def test_every_field_of_ours_has_a_value_where_the_node_says_it(tmp_path: Path) -> None:
    """Of an emulated GPU that is described in full."""
    health = ("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width", "ecc_corrected", "memory_mhz")
    numbers = {name: 3 for name in health}
    told = emulated(
        tmp_path, **numbers, ecc_enabled=1, ecc_uncorrected=2, persistence=1, temperature_c=41, sm_mhz=1530,
        sm_max_mhz=1590, memory_max_mhz=877, power_mw=59_970, power_limit_mw=300_000, compute_capability="7.0",
    )  # fmt: skip
    code, listed, _ = smi("--help-query-gpu", told=told)
    assert code == 0
    names = [line.split(" or ")[0] for line in listed.splitlines()[:-1]]
    assert len(names) > 35
    code, text, _ = smi(f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", "-i", "0", told=told)
    found = dict(zip(names, text.strip().split(", "), strict=True))
    assert sorted(name for name, value in found.items() if value == "[N/A]") == [
        "clocks.current.video", "fan.speed", "mig.mode.current", "pstate", "serial", "vbios_version",
    ]  # fmt: skip
    assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", found["timestamp"])
    assert {name: found[name] for name in ("power.draw", "clocks.current.sm", "clocks.max.sm", "temperature.gpu")} == {
        "power.draw": "59.97", "clocks.current.sm": "1530", "clocks.max.sm": "1590", "temperature.gpu": "41",
    }  # fmt: skip
    assert (found["persistence_mode"], found["compute_mode"], found["ecc.mode.current"]) == (
        "Enabled",
        "Default",
        "Enabled",
    )
    assert (found["pci.bus_id"], found["pci.bus"], found["pci.domain"]) == ("00000000:10:00.0", "0x10", "0x0000")
    assert (found["ecc.errors.uncorrected.volatile.total"], found["memory.reserved"]) == ("2", "0")


@pytest.mark.parametrize(
    "field", ["inforom.image", "clocks_throttle_reasons.active", "temperature.memory", "gom.current"]
)
def test_fields_that_nobody_tells_are_not_available(field: str) -> None:
    assert smi(f"--query-gpu={field}", "--format=csv,noheader", "-i", "0") == (0, "[N/A]\n", "")


def test_processes_as_csv(tmp_path: Path) -> None:
    query = "--query-compute-apps=pid,process_name,used_memory"
    assert smi(query, "--format=csv") == (0, "pid, process_name, used_gpu_memory [MiB]\n", "")
    assert smi(query, "--format=csv,noheader") == (0, "", "")
    assert smi("--query-compute-apps=nix", "--format=csv")[0] == 2
    told = emulated(tmp_path)
    script = "start(); alloc(5 << 20); print(os.getpid(), flush=True); sys.stdin.read()"
    holder = local(tmp_path, {k: v for k, v in told.items() if k.startswith("ELASTIC")}).start(script)
    pid = holder.stdout.readline().strip()
    try:
        assert smi(query, "--format=csv,noheader", told=told)[1] == f"{pid}, python, 5 MiB\n"
        assert re.search(rf"\|    0  N/A  N/A +{pid}    C   python +5MiB \|", smi(told=told)[1])
    finally:
        holder.kill()
        holder.communicate()


def test_the_log_of_a_lease() -> None:
    code, text, _ = smi("-q")
    assert code == 0
    assert re.search(r"^Attached GPUs +: 2$", text, re.M)
    assert re.search(r"^GPU gpu1:3$", text, re.M)
    assert re.search(r"^    Part +: 1/2 of 81559MiB$", text, re.M)
    assert re.search(r"^    Part +: all of it$", text, re.M)
    assert re.search(r"^        Total +: 40000 MiB$", text, re.M)
    assert text.count("N/A") > 10
    assert re.search(r"^What is shown +: LEASED, over the network", text, re.M)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--frob"], "--frob is not here, or something has to follow it"),
        (["topo", "-m"], "topo is not here"),
        (["-pm", "1"], "-pm is not here"),
        (["mig", "-lgip"], "mig is not here"),
        (["-q", "-x"], "-x is not here, or something has to follow it"),
        (["-i"], "-i is not here, or something has to follow it"),
    ],
)
def test_what_it_has_not_is_one_sentence(options: list[str], words: str) -> None:
    assert smi(*options) == (2, "", f"{HERE}{words}{HELP}")


@pytest.mark.parametrize(
    "options",
    [
        ["--query-gpu=index"], ["--format=csv"], ["--query-gpu=index", "--format=xml"], ["-L", "-q"], ["-l", "0"],
        ["--query-gpu=index", "--format=noheader"], ["-lms", "x"], ["--query-gpu=nix", "--format=csv"],
        ["--query-gpu=", "--format=csv"], [f"--query-gpu={'index,' * 300}index", "--format=csv"],
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_sentence(options: list[str]) -> None:
    code, text, errors = smi(*options)
    assert (code, text, errors.count("\n")) == (2, "", 1)


def test_a_gpu_that_is_not_there() -> None:
    assert smi("-i", "7") == (6, "", "No devices were found: there is no GPU 7 here\n")
    assert smi("-L", "-i", f"1,{UUIDS[0]}")[1].split()[1] == "1:"
    assert smi("--id=1", "-L")[1].count("\n") == 1
    assert smi(told=environment("[]")) == (6, "No devices were found\n", "")


def test_help_says_whose_gpus_it_shows() -> None:
    code, text, _ = smi("--help")
    assert code == 0
    assert text.startswith("nvidia-smi of the Elastic AI Toolkit: the GPUs of a lease, which are on other machines")
    alone = {**environment(), "PATH": "/nonexistent"}
    del alone["ELASTIC_AI_GPUS"]
    assert smi("-h", told=alone, program=str(built() / "client/bin/nvidia-smi"))[1] == text


def test_again_and_again_until_nobody_reads() -> None:
    command = [built() / "client/bin/nvidia-smi", "--query-gpu=index", "--format=csv", "-lms", "20"]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert [process.stdout.readline() for _ in range(7)] == ["index\n", *["0\n", "1\n"] * 3], "one heading"
        process.stdout.close()
        assert process.wait(10) != 0
    finally:
        process.kill()


DRIVERS_OWN = '#!/bin/sh\necho "the driver\'s own: $*"\nexit 7\n'


def own(folder: Path) -> str:
    """A folder with a driver's nvidia-smi."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(DRIVERS_OWN)
    (folder / "nvidia-smi").chmod(0o755)
    return str(folder)


def test_without_a_lease_it_is_the_drivers(tmp_path: Path) -> None:
    drivers = own(tmp_path / "driver")
    told = environment()
    told["PATH"] = f"{built()}/client/bin:{drivers}:/usr/bin:/bin"
    assert "LEASED" in smi(told=told)[1]
    del told["ELASTIC_AI_GPUS"]
    assert smi("-L", "-i", "0", told=told) == (7, "the driver's own: -L -i 0\n", "")
    told["PATH"] = f"{built()}/client/bin:/usr/bin:/bin"
    if not shutil.which("nvidia-smi"):
        words = "this is no program of a lease; start it by toolkit run, or look at toolkit lease env"
        assert smi(told=told) == (9, "", f"{HERE}{words}\n")


def test_two_of_ours_never_call_each_other(tmp_path: Path) -> None:
    """A lab's node on which a lease's program runs, in either order; neither has anything to show."""
    (tmp_path / "again").mkdir()
    shutil.copy(built() / "client/bin/nvidia-smi", tmp_path / "again")
    both = [f"{built()}/client/bin", str(tmp_path / "again")]
    for first, second in (both, both[::-1]):
        found = smi(told={"PATH": f"{first}:{second}", "LD_LIBRARY_PATH": "/nonexistent"})
        assert found[:2] == (9, "")
        assert found[2].startswith(HERE)
        named = smi(told={"PATH": f"{first}:{second}"}, program=f"{second}/nvidia-smi")
        assert named[:2] == (9, "")


def test_probes_ask_the_drivers_own_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured and judged of a machine are its own GPUs, neither leased ones nor a lab's."""
    drivers = tmp_path / "driver"
    own(drivers)
    (drivers / "nvidia-smi").write_text("#!/bin/sh\necho '0, Tesla T4'\n")
    for told in (environment(), emulated(tmp_path)):
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{told['PATH'].split(':')[0]}:/usr/bin:/bin")
        if not shutil.which("nvidia-smi", path="/usr/bin:/bin"):
            assert probe.answering() == []
        monkeypatch.setenv("PATH", f"{told['PATH'].split(':')[0]}:{drivers}:/usr/bin:/bin")
        assert probe.answering() == ["Tesla T4"]
        assert subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ") == 2
