"""Fitted durations in a skill set's YAML: its comments and its order stay."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from timely_llm.core.errors import SkillSetError
from timely_llm.skills.skill import Duration
from timely_llm.skills.skill_set import parse_skill_set


def with_durations(text: str, durations: Mapping[str, Duration], source: str) -> str:
    """Return a skill set's YAML with new durations for some of its skills.

    Comments about a changed duration are marked as older; see `with_older_comments`. Skills that
    share a duration by an anchor are separated if only some of them change.

    Args:
        text: the YAML of a valid skill set.
        durations: new durations, by skill.
        source: name of the text in errors.

    Raises:
        SkillSetError: the durations cannot be written without other changes.
    """
    old = parse_skill_set(text, source)
    wanted = {name: durations.get(name, skill.duration) for name, skill in old.skills.items()}
    changed = [name for name in durations if durations[name] != old.skills[name].duration]
    if changed:
        text = with_older_comments(text, changed)
    yaml = _yaml(text)
    document = yaml.load(text)
    skills = document["skills"]
    for name in changed:
        if any(key == "duration" for key, _ in skills[name].non_merged_items()):
            skills[name]["duration"] = _written(yaml, wanted[name])
    # A duration inherited through a merge key has changed with its owner, or not at all.
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
    """Return a duration in one line, with quoted shares."""
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
    """Return a number that YAML 1.1 reads as a number: 8.0e-7, not 8e-07."""
    if isinstance(value, int):
        return value
    digits, _, power = repr(value).partition("e")
    if not power:
        return value
    digits = digits if "." in digits else f"{digits}.0"
    return yaml.load(f"{digits}e{int(power):+d}")


OLDER = "before the fit: "
"""Prefix of comments about a duration after its fit."""
FITTED = "# Fitted since then by timely-llm profile: "
"""Prefix of the line that is added to a file's head if that mentions durations."""
_TIME = re.compile(
    r"\d\s*(s|ms|sec|secs|min)\b|second|minute|duration|takes|measur|guess|estimat", re.IGNORECASE
)
_COMMENT = re.compile(r"([\]},:\s]*?(?:\*[^\s,\]}]+[\]},\s]*?)?)((?:^|\s+)#\s*)(\S.*)?$")


@dataclass(frozen=True)
class _Entry:
    """The place of a skill's duration in a text; lines count from 0.

    Attributes:
        skill: lines of the skill; the first has its key.
        column: column of the skill's key.
        first: line of the key `duration`; -1 if the skill shares the duration of another.
        begin: column at which the key `duration` ends.
        last: line at which its value ends.
        end: column at which its value ends.
        value: node of the value; None if it is an alias.
    """

    skill: range
    column: int
    first: int = -1
    begin: int = 0
    last: int = -1
    end: int = 0
    value: yaml.Node | None = None


def with_older_comments(text: str, names: Collection[str]) -> str:
    """Return an equivalent YAML of a skill set, with comments that other durations do not falsify.

    Comments beside, inside and directly above a duration get the prefix `before the fit:`, and so
    do other comments of its skill that mention time. A duration of several lines becomes one line.
    A head that mentions durations gets a line with the names of the skills.

    Args:
        text: the YAML of a valid skill set.
        names: the skills with new durations.
    """
    lines = text.splitlines()
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    ends = _ends(root)
    for entry in sorted(_entries(root, names, lines), key=lambda entry: -entry.skill.start):
        for number in entry.skill:
            if entry.first <= number <= entry.last:
                continue
            code, comment = _parted(lines[number], ends.get(number, 0))
            if comment and (_TIME.search(comment) or _stands_above(lines, number, entry.first)):
                lines[number] = f"{code}# {_older(comment)}"
        above = entry.skill.start - 1
        while above >= 0 and _is_comment(lines[above], -1):
            if _is_comment(lines[above], entry.column):
                break  # a comment of the previous skill
            code, comment = _parted(lines[above], 0)
            if _TIME.search(comment):
                lines[above] = f"{code}# {_older(comment)}"
            above -= 1
        if entry.first >= 0:
            _mark(lines, entry, ends)
    return _with_head(lines, root, names) + ("\n" if text.endswith("\n") else "")


