"""This package's messages in rosbags, without ROS: types from the .msg files."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from timely_llm.core.requirements import need, ros_distribution
from timely_llm.resources import resource
from timely_llm.traces.model import TraceError

PACKAGE = "timely_llm"
_DISTRIBUTION = re.compile(r"^( *ros_distro: ).*$", re.MULTILINE)


@cache
def type_store() -> Any:
    """Return the message types of ROS and of this package.

    Raises:
        RequirementError: rosbags is not installed.
    """
    need("a bag", "bags")
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    name = f"ROS2_{ros_distribution().upper()}"
    store = get_typestore(Stores.__members__.get(name, Stores.ROS2_JAZZY))
    for file in sorted(resource("msg").glob("*.msg")):
        text = file.read_text(encoding="utf-8")
        store.register(get_types_from_msg(text, f"timely_llm/msg/{file.stem}"))
    return store


def name_distribution(folder: Path) -> None:
    """Replace rosbags' name by the running ROS distribution in a complete bag's metadata."""
    file = folder / "metadata.yaml"
    text = file.read_text(encoding="utf-8")
    named, found = _DISTRIBUTION.subn(rf"\g<1>{ros_distribution()}", text)
    assert found == 1, text
    part = file.with_suffix(".part")
    part.write_text(named, encoding="utf-8")
    part.replace(file)


def stamp(time_ns: int) -> Any:
    """Return a time, nanoseconds since 1970, as a message."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return type_store().types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds)


def unsigned() -> Any:
    """Return the signature of a message that is not signed."""
    import numpy as np

    kind = type_store().types["timely_llm/msg/Signature"]
    return kind(session=0, counter=0, code=np.zeros(0, np.uint8))


@cache
def check_definition(kind: str, definition: str, path: Path) -> None:
    """Check that a bag's definition of a type of this package has the same fields as ours.

    Args:
        kind: name of the type; types of other packages are not checked.
        definition: the bag's .msg text with all its dependencies; empty if unknown.
        path: the bag, for the error.

    Raises:
        TraceError: the definition has other fields, or is damaged.
    """
    if not kind.startswith(f"{PACKAGE}/") or not definition:
        return
    store = type_store()
    from rosbags.typesys import get_types_from_msg

    try:
        recorded = get_types_from_msg(definition, kind)
    except Exception as error:  # a broken definition may raise any error
        raise TraceError(f"{path}: the definition of {kind} is damaged") from error
    for name, (_, fields) in recorded.items():  # constants may differ
        ours = store.fielddefs.get(name)
        if name.startswith(f"{PACKAGE}/") and (ours is None or ours[1] != fields):
            raise TraceError(
                f"{path} was recorded with another version of the interfaces ({name} differs):"
                " convert it to JSON lines with `timely-llm trace convert` of that version"
            )


def decoded(data: bytes, kind: str, path: Path) -> Any:
    """Return the message in untrusted CDR bytes.

    Args:
        data: the recorded bytes.
        kind: name of the message's type.
        path: the bag, for the error.

    Raises:
        TraceError: the bytes are not such a message.
    """
    try:
        return type_store().deserialize_cdr(data, kind)
    except Exception as error:  # broken bytes may raise any error
        raise TraceError(
            f"{path}: a message of {kind} is damaged, or of another version of this type"
        ) from error
