"""Which tests have real processes, or ROS."""

ROOMS = tuple(f"test/{room}/" for room in ("cluster", "launch", "ros", "system"))


def is_real(nodeid: str) -> bool:
    """Return whether a test is in one of the folders of such tests."""
    return nodeid.startswith(ROOMS)
