"""What errors of ROS itself say to users."""

from __future__ import annotations

import re

PLACE = re.compile(r",? at /\S+\.c(pp)?:\d+")


def reason(error: Exception) -> str:
    """Return an error's words on one line, without the places in the sources of ROS."""
    words = PLACE.sub("", str(error)).removeprefix("failed to initialize rcl: ")
    return " ".join(words.split())