def _mark(lines: list[str], entry: _Entry, ends: dict[int, int]) -> None:
    """Mark the comments beside and inside a duration."""
    comments = []
    for number in range(entry.first, entry.last + 1):
        code, comment = _parted(lines[number], ends.get(number, 0))
        comments += [comment] if comment else []
        if number == entry.last:
            rest = code[entry.end :].rstrip()
    if entry.value is not None and (entry.first < entry.last or not _in_brackets(entry.value)):
        key = lines[entry.first][: entry.begin]
        loader = yaml.SafeLoader("")
        value = loader.construct_document(entry.value)
        flow = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
        lines[entry.first : entry.last + 1] = [f"{key}: {flow}{rest}"]
    else:
        lines[entry.first] = _parted(lines[entry.first], ends.get(entry.first, 0))[0].rstrip()
    if comments:
        lines[entry.first] += f"  # {_older('; '.join(comments))}"


def _older(comment: str) -> str:
    return comment if comment.startswith(OLDER.strip()) else OLDER + comment


def _parted(line: str, end: int) -> tuple[str, str]:
    """Return a line's code and its comment without `#`; both may be empty.

    Args:
        line: the line.
        end: column at which its last value or key ends.
    """
    found = _COMMENT.match(line, min(end, len(line)))
    if found is None or not found[3]:
        return line, ""
    return line[: found.start(2)] + found[2].partition("#")[0], found[3].rstrip()


def _stands_above(lines: list[str], number: int, first: int) -> bool:
    """Return whether a line is one of the comments directly above a duration."""
    return number < first and all(lines[n].lstrip().startswith("#") for n in range(number, first))


def _with_head(lines: list[str], root: yaml.Node, names: Collection[str]) -> str:
    """Return the text; its head names the skills if it mentions durations."""
    end = root.start_mark.line
    head = [n for n in range(end) if lines[n].startswith("#")]
    old = next((n for n in head if lines[n].startswith(FITTED)), None)
    known = lines[old].removeprefix(FITTED).rstrip(".").split(", ") if old is not None else []
    line = FITTED + ", ".join(dict.fromkeys([*known, *names])) + "."
    if old is not None:
        lines[old] = line
    elif names and any(_TIME.search(lines[n]) for n in head):
        lines.insert(head[-1] + 1, line)
    return "\n".join(lines)


def _entries(root: yaml.Node, names: Collection[str], lines: list[str]) -> Iterator[_Entry]:
    """Yield the places of the skills' durations."""
    skills = _value(root, "skills")
    for key, skill in [] if skills is None else skills.value:
        if key.value not in names or not isinstance(skill, yaml.MappingNode):
            continue
        start, column = key.start_mark.line, key.start_mark.column
        if skill.start_mark.index < key.start_mark.index:  # an alias of a whole skill
            yield _Entry(range(start, start + 1), column)
            continue
        stop = max(start, *(leaf.end_mark.line for leaf in _own_leaves(skill))) + 1
        while stop < len(lines) and _is_comment(lines[stop], column):
            stop += 1
        for name, value in skill.value:
            if name.value == "duration":
                first, begin = name.start_mark.line, name.end_mark.column
                if value.start_mark.index < name.start_mark.index:  # an alias
                    yield _Entry(range(start, stop), column, first, begin, first)
                    break
                leaves = list(_leaves(value))
                last = max(leaf.end_mark.line for leaf in leaves)
                end = max(n.end_mark.column for n in leaves if n.end_mark.line == last)
                yield _Entry(range(start, stop), column, first, begin, last, end, value)
                break
        else:
            yield _Entry(range(start, stop), column)


def _own_leaves(skill: yaml.MappingNode) -> Iterator[yaml.Node]:
    """Yield the leaves of a skill without those of aliases."""
    if skill.flow_style:
        yield skill
    for name, value in skill.value:
        yield name
        if value.start_mark.index > skill.start_mark.index:
            yield from _leaves(value)


def _is_comment(line: str, column: int) -> bool:
    """Return whether a line is a comment that is indented more than a column."""
    code = line.lstrip()
    return code.startswith("#") and len(line) - len(code) > column


def _value(node: yaml.Node, name: str) -> yaml.MappingNode | None:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.value == name and isinstance(value, yaml.MappingNode):
            return value
    return None


def _in_brackets(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _leaves(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield the scalars and flow collections of a node: YAML marks their ends."""
    if isinstance(node, yaml.ScalarNode) or _in_brackets(node):
        yield node
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _leaves(each)
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for each in pair:
                yield from _leaves(each)


def _ends(root: yaml.Node) -> dict[int, int]:
    """Return the column at which the last value or key of each line ends."""
    found: dict[int, int] = {}
    for leaf in _leaves(root):
        line = leaf.end_mark.line
        found[line] = max(found.get(line, 0), leaf.end_mark.column)
    return found
