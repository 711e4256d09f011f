"""Skill sets: what a robot can do, read from YAML.

One file, five uses: the prompt, the stop checker's vocabulary, the check of arguments before
anything reaches a robot, the duration model and (where an engine can) constrained decoding.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from timely_llm.core.document_nodes import Size
from timely_llm.core.documents import read_document, read_text
from timely_llm.core.echo import quoted
from timely_llm.core.errors import SkillSetError
from timely_llm.core.text import name_problem
from timely_llm.skills.durations import Duration, Finite
from timely_llm.skills.rules import MAX_CHARACTERS, MAX_RULES, Rule
from timely_llm.skills.templates import NOTHING, check_template, fill, filled, one_line

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
LITERALS = frozenset(("True", "False", "true", "false"))
MAX_SIZE = Size(nodes=10_000, depth=16)
"""The largest skill set as a document; it is checked in less than 0.1 s."""
MAX_SKILLS = 256
MAX_ARGUMENTS = 16
MAX_LINES = 64
"""Lines of guidance, and examples."""
MAX_PROMPT_CHARACTERS = 32_768
"""Characters of the shared part of the prompt, all its lines together."""
_Word = Annotated[str, Field(max_length=64)]
_Line = Annotated[str, Field(max_length=2000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Argument(_Strict):
    """One argument of a skill: its type, unit and bounds."""

    name: _Word
    type: Literal["integer", "number", "text"]
    unit: _Word = ""
    minimum: Finite | None = None
    maximum: Finite | None = None
    maximum_length: Annotated[int, Field(ge=1, le=10_000)] = 200

    @field_validator("name", "unit")
    @classmethod
    def _stands_in_a_line(cls, name: str) -> str:
        problem = name_problem("it", name)
        if problem is not None:
            raise ValueError(problem)
        return name

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Argument:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum:g} is above maximum {self.maximum:g}")
        return self

    def problem(self, value: int | float | str) -> str | None:
        """Return what is wrong with `value` and what is allowed, or None if it is fine."""
        if self.type == "text":
            if not isinstance(value, str):
                return f"{self.name} must be a quoted text, not {quoted(value)}"
            if not 1 <= len(value) <= self.maximum_length:
                return (
                    f"{self.name} must have 1 to {self.maximum_length} characters, not {len(value)}"
                )
            return None
        if isinstance(value, str):
            return f"{self.name} must be a number, not the text {quoted(value)}"
        if isinstance(value, bool):
            return f"{self.name} must be a number, not {value}"
        if self.type == "integer" and not isinstance(value, int):
            return f"{self.name} must be a whole number, not {quoted(value)}"
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
    """One thing the robot can do.

    A blocking skill's return value is needed to go on with the plan: generation stops after the
    call, and the value is appended to the model's context (paper 001 §8).
    """

    description: _Line
    arguments: Annotated[tuple[Argument, ...], Field(max_length=MAX_ARGUMENTS)] = ()
    duration: Duration
    returns: Literal["nothing", "boolean", "number", "text"] = "nothing"
    blocking: bool = False

    @model_validator(mode="after")
    def _blocking_returns(self) -> Skill:
        if self.blocking and self.returns == "nothing":
            raise ValueError("a blocking skill returns something: set returns")
        return self

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
    """A robot's skills, and the fixed part of every prompt about them.

    Attributes:
        answer_format: what is appended to the model's context after a blocking call; {value} is
            what the call returned (paper 001 §8).
        recovery_format: the task of the new plan that is asked for when a segment failed; {task},
            {reason}, and if wanted {plan} and {done}, what was delivered and what was executed.
        language: where answers are cut: after the statements of plans in the package's language,
            after what the user's rules match, or after the sentences or paragraphs of a text.
        rules: regular expressions, each for one kind of statement (language regex).
        words_per_s: how fast a text is read, or spoken: then rather 3 (languages sentence and
            paragraph; paper 001 §7.1).
    """

    name: str
    description: _Line = ""
    language: Literal["minispec", "regex", "sentence", "paragraph"] = "minispec"
    prompt: str
    skills: Annotated[dict[str, Skill], Field(max_length=MAX_SKILLS)] = {}
    rules: Annotated[tuple[str, ...], Field(max_length=MAX_RULES)] = ()
    words_per_s: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 5.0
    guidance: Annotated[tuple[str, ...], Field(max_length=MAX_LINES)] = ()
    examples: Annotated[tuple[Example, ...], Field(max_length=MAX_LINES)] = ()
    answer_format: _Line = "=> {value}\n"
    recovery_format: _Line = (
        "{task}\n[E] You provided me with plan {plan}, but I failed because {reason}."
        " Execution history: {done}"
    )
    _rules: tuple[Rule, ...] = PrivateAttr(())

    @field_validator("answer_format")
    @classmethod
    def _answer_has_its_field(cls, text: str) -> str:
        return check_template(text, ["value"])

    @field_validator("recovery_format")
    @classmethod
    def _recovery_has_its_fields(cls, text: str) -> str:
        return check_template(text, ["task", "reason"], ["plan", "done"])

    @field_validator("rules")
    @classmethod
    def _rules_are_short(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        characters = sum(map(len, rules))
        if characters > MAX_CHARACTERS:
            raise ValueError(
                f"all rules together have {characters} characters, at most {MAX_CHARACTERS} are"
                " allowed"
            )
        return rules

    @model_validator(mode="after")
    def _prompt_is_short(self) -> SkillSet:
        characters = len(self.prompt_text())
        if characters > MAX_PROMPT_CHARACTERS:
            raise ValueError(
                f"prompt, skills, guidance and examples have {characters} characters together, at"
                f" most {MAX_PROMPT_CHARACTERS} are allowed"
            )
        return self

    @model_validator(mode="after")
    def _language_has_its_words(self) -> SkillSet:
        if (self.language == "regex") != bool(self.rules):
            raise ValueError("language regex needs rules, and rules need language regex")
        self._rules = tuple(_rule(n, text) for n, text in enumerate(self.rules, start=1))
        calls = any(rule.calls_skills for rule in self._rules)
        if not self.skills and (self.language == "minispec" or calls):
            raise ValueError("skills: at least one is needed for plans that call skills")
        return self

    @model_validator(mode="after")
    def _names_are_identifiers(self) -> SkillSet:
        for name in (self.name, *self.skills):
            if not IDENTIFIER.match(name):
                raise ValueError(
                    f"name {quoted(name)} must start with a letter and hold at most 64 letters,"
                    " digits and _"
                )
            if name in LITERALS:
                raise ValueError(f"name {quoted(name)} means a value in plans: choose another")
        return self

    @property
    def compiled_rules(self) -> tuple[Rule, ...]:
        """The rules, ready to match."""
        return self._rules

    def prompt_text(self) -> str:
        """Return the fixed part of the prompt: shared, pre-stored, computed once."""
        lines = [self.prompt.strip()]
        if self.skills:
            lines.append("Skills:")
            lines += [skill.signature(name) for name, skill in self.skills.items()]
        if self.guidance:
            lines += ["Rules:", *self.guidance]
        if self.examples:
            lines.append("Examples:")
            lines += [f"{e.task}\nPlan: {e.plan}" for e in self.examples]
        return "\n".join(lines) + "\n"

    def answer_text(self, value: str) -> str:
        """Return what the model reads after a blocking call that returned `value`."""
        return fill(self.answer_format, {"value": one_line(value)})

    def outside_words(self, text: str) -> str:
        """Return what `text` begins with, if that is an `answer_text`; else nothing."""
        return filled(self.answer_format, text)

    def recovery_text(self, task: str, plan: str, reason: str, done: str) -> str:
        """Return the task that asks for another plan after a segment failed.

        Args:
            task: what was asked first.
            plan: the text of what was delivered.
            reason: why the segment failed.
            done: the text of what was executed.
        """
        values = {
            "task": task,
            "plan": plan.strip() or NOTHING,
            "reason": one_line(reason, "of an unknown reason"),
            "done": done.strip() or NOTHING,
        }
        return fill(self.recovery_format, values)


def parse_skill_set(text: str, source: str = "skill set") -> SkillSet:
    """Return the skill set written in YAML `text`.

    Raises:
        SkillSetError: one line naming the place in `source` and what is allowed there.
    """
    return read_document(text, SkillSet, source, SkillSetError, max_size=MAX_SIZE)


def load_skill_set(path: str | Path) -> SkillSet:
    """Return the skill set in the YAML file at `path`.

    Raises:
        SkillSetError: the file cannot be read or is not a valid skill set.
    """
    return parse_skill_set(read_text(path, "skill set", SkillSetError), str(path))


def _rule(number: int, pattern: str) -> Rule:
    try:
        return Rule(number, pattern)
    except ValueError as error:
        raise ValueError(f"rules: rule {number}: {error}") from None
