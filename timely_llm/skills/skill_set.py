"""Skill sets: what a robot can do, read from YAML.

One file, five uses: the prompt, the stop checker's vocabulary, the check of arguments before
anything reaches a robot, the duration model and (where an engine can) constrained decoding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    field_validator,
    model_validator,
)

from timely_llm.core.documents.nodes import Size
from timely_llm.core.documents.problems import FieldError
from timely_llm.core.documents.read import read_document, read_text
from timely_llm.core.errors import SkillSetError
from timely_llm.core.text import quoted
from timely_llm.skills.fields import NUMBER, documented
from timely_llm.skills.rules import MAX_CHARACTERS, MAX_RULES, Rule
from timely_llm.skills.skill import Line, Skill, first_repeated

MAX_VALUE_CHARACTERS = 1000
"""Most characters of a tool output; more are cut off."""

NOTHING = "nothing"

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNSAFE = frozenset(("Cc", "Cs", "Zl", "Zp"))


def check_template(text: str, needed: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return `text` if it has each needed field once, and no others than `more`.

    Raises:
        ValueError: it has not.
    """
    found, wanted = _FIELD.findall(text), list(needed)
    for name in wanted:
        if found.count(name) != 1:
            raise ValueError(f"must contain {{{name}}} once, not {found.count(name)} times")
    for name in found:
        if name not in (allowed := [*wanted, *more]):
            words = ", ".join(f"{{{each}}}" for each in allowed)
            raise ValueError(f"must not contain {{{name}}}: allowed are {words}")
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with its fields replaced; braces in values mean nothing."""
    return _FIELD.sub(lambda match: values[match[1]], template)


def filled(template: str, text: str) -> str:
    """Return the beginning of `text` that is the template with one field filled in, or nothing."""
    before, after = _FIELD.split(template)[::2]
    if not text.startswith(before):
        return ""
    end = text.find(after, len(before)) if after else len(text)
    return text[: end + len(after)] if end >= 0 else ""


def one_line(text: str, otherwise: str = NOTHING) -> str:
    """Return tool output as one line of at most `MAX_VALUE_CHARACTERS`, `otherwise` if it is empty.

    What could end the line or cannot be encoded becomes a space.
    """
    cut = text[:MAX_VALUE_CHARACTERS]
    clean = "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in cut)
    return clean.strip() or otherwise


IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
LITERALS = frozenset(("True", "False", "true", "false"))
MAX_SIZE = Size(nodes=10_000, depth=16)
"""The largest skill set as a document; it is checked in less than 0.1 s."""
MAX_SKILLS = 256
MAX_RETURNED_TEXT = 40
"""Characters of a text that a plan returns."""
MAX_LINES = 64
"""Lines of guidance, and examples."""
MAX_PROMPT_CHARACTERS = 32_768
"""Characters of the shared part of the prompt, all its lines together."""


class _SkillSetModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Example(_SkillSetModel):
    """A task and the plan that answers it, shown to the model."""

    task: Annotated[str, documented("What is asked.", '"Task: [A] Fetch the load of shelf A1."')]
    plan: Annotated[
        str,
        documented(
            "The plan that answers it; after a blocking call what it returned, in `answer_format`.",
            "\"goto('A2');scan();=> pallet 17\\nlift(30);->True;\"",
        ),
    ]


class SkillSet(_SkillSetModel):
    """A robot's skills, and the fixed part of every prompt about them."""

    name: Annotated[
        str,
        documented(
            "What requests call the skill set: a letter, then at most 63 letters, digits and _.",
            "amr",
        ),
    ]
    description: Annotated[Line, documented("One line for lists.", "warehouse robot")] = ""
    language: Annotated[
        Literal["minispec", "regex", "sentence", "paragraph"],
        documented(
            "Where answers are cut: after the statements of plans in the package's language, after"
            " what `rules` match, or after the sentences or paragraphs of a text.",
            "minispec",
        ),
    ] = "minispec"
    prompt: Annotated[
        str, documented("The first words of every prompt.", "You control a warehouse robot.")
    ]
    skills: Annotated[
        dict[str, Skill],
        documented(
            "What plans may call, by name: a letter, then at most 63 letters, digits and _.",
            "{dock: {description: drive home, duration: {polynomial: [5]}}}",
            max_length=MAX_SKILLS,
        ),
    ] = {}
    rules: Annotated[
        tuple[str, ...],
        documented(
            "Regular expressions, each for one kind of statement (language `regex`).",
            '["(?P<skill>DOCK);"]',
            max_length=MAX_RULES,
        ),
    ] = ()
    words_per_s: Annotated[
        float,
        NUMBER,
        documented(
            "How fast a text is read, or spoken: then rather 3 (languages `sentence` and"
            " `paragraph`; Ling et al. 2024, §7.1).",
            "3.0", "words/s", gt=0, le=1000, allow_inf_nan=False,
        ),
    ] = 5.0  # fmt: skip
    guidance: Annotated[
        tuple[str, ...],
        documented(
            "Lines of the prompt after the skills.",
            '["Every statement ends with ;"]',
            max_length=MAX_LINES,
        ),
    ] = ()
    examples: Annotated[
        tuple[Example, ...],
        documented(
            "Tasks with their plans: the end of the prompt, and the answers of the simulated"
            " engine.",
            '[{task: Charge., plan: "dock();->True;"}]',
            max_length=MAX_LINES,
        ),
    ] = ()
    answer_format: Annotated[
        Line,
        documented(
            "What the model reads after a blocking call; `{value}` is what it returned"
            " (Ling et al. 2024, §8).",
            '"-> {value}\\n"',
        ),
    ] = "=> {value}\n"
    recovery_format: Annotated[
        Line,
        documented(
            "The task of the new plan after a segment failed: `{task}`, `{reason}`, and if wanted"
            " `{plan}` and `{done}`, what was delivered and what was executed.",
            '"{task} (not possible: {reason})"',
        ),
    ] = (
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
            place = "rules" if self.rules else "language"
            raise FieldError("language regex needs rules, and rules need language regex", place)
        self._rules = tuple(_rule(n, text) for n, text in enumerate(self.rules, start=1))
        calls = any(rule.calls_skills for rule in self._rules)
        if not self.skills and (self.language == "minispec" or calls):
            raise FieldError("at least one is needed for plans that call skills", "skills")
        return self

    @model_validator(mode="after")
    def _names_are_identifiers(self) -> SkillSet:
        places = [("name",), *(("skills", name) for name in self.skills)]
        for name, place in zip((self.name, *self.skills), places, strict=True):
            fault = name_fault(name)
            if fault is not None:
                raise FieldError(fault, *place)
        return self

    @model_validator(mode="after")
    def _nothing_stands_twice(self) -> SkillSet:
        if (again := first_repeated(self.rules)) is not None:
            raise FieldError("the rule stands twice: give each rule once", "rules", again)
        examples = [(example.task.strip(), example.plan.strip()) for example in self.examples]
        if (again := first_repeated(examples)) is not None:
            raise FieldError("the example stands twice: give each once", "examples", again)
        return self

    @property
    def compiled_rules(self) -> tuple[Rule, ...]:
        """The rules, ready to match."""
        return self._rules

    @cached_property
    def longest_text(self) -> int:
        """Characters of the longest text that a skill takes, or that a plan returns."""
        arguments = (a for skill in self.skills.values() for a in skill.arguments)
        return max(MAX_RETURNED_TEXT, *(a.longest for a in arguments if a.type == "text"), 0)

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

    def tool_output(self, text: str) -> str:
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


def name_fault(name: str) -> str | None:
    """Return what is wrong with the name of a skill or a skill set; None if it is fine."""
    if not IDENTIFIER.match(name):
        return (
            f"name {quoted(name)} must start with a letter and hold at most 64 letters, digits"
            " and _"
        )
    if name in LITERALS:
        return f"name {quoted(name)} means a value in plans: choose another"
    return None


def _rule(number: int, pattern: str) -> Rule:
    try:
        return Rule(number, pattern)
    except ValueError as error:
        raise FieldError(f"rule {number}: {error}", "rules", number - 1) from None
