"""Traces as files, of the kind that their names say."""

from __future__ import annotations

from pathlib import Path

from timely_llm.traces.bags import read_bag, write_bag
from timely_llm.traces.jsonl import read_jsonl, write_jsonl
from timely_llm.traces.model import Trace, TraceError

KINDS = ".jsonl (JSON lines), .mcap (a bag's file) or no ending (a bag's folder)"

PUBLISHED = (".json", ".csv")
"""Endings of traces as others publish them."""


def check_kind(path: Path) -> None:
    """Find out whether a path says what kind of trace it is.

    Raises:
        TraceError: it does not.
    """
    if path.suffix not in (".jsonl", ".mcap", "") and not path.is_dir():
        if path.suffix in PUBLISHED:
            raise TraceError(
                f"{path}: the name of a trace ends with {KINDS}, not {path.suffix}: a published one"
                " is imported first, by `timely-llm trace import`"
            )
        raise TraceError(f"{path}: the name of a trace ends with {KINDS}, not {path.suffix}")


def read_trace(path: str | Path) -> Trace:
    """Return the trace in a file or in the folder of a bag.

    Raises:
        TraceError: one sentence; it cannot be read or is no trace.
    """
    path = Path(path)
    check_kind(path)
    if not path.exists():
        raise TraceError(f"there is no trace {path}")
    return read_jsonl(path) if path.suffix == ".jsonl" else read_bag(path)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to a file, or as a bag to a new folder.

    Raises:
        TraceError: it cannot be written.
    """
    path = Path(path)
    check_kind(path)
    (write_jsonl if path.suffix == ".jsonl" else write_bag)(trace, path)
