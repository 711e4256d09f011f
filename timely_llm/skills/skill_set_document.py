"""docs/skill_sets.md: `python -m timely_llm.skills.skill_set_document > docs/skill_sets.md`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from timely_llm.resources import resource
from timely_llm.skills.choices import MAX_CHOICES
from timely_llm.skills.skill import Argument, Duration, Skill
from timely_llm.skills.skill_set import Example, SkillSet

SECTIONS: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("A skill set", SkillSet, "The whole file."),
    ("A skill", Skill, "Each entry of `skills`."),
    ("An argument", Argument, "Each entry of a skill's `arguments`."),
    ("A duration", Duration,
     "One of three forms: `polynomial`, with `spread` if known; `step_s` with `steps`; or"
     " `quantiles`. The last two depend on the scene and are predicted by their lower bound, so"
     " that the next segment is in time in the worst case. `timely-llm profile` fits them to"
     " what a robot took."),
    ("An example", Example, "Each entry of `examples`."),
)  # fmt: skip
"""Title, model and what it describes."""

HEAD = """# Skill sets

Written by `python -m timely_llm.skills.skill_set_document` from the model that reads the files; a
test compares. A skill set is a YAML file that says what a robot can do. From it come the prompt,
the grammar of its plans, the check of every call before it reaches the robot, and predicted
durations.

```
timely-llm skills new my_robot                 # writes my_robot.yaml, with comments
timely-llm skills check my_robot.yaml          # its prompt, its grammar, how its examples are cut
timely-llm skills check my_robot.yaml --plan "goto('door');"
timely-llm serve --engine simulated --skill-set my_robot.yaml    # answers with its examples
```

A mistake gets one sentence with the file, the line and the nearest name: `my_robot.yaml: line 12:
skills.go: unknown field 'duraton': did you mean 'duration'?`. A name that stands twice is refused:
a skill, an argument, a choice, a rule, an example, a key of YAML.
"""

CHOICES = f"""
## Choices

`choices: [A1, A2, B1]` names the only values of an argument, at most {MAX_CHOICES}. The prompt
names all of them, the grammar of `constrained` engines has no others, and a plan with another value
is malformed: `goto: shelf must be one of 'A1', 'A2', 'B1', not 'C9'`. Nothing of that statement
reaches the robot. In messages (`SkillArgument`) a text with choices has the type `CHOICE`; numbers
keep `INTEGER` and `NUMBER`. `choices` stand instead of `minimum`, `maximum` and `maximum_length`.

YAML takes some bare words for values: `on`, `off`, `yes`, `no`, `true`, `null`, `1`, `1:30`,
`2026-01-02`. As choices of a text they are refused with a sentence: put them in quotes, as in
`choices: ["on", "off", "1"]`.

A text stands in quotes in a plan: `goto('A1');`. `goto(A1);` is refused with `quote it, 'A1'`.
Plans of rules may write bare words.
"""

REGEX = """
## Plans in another language: `language: regex`

The `rules` of a skill set describe a script language of the robot's controller: regular
expressions, each for one kind of statement. A segment ends as soon as no further character could
change what the rules match. Two groups have a meaning:

| group | meaning |
|---|---|
| `(?P<skill>...)` | the name of the skill that the statement calls; it must be one of `skills` |
| `(?P<arguments>...)` | its arguments, separated by commas: numbers, quoted texts or bare words |

A rule without the group `skill` matches statements that call nothing: they take no time, and
`PlanClient.execute` hands their text to `otherwise=`. White space, `;` and `,` before a statement
are skipped. `timely-llm skills check` refuses rules from which no calls come, and warns about each
skill that no rule can call; a blocking skill among them never blocks.

This forklift is `examples/agv.yaml`:

```yaml
{example}```

`timely-llm skills check examples/agv.yaml --plan "GOTO P1; LIFT 0.2; END;"` cuts the plan into the
calls `GOTO('P1')`, `LIFT(0.2)` and a statement without a call.
"""


def document() -> str:
    """Return the whole document."""
    parts = [HEAD]
    for title, model, about in SECTIONS:
        parts.append(f"\n## {title}\n\n{about}\n\n")
        parts.append("| field | type | unit | default | example | meaning |\n")
        parts.append("|---|---|---|---|---|---|\n")
        parts += [row(name, field) for name, field in model.model_fields.items()]
    example = resource("examples/agv.yaml").read_text(encoding="utf-8")
    return "".join([*parts, CHOICES, REGEX.replace("{example}", example)])


def row(name: str, field: FieldInfo) -> str:
    """Return a field's line."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, Mapping) else {}
    example = str((field.examples or [""])[0])
    cells = (
        f"`{name}`", limited(type_of(field.annotation), field.metadata), str(extra.get("unit", "")),
        default_of(field), f"`{example}`", field.description or "",
    )  # fmt: skip
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def default_of(field: FieldInfo) -> str:
    """Return a field's default as it is written in YAML."""
    if field.is_required():
        return "needed"
    if field.default is None or field.default == "":
        return "none"
    if isinstance(field.default, tuple | dict) and not field.default:
        return "none"
    return f"`{json.dumps(field.default, ensure_ascii=False)}`"


def type_of(annotation: Any) -> str:
    """Return a type in the words of YAML's users."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return limited(type_of(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        kinds = [type_of(each) for each in arguments if each is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {type_of(arguments[0])}"
        return f"list of {len(arguments)}: {type_of(arguments[0])}"
    if origin is dict:
        return f"mapping of {type_of(arguments[0])} to {type_of(arguments[1])}"
    for title, model, _ in SECTIONS:
        if annotation is model:
            return f"[{title.split()[-1]}](#{title.lower().replace(' ', '-')})"
    return {bool: "true or false", int: "whole number", float: "number", str: "text"}[annotation]


def limited(kind: str, metadata: Iterable[Any]) -> str:
    """Return a type with what limits its values, in words."""
    unit = "entries" if kind.startswith(("list", "mapping")) else "characters"
    words = []
    for limit in (each for entry in metadata for each in getattr(entry, "metadata", [entry])):
        for name, said in (
            ("gt", "above {}"), ("ge", "at least {}"), ("lt", "below {}"), ("le", "at most {}"),
            ("max_length", f"at most {{}} {unit}"), ("min_length", f"at least {{}} {unit}"),
        ):  # fmt: skip
            if getattr(limit, name, None) is not None:
                words.append(said.format(getattr(limit, name)))
    return f"{kind} ({', '.join(words)})" if words else kind


if __name__ == "__main__":
    print(document(), end="")
