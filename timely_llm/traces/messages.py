"""This package's messages as rosbags reads and writes them: types from the .msg files, no ROS."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from timely_llm.resources import resource
from timely_llm.traces.model import TraceError


@cache
def type_store() -> Any:
    """Return ROS's message types and all of ours.

    Raises:
        TraceError: rosbags is not installed.
    """
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError as error:
        raise TraceError("bags need the Python package rosbags: pip install rosbags") from error
    store = get_typestore(Stores.ROS2_KILTED)
    for file in sorted(resource("msg").glob("*.msg")):
        text = file.read_text(encoding="utf-8")
        store.register(get_types_from_msg(text, f"timely_llm/msg/{file.stem}"))
    return store


def decoded(data: bytes, kind: str, path: Path) -> Any:
    """Return the message in CDR bytes that nobody vouches for.

    Args:
        data: as they were recorded.
        kind: name of the message's type.
        path: the bag, for the error.

    Raises:
        TraceError: they are no such message.
    """
    try:
        return type_store().deserialize_cdr(data, kind)
    except Exception as error:  # whatever broken bytes lead to
        raise TraceError(
            f"{path}: a message of {kind} is damaged, or of another version of this type"
        ) from error
