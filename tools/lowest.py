"""What the package asks for directly, as `uv pip compile --resolution lowest-direct -` reads it.

    python -m tools.lowest [EXTRA...]

The packages of ROS are those of ROS_WHEELS; extras that name other extras are resolved.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from tools.ros_wheels import ROOT, chosen, run_requirements

_OWN = re.compile(r"timely_llm\[([\w,]+)\]")


def requirements(extras: list[str]) -> list[str]:
    """Return the requirements of the package and of some of its extras, each once.

    Raises:
        KeyError: there is no such extra.
    """
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)
    table: Mapping[str, list[str]] = project["project"]["optional-dependencies"]

    def of(extra: str) -> Iterator[str]:
        for line in table[extra]:
            if own := _OWN.fullmatch(line):
                for name in own[1].split(","):
                    yield from of(name)
            else:
                yield line

    found = [*project["tool"]["timely_llm"]["dependencies"], *run_requirements(chosen())]
    for extra in extras:
        found += of(extra)
    return list(dict.fromkeys(found))


def main() -> int:
    """Print them and return the exit status."""
    try:
        print(*requirements(sys.argv[1:]), sep="\n")
    except KeyError as error:
        print(f"lowest: there is no extra {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
