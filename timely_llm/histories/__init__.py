"""Deterministic simulation: one seed is one history of servers, robots, people and faults.

The parts under test are the real ones: the server and its loop, the dispatcher, plan followers,
and what a client does after the loss of its server. What they stand on is simulated here: the
engine, the network and the time. A new kind of fault is a line in `faults.py` and its effect in
`history.py`; a new promise is a check in `checks.py`. No module imports ROS or torch.
"""
