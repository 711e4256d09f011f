"""One server: the serving loop, which admits, steps and delivers.

What happens to a request between its arrival and its end belongs here, on either clock, without ROS
and torch. `loop.py` has the three verbs; limits and refusals are in `limits.py`, what robots report
in `reports.py`, what the server's threads share in `server`. What chooses between several servers
belongs in `dispatch`.
"""
