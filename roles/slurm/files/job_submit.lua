-- Managed by Ansible (role slurm). Slurm's controller asks it about each job that is submitted or changed.
--
-- Refuses control characters in texts that users choose: line ends in a job's name would pass for lines of Slurm's own
-- where its text for people is read. A second fence: the toolkit reads Slurm's JSON, in which they are harmless.
-- Programs, their arguments, scripts and environments may have lines.

local texts = {
  "account", "acctg_freq", "admin_comment", "array_inx", "batch_features", "burst_buffer", "clusters", "comment",
  "container", "cpus_per_tres", "dependency", "exc_nodes", "extra", "features", "gres", "licenses", "mail_user",
  "mcs_label", "mem_per_tres", "name", "network", "partition", "prefer", "qos", "req_context", "req_nodes",
  "reservation", "selinux_context", "std_err", "std_in", "std_out", "tres_bind", "tres_freq", "tres_per_job",
  "tres_per_node", "tres_per_socket", "tres_per_task", "wckey", "work_dir",
}

local function check(job)
  for _, field in ipairs(texts) do
    local value = job[field] -- nil where this release has no such field
    if type(value) == "string" and value:find("[\1-\31\127]") then
      slurm.log_user("%s of the job has control characters (line ends, for instance), which this pool refuses", field)
      return slurm.ERROR
    end
  end
  return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, uid)
  return check(job)
end

function slurm_job_modify(job, record, partitions, uid)
  return check(job)
end

slurm.log_info("elastic-ai: job_submit.lua is loaded")
return slurm.SUCCESS
