"""Policies by name."""

from __future__ import annotations

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.contract import Policy
from timely_llm.policies.deadline import Deadline
from timely_llm.policies.fastserve import FastServe
from timely_llm.policies.fcfs import Fcfs, Orca, Stream
from timely_llm.policies.segmented import Edf, FcfsSegments
from timely_llm.policies.slice import Slice
from timely_llm.policies.timely import Timely
from timely_llm.policies.timely_slice import TimelySlice

DEFAULT_POLICY = "timely+slice"
"""What serves where nobody says otherwise."""

POLICIES: dict[str, type[Policy]] = {
    "fcfs": Fcfs,
    "stream": Stream,
    "fcfs-segments": FcfsSegments,
    "edf": Edf,
    "timely": Timely,
    "orca": Orca,
    "fastserve": FastServe,
    "slice": Slice,
    "timely+slice": TimelySlice,
    "deadline": Deadline,
}


def make_policy(name: str, **options: float) -> Policy:
    """Return a new policy.

    Args:
        name: one of `POLICIES`.
        options: the policy's own parameters.

    Raises:
        ConfigurationError: there is no policy of that name.
    """
    if name not in POLICIES:
        raise ConfigurationError(f"unknown policy {name!r}: choose one of {', '.join(POLICIES)}")
    return POLICIES[name](**options)
