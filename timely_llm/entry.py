"""The first lines of every process: from here on a signal ends it in one sentence.

Python's packages are checked before any of them is imported.

`python -m timely_llm.entry plan_server --ros-args ...` runs a node. What takes time to import is
imported after the signals' handler is there.
"""

import os
import sys
from importlib import import_module
from types import ModuleType

from timely_llm.processes import signals

COMPLETION = "_TIMELY_LLM_COMPLETE"
"""Set while a shell asks how a command line goes on: an error would stand in the user's line."""
NODES = {
    "plan_server": "timely_llm.ros.server.node:main",
    "dispatcher": "timely_llm.ros.dispatch.node:main",
    "recorder": "timely_llm.ros.bags.recorder:main",
    "robot_fleet": "timely_llm.demo.clients:robot_fleet",
    "talkers": "timely_llm.demo.clients:talkers",
}
"""The nodes' executables, and the functions that run them."""


def main() -> None:
    """Run the command line; does not return."""
    signals.end_at_once("timely-llm")
    if COMPLETION in os.environ:
        import_module("timely_llm.completion").main()
    module = _checked("timely-llm", "timely_llm.cli.main", "REQUIRED")
    if module is None:
        sys.exit(1)
    module.main()


def node(name: str) -> int:
    """Run one of `NODES` with the arguments of the process; return the exit status."""
    signals.end_at_once(name, status=0)
    place, _, function = NODES[name].partition(":")
    module = _checked(name, place, "NODES")
    status: int = 1 if module is None else getattr(module, function)()
    return status


def _checked(name: str, module: str, table: str) -> ModuleType | None:
    """Import a module; None: a package is missing or too old, and a sentence was printed.

    Args:
        name: what the process is called in the sentence.
        module: the module.
        table: name of the table of the packages that it needs.
    """
    from timely_llm.core import requirements  # takes a while, too

    try:
        requirements.check(getattr(requirements, table))
        try:
            return import_module(module)
        except ImportError as error:
            if (known := requirements.explained(error)) is None:
                raise
            raise known from error
    except requirements.RequirementError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def _run_named() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in NODES:
        print(f"timely_llm.entry: name a node, one of {', '.join(NODES)}", file=sys.stderr)
        return 2
    name = sys.argv.pop(1)
    return node(name)


if __name__ == "__main__":
    sys.exit(_run_named())
