"""Notebooks on GPUs of the pool: `toolkit jupyter`.

A notebook server of the user's own Python runs on this machine where an engine brings it the GPUs (module here), else
on the GPU server, reached by the lease's own ssh connection (module there). Module server is its program: it runs in
that Python, and imports nothing of the toolkit's.
"""
