"""Skill sets: what a robot can do, read from YAML.

One file, five uses: the prompt, the stop checker's vocabulary, the check of arguments before
anything reaches a robot, the duration model and (where an engine can) constrained decoding.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents import load_document, read_document
from timely_llm.core.errors import SkillSetError
from timely_llm.skills.durations import Duration, Finite

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
LITERALS = frozenset(("True", "False", "true", "false"))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Argument(_Strict):
    """One argument of a skill: its type, unit and bounds."""

    name: str
    type: Literal["integer", "number", "text"]
    unit: str = ""
    minimum: Finite | None = None
    maximum: Finite | None = None
    maximum_length: Annotated[int, Field(ge=1, le=10_000)] = 200

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Argument:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum:g} is above maximum {self.maximum:g}")
        return self

    def problem(self, value: int | float | str) -> str | None:
        """Return what is wrong with `value` and what is allowed, or None if it is fine."""
        if self.type == "text":
            if not isinstance(value, str):
                return f"{self.name} must be a quoted text, not {value!r}"
            if not 1 <= len(value) <= self.maximum_length:
                return (
                    f"{self.name} must have 1 to {self.maximum_length} characters, not {len(value)}"
                )
            return None
        if isinstance(value, str):
            return f"{self.name} must be a number, not the text {value!r}"
        if isinstance(value, bool):
            return f"{self.name} must be a number, not {value}"
        if self.type == "integer" and not isinstance(value, int):
            return f"{self.name} must be a whole number, not {value!r}"
        low = -float("inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        if not low <= value <= high:
            return f"{self.name} must be {self.allowed()}, not {value}"
        return None

    def allowed(self) -> str:
        """Return the allowed values in words, such as "10 to 500 cm"."""
        if self.minimum is None and self.maximum is None:
            return f"any {self.type} {self.unit}".strip()
        low = "" if self.minimum is None else f"{self.minimum:g}"
        high = "" if self.maximum is None else f"{self.maximum:g}"
        words = (
            f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
        )
        return f"{words} {self.unit}".strip()


class Skill(_Strict):
    """One thing the robot can do."""

    description: str
    arguments: tuple[Argument, ...] = ()
    duration: Duration
    returns: Literal["nothing", "boolean", "number", "text"] = "nothing"

    def signature(self, name: str) -> str:
        """Return the skill's line in the prompt."""
        names = ", ".join(a.name for a in self.arguments)
        bounds = "".join(f", {a.name} {a.allowed()}" for a in self.arguments if a.type != "text")
        return f"{name}({names}): {self.description}{bounds}"


class Example(_Strict):
    """A task and the plan that answers it, shown to the model."""

    task: str
    plan: str


class SkillSet(_Strict):
    """A robot's skills, and the fixed part of every prompt about them."""

    name: str
    description: str = ""
    language: Literal["minispec"] = "minispec"
    prompt: str
    skills: dict[str, Skill] = Field(min_length=1)
    guidance: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    @model_validator(mode="after")
    def _names_are_identifiers(self) -> SkillSet:
        for name in (self.name, *self.skills):
            if not IDENTIFIER.match(name):
                raise ValueError(
                    f"name {name!r} must start with a letter and hold at most 64 letters,"
                    " digits and _"
                )
            if name in LITERALS:
                raise ValueError(f"name {name!r} means a value in plans: choose another")
        return self

    def prompt_text(self) -> str:
        """Return the fixed part of the prompt: shared, pre-stored, computed once."""
        lines = [self.prompt.strip(), "Skills:"]
        lines += [skill.signature(name) for name, skill in self.skills.items()]
        if self.guidance:
            lines += ["Rules:", *self.guidance]
        if self.examples:
            lines.append("Examples:")
            lines += [f"{e.task}\nPlan: {e.plan}" for e in self.examples]
        return "\n".join(lines) + "\n"


def parse_skill_set(text: str, source: str = "skill set") -> SkillSet:
    """Return the skill set written in YAML `text`.

    Raises:
        SkillSetError: one line naming the place in `source` and what is allowed there.
    """
    return read_document(text, SkillSet, source, SkillSetError)


def load_skill_set(path: str | Path) -> SkillSet:
    """Return the skill set in the YAML file at `path`.

    Raises:
        SkillSetError: the file cannot be read or is not a valid skill set.
    """
    return load_document(path, SkillSet, "skill set", SkillSetError)
