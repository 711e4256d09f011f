"""Import of Azure's LLM inference traces (Patel et al. 2024): arrivals and lengths."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Conversation, Trace, TraceError

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_LINE_CHARACTERS = 1_000

# 2023: 2023-11-16 18:15:46.6805900; 2024: 2024-05-10 00:00:00.009930+00:00, or without fraction.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?\Z")
_AzureRow = tuple[int, int, int]


def read_azure(path: Path, limit: int = MAX_REQUESTS) -> Trace:
    """Return the conversations of an AzureLLMInferenceTrace, of 2023 or of 2024.

    It is a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens. The first row
    arrives at 0 s. The file has no agents, so each row gets one of its own. Rows without generated
    tokens are left out.

    Args:
        path: the file.
        limit: most rows, from the first of the file on; the week of 2024 has millions.

    Raises:
        TraceError: the file cannot be read or is not such a trace; the sentence names the line.
    """
    try:
        everything = list(_rows(path, limit))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"cannot read the trace {path}: {reason}") from error
    rows = [row for row in everything if row[2] > 0]
    if not rows:
        raise TraceError(f"{path} has no conversations")
    rows.sort(key=lambda row: row[0])
    begin_ns = rows[0][0]
    conversations = tuple(
        Conversation(
            id=str(number),
            arrival_s=(time_ns - begin_ns) / 1e9,
            agent=f"person_{number}",
            prompt_tokens=prompt,
            output_tokens=output,
        )
        for number, (time_ns, prompt, output) in enumerate(rows)
    )
    source = f"imported from {path.name}"
    if len(everything) == limit:
        source += f", its first {limit} rows"
    return Trace(path.stem, source, (), conversations)


def _rows(path: Path, limit: int) -> Iterator[_AzureRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_lines(file, path))
        header = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in COLUMNS if name.lower() not in header]
        if missing:
            raise TraceError(f"{path} lacks the column {missing[0]}: it needs {', '.join(COLUMNS)}")
        places = [header.index(name.lower()) for name in COLUMNS]
        for count, row in enumerate(row for row in reader if row):
            if count == limit:
                return
            try:
                time, prompt, output = (row[place].strip() for place in places)
                yield _nanoseconds(time), int(prompt), int(output)
            except (IndexError, ValueError) as error:
                reason = "a column is missing" if isinstance(error, IndexError) else error
                raise TraceError(f"{path}, line {reader.line_num}: {reason}") from error


def _lines(file: Iterator[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TraceError(
                f"{path}, line {number} is longer than {MAX_LINE_CHARACTERS} characters"
            )
        yield line


def _nanoseconds(text: str) -> int:
    """Return nanoseconds since 1970, exact; datetime alone would lose the last digit.

    Raises:
        ValueError: the text is not a time.
    """
    found = _TIME.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a time such as 2024-05-10 00:00:00.009930+00:00")
    whole, fraction, zone = found.groups()
    time = datetime.fromisoformat(whole + (zone or "+00:00").replace("Z", "+00:00"))
    seconds = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (seconds.days * 86_400 + seconds.seconds) * 10**9 + int((fraction or "").ljust(9, "0"))
