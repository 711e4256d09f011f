"""Experiments on the virtual clock: workloads, simulated clients, the simulation."""
