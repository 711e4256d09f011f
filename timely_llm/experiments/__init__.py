"""The papers' evaluations and our own, in virtual and in real time.

An experiment is one file in `catalog`, named as its command. It has a question and the tables that
answer it. `results` defines the columns, `virtual` the workloads. `realtime` runs on the wall
clock. `recorded` scores recordings.
"""
