"""The text of docs/map.md."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tools.map import path, places
from tools.map.code import (
    PACKAGE,
    ROOT,
    details,
    folders,
    imported_rooms,
    modules,
    rooms,
    summary,
    words,
)

ORDER = (
    "core <- processes, identity <- skills <- policies <- engines, cloud <- serving <- dispatch"
    " <- progressive <- cluster <- robots <- traces <- profiling, benchmarks, conformance,"
    " histories <- experiments <- report, ros <- demo <- cli"
)
"""A room imports only rooms to its left; test/test_imports.py reads it in the document."""
TOOLS = ROOT / "tools"
PURE = ("core", "identity", "skills", "policies", "cloud", "serving", "dispatch", "progressive")

HEAD = """# Map

Written by `python -m tools.map > docs/map.md` from the code: imports, docstrings, and a plan that
runs. A test compares. A new module needs no line here; each room says in its `__init__.py` what
belongs into it.

Every deliverable has a due time and a worth. At each step of the engine a policy looks at all
deliverables and decides which take part. There is one loop (`admit -> step -> deliver`), one
contract for engines ([contract.py](../timely_llm/engines/contract.py)), one for policies
([contract.py](../timely_llm/policies/contract.py)), and two clocks: the wall for serving, a virtual
one for experiments.

## Where to change what

{places}

Adding something: [a policy](add_a_policy.md), [an engine](add_an_engine.md),
[an experiment](add_an_experiment.md), [a robot](add_a_robot.md).

## The path of a plan

A robot sends a `Plan` goal. The functions below run until its first segment is published. The
command that writes this page ran a plan and found them called in this order. Each arrow leaves the
room of the function in which the call was made. Calls 1 and 2 run in a ROS thread, and the last one
needs ROS: these three were not run. Each further step takes calls {turn} to {last} again.

{sequence}

{path}

The next segment is due when the robot will be idle: the end of the last one plus its predicted
duration. Until then the generation is suspended and keeps its KV, or runs ahead if the policy finds
room. Reports of the robot replace predicted times by real ones (`Reports.take` in
[serving/reports.py](../timely_llm/serving/reports.py)). At the end of the plan its last segment is
marked final, the result has the text and its timings, and the KV is free.

## The rooms

Arrows show imports; an arrow that follows from others is left out. A blue room imports neither ROS
nor torch, not even through another room. Only `ros` imports rclpy; only `engines/transformers`,
`engines/vllm`, `benchmarks/engine.py` and `cli/profiles/engine.py` import torch.
`test/test_imports.py` checks both, and this order, in which a room imports only rooms to its left:

`{order}`

{picture}
"""

FOOT = """
## Beside the package

| folder | holds |
|---|---|
| `msg`, `srv`, `action` | the ROS interfaces, from which the build generates modules |
| `launch`, `config`, `models`, `examples` | launch files, skill sets, models, programs |
| `test` | tests in the folders of the package; `test/system` starts real processes |
| `tools` | what maintainers run, as follows |

{tools}
"""


def document() -> str:
    """Return the document.

    Raises:
        MapError: the map names something that the code does not have.
    """
    numbers = {station.name: place for place, station in enumerate(path.STATIONS, 1)}
    head = HEAD.format(
        places=places.table(), path=path.table(), sequence=path.picture(), order=ORDER,
        picture=picture(), turn=numbers[path.AGAIN[0]], last=numbers[path.AGAIN[1]],
    )  # fmt: skip
    in_order = [name for names in ORDER.split(" <- ") for name in names.split(", ")]
    return (
        head
        + "".join(f"\n{room_section(room)}" for room in in_order)
        + FOOT.format(tools=maintainers_tools())
    )


def maintainers_tools() -> str:
    """Return a line for each tool."""
    lines = []
    for file in sorted([*TOOLS.glob("*.py"), *TOOLS.glob("*/__init__.py")]):
        name = file.parent.name if file.stem == "__init__" else file.stem
        if file.parent != TOOLS or file.stem != "__init__":
            lines.append(f"- [`{name}`](../{file.relative_to(ROOT)}): {words(file)}")
    return "\n".join(lines)


def picture() -> str:
    """Return the rooms and their imports as a Mermaid diagram."""
    imports = {room: imported_rooms(room) for room in rooms()}
    lines = ["```mermaid", "flowchart TD"]
    for room in imports:
        count = sum(len(modules(folder)) for folder in folders(room))
        kind = ":::pure" if room in PURE else ""
        lines.append(f'    {room}["{room}<br/>{count} modules"]{kind}')
    for room, others in imports.items():
        shown = others - {far for other in others for far in reached(other, imports)}
        lines += [f"    {room} --> {other}" for other in sorted(shown)]
    return "\n".join([*lines, "    classDef pure fill:#cfe2f3,stroke:#1f4e79,color:#000", "```"])


def reached(room: str, imports: Mapping[str, Set[str]]) -> set[str]:
    """Return the rooms that one imports, and those that these import."""
    found: set[str] = set()
    todo = [room]
    while todo:
        new = imports[todo.pop()] - found
        found |= new
        todo += new
    return found


def room_section(room: str) -> str:
    """Return what belongs into a room, and its modules."""
    folder = PACKAGE / room
    lines = [f"### {room}", "", summary(folder), "", details(folder), ""]
    for inner in folders(room):
        name = inner.relative_to(PACKAGE)
        words = "" if inner == folder else f" ({summary(inner).rstrip('.')})"
        files = ", ".join(
            f"[{file.stem}](../timely_llm/{file.relative_to(PACKAGE)})" for file in modules(inner)
        )
        lines.append(f"- `{name}`{words}: {files}")
    return "\n".join([*lines, ""])
