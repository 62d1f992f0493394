"""What Slurm's controller asks about each job (roles/slurm/templates/job_submit.lua.j2), under a real Lua.

The interpreter stands in for the plugin job_submit/lua: `slurm` has what the script uses of it, a job is a table. The
script in a real slurmctld is the lab's matter.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest

TEMPLATE = Path(__file__).parents[2] / "roles" / "slurm" / "templates" / "job_submit.lua.j2"
LUA = shutil.which("lua5.3") or shutil.which("lua")
pytestmark = [pytest.mark.skipif(LUA is None, reason="lua5.3 is not installed here"), pytest.mark.engines]
#: Slurm's numbers, from job_submit_lua.c and slurm_errno.h; the job's texts come as arguments: field, value, field, ...
HARNESS = """
slurm = {SUCCESS = 0, ERROR = -1, log_info = function() end,
         log_user = function(...) io.write(string.format(...), "\\n") end}
assert(dofile(arg[1]) == slurm.SUCCESS)
local job, record = {time_limit = 60}, {}
for i = 4, #arg, 2 do
  if arg[i]:sub(1, 4) == "was:" then record[arg[i]:sub(5)] = arg[i + 1] else job[arg[i]] = arg[i + 1] end
end
local uid = tonumber(arg[3])
if arg[2] == "submit" then io.write(slurm_job_submit(job, {}, uid), "\\n") end
if arg[2] == "modify" then io.write(slurm_job_modify(job, record, {}, uid), "\\n") end
"""


def ask(
    tmp_path: Path, event: str, *fields: str | bytes, native: list[str] | None = None, uid: int = 2002
) -> list[str]:
    """What it says to the user, and its code. `native` as filter slurm_policy has it; `was:name` is what name was."""
    harness, script = tmp_path / "harness.lua", tmp_path / "job_submit.lua"
    harness.write_text(HARNESS)
    templates = jinja2.Environment()
    templates.filters["regex_replace"] = lambda text, old, new: re.sub(old, new, text)
    script.write_text(templates.from_string(TEMPLATE.read_text()).render(slurm_policy={"native": native}))
    done = subprocess.run([str(LUA), harness, script, event, str(uid), *fields], capture_output=True, check=True)
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


NAME, COMMENT = "elastic-ai-lease", '{"elastic-ai-lease":1,"clients":["10.0.0.1"]}'
PART = ("tres_per_node", "gres:shard:20")


@pytest.mark.parametrize(
    ("native", "fields", "taken"),
    [
        (None, ("name", "train", *PART), True),  # the servers keep the device files; the job counts as any other
        ([], ("name", "train", *PART), False),
        ([], ("name", "train", "tres_per_job", "gres:gpu:1"), False),
        ([], ("name", "train", "tres_per_node", "gres/gpu:v100:2"), False),
        ([], ("name", "train", "account", "research", "gres", "gpu:1"), False),
        ([], ("name", "train"), True),
        ([], ("name", NAME, "comment", COMMENT, *PART), True),
        ([], ("name", NAME, "comment", "", *PART), False),
        ([], ("name", "x", "comment", COMMENT, *PART), False),
        (["research"], ("name", "train", "account", "research", *PART), True),
        (["research"], ("name", "train", "account", "teaching", *PART), False),
        (["research"], ("name", "train", "default_account", "teaching", *PART), False),
        (["a-b", "research"], ("name", "train", "default_account", "a-b", *PART), True),
        (["research"], ("name", "train", *PART), True),  # of no class that is known here: Slurm or the server refuses
    ],
)
def test_native_jobs_have_gpus_as_the_policy_says(
    tmp_path: Path, native: list[str] | None, fields: tuple[str, ...], taken: bool
) -> None:
    *said, code = ask(tmp_path, "submit", *fields, native=native)
    assert code == ("0" if taken else "-1")
    assert said == ([] if taken else ["this pool gives GPUs by leases (toolkit run); jobs of yours on the servers "
                                      "themselves get none"])  # fmt: skip
    assert ask(tmp_path, "submit", *fields, native=native, uid=0) == ["0"], "root is no user of the pool"


def test_a_job_is_no_native_one_later(tmp_path: Path) -> None:
    lease = ("was:name", NAME, "was:comment", COMMENT, "was:tres_per_node", "gres:shard:20")
    assert ask(tmp_path, "modify", *lease, "time_min", "5", native=[]) == ["0"]
    for change in (("name", "train"), ("comment", "mine")):
        assert ask(tmp_path, "modify", *lease, *change, native=[])[-1] == "-1", change
    grows = ("was:name", "train", "was:comment", "", "tres_per_node", "gres:gpu:1")
    assert ask(tmp_path, "modify", *grows, native=[])[-1] == "-1"
