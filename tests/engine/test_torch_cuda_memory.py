"""Memory of GPUs in the server of engine torch: zero at hand-out, overwritten at the end, one limit for a lease.

By a CUDA runtime without a GPU, whose memory keeps what was in it, and whose work on a stream is done when somebody
waits for it. Each attempt is made without the engine's library too, and succeeds there.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cuda_guard import DEVICE_BYTES, MIB, Kit, build

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def kit(built: Kit) -> Kit:
    """Its device's memory is full of another's bytes."""
    built.clear()
    return built


@pytest.mark.parametrize("how", ["local", "global"])
def test_new_memory_is_zero_before_anybody_can_look(kit: Kit, how: str) -> None:
    """However the runtime was loaded, on each device; and nothing of the program's is waited for."""
    everywhere = kit.cudart if how == "global" else None
    program = """
first = user.malloc(MIB)
user.write(first[1], 0x11, MIB)
user.device(1)
second = user.malloc(3 * MIB)
said([first[0], first[2], second[0], second[2], user.others(first[1], 0, MIB)])
"""
    assert kit.run(program, everywhere=everywhere) == [0, 0, 0, 0, 0], "the program's own work goes on beside"
    kit.clear()
    assert kit.run(program, guarded=False, everywhere=everywhere) == [0, MIB, 0, 3 * MIB, MIB]


def test_of_a_runtime_of_another_release_and_of_a_plain_program(tmp_path: Path) -> None:
    """CUDA 12's; and the runtime as the program's own dependency."""
    kit = build(tmp_path, "libcudart.so.12")
    assert kit.run("said(user.malloc(MIB)[::2])") == [0, 0]
    kit.clear()

    def plain(guarded: bool) -> str:
        return subprocess.check_output([tmp_path / "program"], env=kit.environment(guarded), text=True)

    assert plain(guarded=False) == f"0 {MIB}\n"
    assert plain(guarded=True) == "0 0\n"


def test_beside_a_runtime_of_another_release(kit: Kit, tmp_path: Path) -> None:
    """Whose current device is another: memory is of the runtime that the program is linked to."""
    other = build(tmp_path, "libcudart.so.12")
    program = """
user.device(1)
memory = account(4 * MIB)
said(child(lambda: [*user.malloc(MIB)[::2], memory.used(0), memory.used(1)], memory))
"""
    assert kit.run(program, everywhere=other.cudart) == [0, 0, 0, MIB]


def test_without_a_runtime_there_is_no_memory(kit: Kit) -> None:
    """An error, and no crash."""
    program = [
        "python3",
        "-c",
        "import ctypes; print(ctypes.CDLL(None).cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4))",
    ]
    assert subprocess.check_output(program, env=kit.environment(), text=True) == "3\n"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
def test_memory_that_is_given_back_is_overwritten(kit: Kit, guarded: bool) -> None:
    """After what was still running there has ended; also from another current device, which stays."""
    program = """
data = user.malloc(MIB)[1]
user.write(data, 0x11, MIB)
user.device(1)
error = user.free(data)
other = user.malloc(MIB)
user.write(other[1], 0x22, MIB)
said([error, user.wait()])
"""
    assert kit.run(program, guarded=guarded) == [0, 0]
    assert kit.not_old(0) == (0 if guarded else MIB)
    assert kit.not_old(1) == MIB, "the device that was current"


def test_an_address_that_comes_again_while_it_is_freed_is_overwritten_and_counted(kit: Kit) -> None:
    """Another thread is given it before the first one has returned."""
    program = """
mine = account(4 * MIB)
def session():
    took, again = user.malloc(MIB)[1], []
    @ctypes.CFUNCTYPE(None)
    def other():
        again.append(user.malloc(MIB))
        user.write(again[0][1], 0x11, MIB)
    library.user_after_free(other)
    freed = user.free(took)
    used = mine.used(0)
    return [freed, again[0][1] == took, again[0][2], used, user.free(took), mine.used(0)]
said(child(session, mine))
"""
    assert kit.run(program) == [0, True, 0, MIB, 0, 0]
    assert kit.not_old() == 0


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
def test_a_session_overwrites_what_it_still_has_at_its_end(kit: Kit, guarded: bool) -> None:
    """On all devices, and pinned memory."""
    program = f"""
def session():
    left = [user.malloc(MIB)[1], user.malloc(2 * MIB)[1]]
    user.device(1)
    left.append(user.malloc(MIB)[1])
    pinned = user.host(4096)
    for data in left + [pinned[1]]:
        user.write(data, 0x11, 4096)
    user.device(0)
    not_wiped = ctypes.CDLL(None).eai_memory_end() if {guarded} else user.wait()
    return [not_wiped, pinned[2] == 0, user.others(pinned[1], 0, 4096)]
said(child(session))
"""
    assert kit.run(program, guarded=guarded) == ([0, True, 0] if guarded else [0, False, 4096])
    assert (kit.not_old(0), kit.not_old(1)) == ((0, 0) if guarded else (8192, 4096))


