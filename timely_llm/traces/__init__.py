"""Workloads as data: requests of robots and people, their arrivals, and execution times.

Readers of formats belong into `imported` or `recordings`. Code that makes workloads belongs into
`recipes.py` or `compose.py`. Results of runs belong to `experiments`.
"""
