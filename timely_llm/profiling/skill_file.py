"""Writing durations into a skill set's YAML, with its comments and its order."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from timely_llm.core.errors import SkillSetError
from timely_llm.skills.durations import Duration
from timely_llm.skills.skill_set import parse_skill_set


def with_durations(text: str, durations: Mapping[str, Duration], source: str) -> str:
    """Return a skill set's YAML with new durations for some skills; the others keep theirs.

    Also where skills share a duration by an anchor: then only some of them may change.

    Args:
        text: the YAML, a valid skill set.
        durations: by skill.
        source: what errors call the text.

    Raises:
        SkillSetError: it cannot be written without changing something else.
    """
    old = parse_skill_set(text, source)
    wanted = {name: durations.get(name, skill.duration) for name, skill in old.skills.items()}
    yaml = _yaml(text)
    document = yaml.load(text)
    skills = document["skills"]
    for name in durations:
        if any(key == "duration" for key, _ in skills[name].non_merged_items()):
            skills[name]["duration"] = _written(yaml, wanted[name])
    # What is inherited through a merge key may have changed with its owner, or not at all.
    now = parse_skill_set(_dumped(yaml, document), source).skills
    for name, duration in wanted.items():
        if now[name].duration != duration:
            skills[name]["duration"] = _written(yaml, duration)
    result = _dumped(yaml, document)
    new = parse_skill_set(result, source)
    expected = {n: s.model_copy(update={"duration": wanted[n]}) for n, s in old.skills.items()}
    if new != old.model_copy(update={"skills": expected}):
        raise SkillSetError(
            f"{source}: durations cannot be written into it, its skills share more than durations:"
            " give each skill a duration of its own"
        )
    return result


def _yaml(text: str) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 100_000
    _, indent, offset = load_yaml_guess_indent(text)
    if indent is not None and offset is not None:
        yaml.indent(mapping=2, sequence=indent, offset=offset)
    return yaml


def _dumped(yaml: YAML, document: Any) -> str:
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _written(yaml: YAML, duration: Duration) -> CommentedMap:
    """Return a duration as it is written: in one line, its shares quoted."""
    fields = duration.model_dump(exclude_none=True)
    written = CommentedMap()
    for name, value in fields.items():
        if isinstance(value, dict):
            inner = CommentedMap(
                (DoubleQuotedScalarString(f"{share:g}"), _number(yaml, seconds))
                for share, seconds in sorted(value.items())
            )
            inner.fa.set_flow_style()
            written[name] = inner
        elif isinstance(value, tuple):
            numbers = CommentedSeq([_number(yaml, each) for each in value])
            numbers.fa.set_flow_style()
            written[name] = numbers
        else:
            written[name] = _number(yaml, value)
    written.fa.set_flow_style()
    return written


def _number(yaml: YAML, value: int | float) -> Any:
    """Return a number so that YAML 1.1 reads it as one: 8.0e-7, not 8e-07."""
    if isinstance(value, int):
        return value
    digits, _, power = repr(value).partition("e")
    if not power:
        return value
    digits = digits if "." in digits else f"{digits}.0"
    return yaml.load(f"{digits}e{int(power):+d}")
