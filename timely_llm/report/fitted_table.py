"""Tables for terminals of any width: a table that is too wide becomes lines of names and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

READABLE = 12
"""Least width of a column of text, characters."""
INDENT = 2


class FittedTable(Table):
    """A table that shows all of its text without lines wider than the terminal.

    If its columns do not fit, each row becomes a block of lines `name: value` and an empty line.
    Blocks leave out empty values.

    Args:
        carries: an empty first cell repeats the first cell of the row above.
    """

    def __init__(self, *headers: Column | str, carries: bool = False, **settings: Any) -> None:
        super().__init__(*headers, **settings)
        self._carries = carries
        self._names: dict[int, str] = {}

    def name_column(self, name: str) -> None:
        """Set the name of the last column in blocks of lines, in place of its head."""
        self._names[len(self.columns) - 1] = name

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as a table if it fits, else as blocks of lines."""
        if self.needed_width(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            for line in self._lines(console, options.max_width):
                yield from line.render(console)
                yield Segment.line()

    def needed_width(self, console: Console, options: ConsoleOptions) -> int:
        """Return the least width of the table, characters."""
        wide = options.update(width=1_000_000)
        needed = 0
        for column in self.columns:
            cells = [column.header] if self.show_header else []
            sizes = [Measurement.get(console, wide, cell) for cell in (*cells, *column.cells)]
            least = max((size.minimum for size in sizes), default=0)
            most = max((size.maximum for size in sizes), default=0)
            if not column.no_wrap:
                most = max(least, min(most, READABLE))
            needed += max(most, column.min_width or 0, 1)  # rich gives an empty column a character
        return needed + self._frame_width()

    def _frame_width(self) -> int:
        count = len(self.columns)
        _, right, _, left = self.padding
        padding = count * (left + right)
        if self.collapse_padding:
            padding -= max(count - 1, 0) * min(left, right)
        if not self.pad_edge:
            padding -= left + right
        if self.box is None:
            return max(padding, 0)
        return max(padding, 0) + max(count - 1, 0) + (2 if self.show_edge else 0)

    def _lines(self, console: Console, width: int) -> Iterator[Text]:
        if self.title:
            yield from _folded(console, _text(console, self.title), width)
        names = [self._name(console, place) for place in range(len(self.columns))]
        above = Text()
        for cells in zip(*(list(column.cells) for column in self.columns), strict=True):
            values = [_text(console, cell) for cell in cells]
            if self._carries and values:
                values[0] = above = values[0] if values[0].plain.strip() else above
            for name, value in zip(names, values, strict=True):
                if value.plain.strip():
                    yield from _entry(console, name if self.show_header else "", value, width)
            yield Text()
        if self.caption:
            yield from _folded(console, _text(console, self.caption), width)

    def _name(self, console: Console, place: int) -> str:
        shown = _text(console, self.columns[place].header).plain
        return self._names.get(place) or " ".join(shown.split())


def _entry(console: Console, name: str, value: Text, width: int) -> Iterator[Text]:
    """Yield the lines of a value: beside its name if it fits, else below it."""
    whole = Text.assemble((f"{name}: ", "dim"), value) if name else value
    if "\n" not in value.plain and whole.cell_len <= width:
        yield whole
        return
    if name:
        yield from _folded(console, Text(f"{name}:", "dim"), width)
    indent = min(INDENT, max(width - 1, 0)) if name else 0
    for line in _folded(console, value, max(width - indent, 1)):
        yield Text.assemble(" " * indent, line)


def _folded(console: Console, text: Text, width: int) -> Iterator[Text]:
    for line in text.wrap(console, max(width, 1), overflow="fold", no_wrap=False):
        line.rstrip()
        yield line


def _text(console: Console, cell: Any) -> Text:
    if isinstance(cell, Text):
        return cell.copy()
    return console.render_str(str(cell))
