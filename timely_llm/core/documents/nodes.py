"""YAML within bounds: the size with aliases and merges expanded is known before construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from timely_llm.core.text import quoted

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_TEXT = f"{_STANDARD}str"
_MERGE = f"{_STANDARD}merge"
_KINDS = {"timestamp": "date", "int": "number", "float": "number", "bool": "truth value"}
MAX_SCALAR = 100
"""Most characters of a value that is no text: a number, a date, a truth value."""


class DocumentFault(Exception):
    """A document is refused; the message continues after the document's name."""


class DocumentTooLarge(DocumentFault):
    """A document is larger than allowed."""


class DuplicateKey(DocumentFault):
    """A mapping has a key twice."""


@dataclass(frozen=True)
class Size:
    """Size of a document, with aliases expanded.

    Attributes:
        nodes: values and keys.
        depth: nested levels of lists and mappings.
    """

    nodes: int
    depth: int


def bounded_document(text: str, most: Size) -> tuple[Any, yaml.Node | None]:
    """Return the value of a YAML document, and its nodes, which have line numbers.

    This composes nodes from the parser's events, since PyYAML's C composer overflows the stack at
    deep brackets. Merges and aliases cost nothing before construction: until then only their sizes
    are added up.

    Raises:
        DocumentFault: the document is larger than `most`, has a key twice, or an impossible value.
        Exception: the text is no YAML; PyYAML raises any kind.
    """
    loader = _Loader(text)
    try:
        node = _Composer(loader, most).document()
        return (None if node is None else loader.construct_document(node)), node
    finally:
        loader.dispose()


def _check_keys(keys: list[yaml.Node]) -> None:
    """Check that a mapping has each key once; YAML would take the last one.

    Raises:
        DuplicateKey: a key stands twice.
    """
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if (key.tag, key.value) in lines:
            raise DuplicateKey(
                f": line {line}: {quoted(key.value)} stands twice, first in line"
                f" {lines[key.tag, key.value]}: give each name once"
            )
        lines[key.tag, key.value] = line


class _Composer:
    """Makes nodes from events, and adds up their expanded sizes.

    Args:
        loader: source of the events and of nodes' tags.
        most: largest size of the document.
    """

    def __init__(self, loader: Any, most: Size) -> None:
        self._loader = loader
        self._most = most
        self._events = 0
        self._anchors: dict[str, tuple[yaml.Node, Size] | None] = {}

    def document(self) -> yaml.Node | None:
        """Return the only document's node; None if there is none."""
        events = self._all()
        next(events)  # the stream begins
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        node, _ = self._node(events, next(events), 1)
        next(events)  # the document ends
        if not isinstance(extra := next(events), yaml.StreamEndEvent):
            raise yaml.composer.ComposerError(
                None, None, "but found another document", extra.start_mark
            )
        return node

    def _all(self) -> Iterator[Any]:
        while self._loader.check_event():
            self._events += 1
            if self._events > 2 * self._most.nodes + 8:
                raise self._too_large()
            yield self._loader.get_event()

    def _node(self, events: Iterator[Any], event: Any, depth: int) -> tuple[yaml.Node, Size]:
        """Return the node that begins with an event, and its size.

        Args:
            events: the events after it.
            event: the node's first event.
            depth: level of the node.
        """
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        if depth > self._most.depth:
            raise self._too_deep()
        anchor = event.anchor
        if anchor is not None:
            if anchor in self._anchors:
                raise yaml.composer.ComposerError(
                    None, None, f"found duplicate anchor {anchor[:40]!r}", event.start_mark
                )
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: yaml.Node = self._scalar(event)
            size = Size(1, 1)
        elif isinstance(event, yaml.SequenceStartEvent):
            node, size = self._collection(events, event, depth, yaml.SequenceNode)
        else:
            node, size = self._collection(events, event, depth, yaml.MappingNode)
        if anchor is not None:
            self._anchors[anchor] = node, size
        return node, size

    def _alias(self, event: Any, depth: int) -> tuple[yaml.Node, Size]:
        if event.anchor not in self._anchors:
            raise yaml.composer.ComposerError(
                None, None, f"found undefined alias {event.anchor[:40]!r}", event.start_mark
            )
        known = self._anchors[event.anchor]
        if known is None:
            raise yaml.composer.ComposerError(
                None, None, f"{event.anchor[:40]!r} contains itself", event.start_mark
            )
        if depth + known[1].depth - 1 > self._most.depth:
            raise self._too_deep()
        return known

    def _scalar(self, event: Any) -> yaml.ScalarNode:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag != _TEXT and len(event.value) > MAX_SCALAR:
            raise DocumentTooLarge(
                f": line {event.start_mark.line + 1}: a value that is no text has"
                f" {len(event.value)} characters, at most {MAX_SCALAR} are allowed"
            )
        node = yaml.ScalarNode(
            tag, event.value, event.start_mark, event.end_mark, style=event.style
        )
        if tag.startswith(_STANDARD) and tag not in (_TEXT, _MERGE):
            try:
                self._loader.construct_object(node)
            except yaml.YAMLError:
                raise
            except Exception as error:  # KeyError for "!!bool maybe", ValueError for 2020-13-01
                raise DocumentFault(
                    f": line {event.start_mark.line + 1}: {quoted(event.value)} looks like a"
                    f" {_KINDS.get(tag.removeprefix(_STANDARD), 'value')} and is none: quote it"
                ) from error
        return node

    def _collection(
        self, events: Iterator[Any], event: Any, depth: int, kind: type[Any]
    ) -> tuple[yaml.Node, Size]:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(kind, None, event.implicit)
        made: list[yaml.Node] = []
        nodes, levels = 1, 0
        end = yaml.SequenceEndEvent if kind is yaml.SequenceNode else yaml.MappingEndEvent
        while not isinstance(inner := next(events), end):
            node, size = self._node(events, inner, depth + 1)
            made.append(node)
            nodes, levels = nodes + size.nodes, max(levels, size.depth)
            if nodes > self._most.nodes:
                raise self._too_large()
        values: Any = made
        if kind is yaml.MappingNode:
            values = list(zip(made[::2], made[1::2], strict=True))
            _check_keys(made[::2])
        node = kind(tag, values, event.start_mark, inner.end_mark, flow_style=event.flow_style)
        return node, Size(nodes, levels + 1)

    def _too_large(self) -> DocumentTooLarge:
        return DocumentTooLarge(
            f" has more than {self._most.nodes} values and keys, the most allowed; an alias counts"
            " as all that it stands for"
        )

    def _too_deep(self) -> DocumentTooLarge:
        return DocumentTooLarge(
            f" is nested more than {self._most.depth} levels deep, the most allowed"
        )
