"""Files that come with the package, in a source tree as in every form of installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from timely_llm.core.errors import TimelyError

EMBEDDED_MODEL = "models/tiny_planner"
"""The resource that is the model of a server or command without a given model."""

_PACKAGE = Path(__file__).resolve().parent


class ResourceError(TimelyError):
    """A file that should have come with the package is missing."""


def resource(relative: str) -> Path:
    """Return the path of a file or folder that comes with the package.

    Looks beside the Python package first, which is the source tree, then below
    `<prefix>/share/timely_llm` for each prefix of AMENT_PREFIX_PATH, the prefix that the package
    was installed into, and the prefix of the Python interpreter.

    Args:
        relative: as in the source tree, for example "config/skill_sets/drone.yaml".

    Raises:
        ResourceError: it is in none of these places.
    """
    places = list(_places())
    for place in places:
        if (place / relative).exists():
            return place / relative
    looked_in = ", ".join(str(place) for place in places)
    raise ResourceError(f"{relative} of timely_llm is missing: install the package ({looked_in})")


def _places() -> Iterator[Path]:
    """Yield the folders that hold config/, launch/ and models/, the nearest first."""
    if (_PACKAGE.parent / "package.xml").exists():
        yield _PACKAGE.parent
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    for prefix in dict.fromkeys([*prefixes, *_PACKAGE.parents, Path(sys.prefix)]):
        if (share := prefix / "share" / _PACKAGE.name).is_dir():
            yield share