def test_pinned_memory_is_zero_and_overwritten(kit: Kit) -> None:
    """By both names; the fake leaves it where it is."""
    program = """
found = []
for plain in (0, 1):
    error, data, others = user.host(8192, plain)
    user.write(data, 0x11, 8192)
    found += [error, others, user.free_host(data), user.others(data, 0, 8192)]
said(found)
"""
    assert kit.run(program) == [0, 0, 0, 0] * 2
    assert kit.run(program, guarded=False)[:3] == [0, 8192, 0]


def test_nothing_of_a_killed_session_is_in_the_next(kit: Kit) -> None:
    """It could not overwrite; who comes next gets zeros."""
    program = """
def killed():
    user.write(user.malloc(6 * MIB)[1], 0x11, 6 * MIB), user.wait()
    os.kill(os.getpid(), signal.SIGKILL)
def following():
    return user.malloc(6 * MIB)[::2]
child(killed)
said(child(following))
"""
    assert kit.run(program) == [0, 0]
    assert kit.run(program, guarded=False) == [0, 6 * MIB]


def test_all_sessions_of_a_lease_have_one_limit(kit: Kit) -> None:
    """What one has, the others do not; what is given back, or was a killed one's, can be had again; on each device."""
    program = """
memory = account(4 * MIB)
ready, go = os.pipe(), os.pipe()
holder = os.fork()
if not holder:
    memory.use(0)
    a, b = user.malloc(2 * MIB), user.malloc(MIB)
    os.write(ready[1], bytes([a[0], b[0], user.free(b[1])]))
    os.read(go[0], 1)
said_first = list(os.read(ready[0], 3))
def second():
    taken = [user.malloc(3 * MIB)[0], user.malloc(2 * MIB)[0], user.malloc(512)[0], user.malloc(0)[0], user.info()]
    user.device(1)
    return taken + [user.malloc(4 * MIB)[0], user.malloc(1)[0], user.info()]
answer = child(second, memory, 1)
used = [memory.used(0), memory.used(1)]
memory.clear(1)
os.kill(holder, signal.SIGKILL)
os.waitpid(holder, 0)
before = memory.used(0)
memory.clear(0)
last = child(lambda: user.malloc(4 * MIB)[0], memory, 0)
said([said_first, answer, used, before, last])
"""
    first, second, used, before, last = kit.run(program)
    assert first == [0, 0, 0]
    assert second == [
        OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 0, [0, 4 * MIB], 0, OUT_OF_MEMORY, [0, 4 * MIB]
    ]  # fmt: skip
    assert used == [4 * MIB, 4 * MIB]
    assert (before, last) == (2 * MIB, 0)


def test_without_the_library_each_session_has_the_whole_device(kit: Kit) -> None:
    """The same attempts, which all succeed."""
    program = """
mine = user.malloc(4 * MIB)[0]
said([mine, child(lambda: [user.malloc(4 * MIB)[0], user.malloc(1)[0]]), user.info()])
"""
    assert kit.run(program, guarded=False) == [0, [0, OUT_OF_MEMORY], [4 * MIB, DEVICE_BYTES]], "the device is full"


def test_what_is_free_is_the_leases_part(kit: Kit) -> None:
    """Never more than the limit, nor than the device has; a context counts from the first look on, on that device."""
    program = """
memory = account(4 * MIB, 65536)
def look():
    seen = [user.info(), user.malloc(MIB)[0], user.info(), memory.used(0), memory.used(1), memory.is_counted(0)]
    user.device(1)
    return seen + [memory.is_counted(1), user.malloc(4 * MIB)[0], memory.used(1)]
said([child(look, memory), child(lambda: [memory.used(0), user.info()], memory, 1)])
"""
    context = 65536
    first, second = kit.run(program)
    assert first == [
        [4 * MIB - context, 4 * MIB], 0, [3 * MIB - context, 4 * MIB], MIB + context, 0, True,
        False, OUT_OF_MEMORY, context,
    ]  # fmt: skip
    assert second == [MIB + context, [3 * MIB - 2 * context, 4 * MIB]]
    large = "memory = account(64 * MIB)\nsaid(child(lambda: [user.malloc(MIB)[0], user.info()], memory))"
    assert kit.run(large) == [0, [DEVICE_BYTES - MIB, DEVICE_BYTES]]
    none = "memory = account(0)\nsaid(child(lambda: [user.malloc(7 * MIB)[0], user.info(), memory.used(0)], memory))"
    assert kit.run(none) == [0, [MIB, DEVICE_BYTES], 7 * MIB]


