"""Which tests have real processes, or ROS, and which of them are of faults."""

import pytest

LOST = "requests with neither a result nor a reason"
LEAKED = "tokens of KV that a server did not have back"
"""What no second run makes good."""

ROOMS = tuple(f"test/{room}/" for room in ("cluster", "launch", "ros", "system"))


def is_real(nodeid: str) -> bool:
    """Return whether a test is in one of the folders of such tests."""
    return nodeid.startswith(ROOMS)


def is_fault(item: pytest.Item) -> bool:
    """Return whether what becomes of a test's requests is counted."""
    return any(item.get_closest_marker(name) is not None for name in ("faults", "counted"))
