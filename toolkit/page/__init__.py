"""The pool on one page, live: what `toolkit gpus` and `toolkit lease list --all` show, served on the head to browsers.

One collector asks Slurm, whoever watches. Runs on the head with the Python of the system, Starlette, uvicorn and
Jinja2, as a user without root; what users can change goes through the helper of toolkit/login.
"""
