"""A side of the reference engine that takes nothing for long: its machine answers, so it is not taken for lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.engine_run import MIB, client_of, server, wait_for

STALL_S = 40  # longer than a cut network is waited for


def test_what_a_killed_program_has_asked_for_is_not_done(tmp_path: Path) -> None:
    """It runs ahead by all that the network holds: minutes of work, for nobody, with the neighbour's device."""
    script = f"""
start()
p = alloc({64 * MIB})
said("ready")
while True: cuda.cuMemsetD8Async(p, 1, c_size_t({64 * MIB}), None)
"""
    with server(tmp_path) as one:
        program = client_of(one).start(script)
        assert program.stdout
        assert program.stdout.readline() == '"ready"\n'
        child = one.child()
        time.sleep(3)
        program.kill()
        program.communicate()
        wait_for(lambda: any(e["event"] == "gone" and e["pid"] == child for e in one.events()), 60)


@pytest.mark.rest
@pytest.mark.parametrize("down", [False, True])
def test_a_side_that_takes_nothing_for_long_is_not_lost(tmp_path: Path, down: bool) -> None:
    """A session in a long kernel, and a program in a debugger, in the middle of a copy; all its bytes arrive."""
    script = f"""
start()
size = {96 * MIB}
p = alloc(size)
data = bytearray(bytes(range(256)) * (size // 256))
here = (ctypes.c_char * size).from_buffer(data)
cuda.cuMemcpyHtoD_v2(p, here, c_size_t(size))
back = (ctypes.c_char * size)()
print("ready", flush=True)
sys.stdin.readline()
if {down}: cuda.cuMemcpyDtoH_v2(back, p, c_size_t(size))
else: cuda.cuMemcpyHtoD_v2(p, here, c_size_t(size))
cuda.cuMemcpyDtoH_v2(back, p, c_size_t(size))
said(bytes(back) == bytes(data))
"""
    with server(tmp_path, "--memory-limit", str(256 * MIB)) as one:
        program = client_of(one).start(script)
        assert program.stdin
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        stopped = one.child() if not down else program.pid
        if down:
            program.stdin.write("\n")
            program.stdin.flush()
            time.sleep(0.02)
            os.kill(stopped, signal.SIGSTOP)
        else:
            os.kill(stopped, signal.SIGSTOP)
            program.stdin.write("\n")
            program.stdin.flush()
        time.sleep(STALL_S)
        os.kill(stopped, signal.SIGCONT)
        out, err = program.communicate(timeout=120)
        assert (out, program.returncode) == ("true\n", 0), err
