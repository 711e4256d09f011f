"""The nouns of the project: requests, generations, segments, time utility, service levels, clocks.

A noun that two rooms share belongs here. `events` also reads and writes event logs, which servers,
clients and experiments share. This room imports no other room, no ROS and no torch. A new field of
a request, a report or a segment begins here, goes on in `msg`, `srv` or `action`, and ends in
`ros/conversions.py`.
"""
