"""Whether the generated interfaces of the tree at hand are those that are expected.

Argument: JSON of `definitions.python_fields` of all definitions. Output: true or false.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

EXPECTED: dict[str, Any] = json.loads(sys.argv[1])


def found() -> dict[str, Any]:
    """Return the same of the generated classes, and the names of interfaces that none expects."""
    made = {}
    for key, expected in EXPECTED.items():
        kind, _, name = key.partition("/")
        one: Any = import_module(f"timely_llm.{kind}")
        for part in name.split("."):
            one = getattr(one, part)
        one()  # loads the compiled side too
        made[key] = {
            "fields": [list(pair) for pair in one.get_fields_and_field_types().items()],
            "constants": {name: str(getattr(one, name)) for name in expected["constants"]},
        }
    return made


def extra() -> set[str]:
    """Return the generated interfaces that are not expected; rosidl's own have an underscore."""
    known = {key.split(".")[0] for key in EXPECTED}
    return {
        f"{kind}/{name}"
        for kind in ("msg", "srv", "action")
        for name in vars(import_module(f"timely_llm.{kind}"))
        if name[0].isupper() and "_" not in name and f"{kind}/{name}" not in known
    }


if __name__ == "__main__":
    print(json.dumps(found() == EXPECTED and not extra()))