def test_no_room_for_a_context_is_no_memory(kit: Kit) -> None:
    """A lease's sessions take more contexts than its part has room for."""
    program = """
memory = account(MIB, 600 << 10)
said([child(lambda: [user.info(), user.malloc(512)[0]], memory, row) for row in (0, 1)])
"""
    first, second = kit.run(program)
    assert first == [[MIB - (600 << 10), MIB], 0]
    assert second == [OUT_OF_MEMORY, OUT_OF_MEMORY]


def test_a_size_that_overflows_is_refused(kit: Kit) -> None:
    """As the reference engine refuses it; nothing of the account is lost."""
    program = """
memory = account(4 * MIB)
sizes = ((1 << 64) - 1, (1 << 64) - 512, 1 << 63)
said(child(lambda: [*(user.malloc(size)[0] for size in sizes), memory.used(0)], memory))
"""
    assert kit.run(program) == [OUT_OF_MEMORY] * 3 + [0]


def test_a_session_killed_in_the_middle_keeps_nobody(kit: Kit) -> None:
    """Killed again and again while it takes and gives; the others take what is theirs, and in the end all is there."""
    program = """
import time
memory = account(4 * MIB)
for row in range(12):
    pid = os.fork()
    if not pid:
        memory.use(row)
        while True:
            user.free(user.malloc(65536)[1])
    beside = child(lambda: [user.malloc(MIB)[0], memory.used(0) >= MIB], memory, 100)
    memory.clear(100)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    memory.clear(row)
    if beside != [0, True]:
        break
said([beside, memory.used(0)])
"""
    assert kit.run(program) == [[0, True], 0]


def test_a_session_killed_while_it_counts_keeps_nobody(kit: Kit) -> None:
    """With the account's lock, which stands at its beginning: the others go on, one at a time as before."""
    program = """
memory = account(4 * MIB)
libc = ctypes.CDLL(None)
def killed():
    libc.pthread_mutex_lock(ctypes.c_void_p(memory.account))
    os.kill(os.getpid(), signal.SIGKILL)
child(killed, memory)
after = child(lambda: [user.malloc(3 * MIB)[0], user.malloc(2 * MIB)[0]], memory, 1)
said([after, libc.pthread_mutex_lock(ctypes.c_void_p(memory.account))])
"""
    assert kit.run(program) == [[0, OUT_OF_MEMORY], 0]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
def test_other_ways_to_memory_are_closed(kit: Kit, guarded: bool) -> None:
    """Pools, managed memory, arrays; the driver's own functions, asked of the runtime; others of these work."""
    program = """
said([[user.other(which) for which in range(6)],
      [user.driver(name) for name in (b"cuMemCreate", b"cuMemAlloc_v2", b"cuMemImportFromShareableHandle")],
      [user.driver(name) for name in (b"cuMemMap", b"cuMemRelease", b"cuStreamWriteValue32")]])
"""
    refused = NOT_SUPPORTED if guarded else 0
    assert kit.run(program, guarded=guarded) == [[refused] * 6, [refused] * 3, [0] * 3]


def test_a_broken_device_gives_back_and_is_said(kit: Kit) -> None:
    """After a fault inside a kernel nothing can be waited for: the end says how much was not overwritten."""
    program = """
data = user.malloc(MIB)[1]
user.malloc(2 * MIB)
said([ctypes.CDLL(None).eai_memory_end(), user.free(data)])
"""
    assert kit.run(program, FAKE_CUDART_BROKEN="1") == [3 * MIB, 0]


def test_what_was_never_handed_out_is_the_runtimes_to_refuse(kit: Kit) -> None:
    """Nothing, an address in the middle, twice the same."""
    program = """
memory = account(4 * MIB)
def frees():
    data = user.malloc(MIB)[1]
    return [user.free(None), user.free(data + 512), user.free(data), user.free(data), memory.used(0)]
said(child(frees, memory))
"""
    none, middle, first, again, used = kit.run(program)
    assert (none, first, used) == (0, 0, 0)
    assert middle != 0
    assert again != 0
