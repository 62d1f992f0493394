"""What Slurm's controller asks about each job (roles/slurm/files/job_submit.lua), under a real Lua.

The interpreter stands in for the plugin job_submit/lua: `slurm` has what the script uses of it, a job is a table. The
script in a real slurmctld is the lab's matter.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "roles" / "slurm" / "files" / "job_submit.lua"
LUA = shutil.which("lua5.3") or shutil.which("lua")
pytestmark = pytest.mark.skipif(LUA is None, reason="lua5.3 is not installed here")
#: Slurm's numbers, from job_submit_lua.c and slurm_errno.h; the job's texts come as arguments: field, value, field, ...
HARNESS = """
slurm = {SUCCESS = 0, ERROR = -1, log_info = function() end,
         log_user = function(...) io.write(string.format(...), "\\n") end}
assert(dofile(arg[1]) == slurm.SUCCESS)
local job = {time_limit = 60}
for i = 3, #arg, 2 do job[arg[i]] = arg[i + 1] end
if arg[2] == "submit" then io.write(slurm_job_submit(job, {}, 2002), "\\n") end
if arg[2] == "modify" then io.write(slurm_job_modify(job, {}, {}, 2002), "\\n") end
"""


def ask(tmp_path: Path, event: str, *fields: str | bytes) -> list[str]:
    harness = tmp_path / "harness.lua"
    harness.write_text(HARNESS)
    done = subprocess.run([str(LUA), harness, SCRIPT, event, *fields], capture_output=True, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("event", ["submit", "modify"])
def test_a_job_with_ordinary_texts_is_taken(tmp_path: Path, event: str) -> None:
    comment = '{"elastic-ai-lease":1,"clients":["10.0.0.1"]}'
    assert ask(tmp_path, event, "name", "elastic-ai-lease", "comment", comment, "work_dir", "/home/ä é") == ["0"]
    assert ask(tmp_path, event, "name", "", "script", "#!/bin/sh\nsleep 1\n") == ["0"]
    assert ask(tmp_path, event, "name", b"\xff\xfe") == ["0"]


@pytest.mark.parametrize("event", ["submit", "modify"])
@pytest.mark.parametrize("sign", ["\n", "\r", "\t", "\x01", "\x1b[2J", "\x7f"])
@pytest.mark.parametrize("field", ["name", "comment", "work_dir", "std_out", "dependency", "tres_per_node", "wckey"])
def test_control_characters_are_refused_with_the_name_of_the_field(
    tmp_path: Path, event: str, sign: str, field: str
) -> None:
    said, code = ask(tmp_path, event, field, f"elastic-ai-lease{sign}x")
    assert code == "-1"
    assert said.startswith(f"{field} of the job has control characters")
