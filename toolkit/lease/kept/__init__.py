"""Programs that go on alone: `toolkit run --detach`, `toolkit logs`, `toolkit attach`.

What is kept is a command of the toolkit itself (`toolkit run ...`), exactly as its user typed it. A unit of systemd
runs it under the user's own uid, on the machine where it was typed (module unit); a supervisor in that unit writes what
it prints into a folder of the user's, notes its lease and its exit code, and does what is to be done afterwards (module
supervisor). So every way of running a program can go on alone, and nothing of it is written twice.
"""
