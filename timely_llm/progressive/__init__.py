"""Progressive: answers and plans that a cloud sketches and edge servers expand.

Here belong the lengths of sketches, the choice of servers and models for their parts, how parts are
merged, judged and put together, and the record of one request with all its parts. It has no clock
and no I/O: the cloud and time belong to its callers.
"""
