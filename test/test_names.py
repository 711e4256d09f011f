from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "timely_llm"
GENERATED = ("msg", "srv", "action")


def test_no_class_name_stands_for_two_things() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE)
        if place.parts[0] in GENERATED:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(f"{place}:{node.lineno}")
    assert len(defined) > 300
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}
