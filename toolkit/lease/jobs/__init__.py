"""A lease as Slurm's job: what Slurm is asked, what it answers, and what the job's comment has."""
