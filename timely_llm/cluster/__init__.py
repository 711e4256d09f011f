"""Replicas of a server in processes of their own, on this machine or on those of a Ray cluster.

Here belong the replica with its engine, the connection between it and its front, and what starts,
watches and replaces replicas. Requests are assigned to them in `dispatch`. A second way to start
replicas needs a `Place` alone. No module imports ROS or torch when it is loaded, and only
`ray_place` imports Ray.
"""
