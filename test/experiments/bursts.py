"""A workload of bursts, as a file. Its outcomes differ between policies."""

from pathlib import Path

from test.experiments.workloads import job, trace
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Trace

SIZE = 9


def bursts(count: int = 4) -> Trace:
    """Return bursts of nine jobs, 5 s apart: of three, one is normal and two are urgent."""
    return trace(
        *(
            job(
                f"b{burst}j{place}",
                5.0 * burst + 0.001 * place,
                utility=URGENT if place % 3 else NORMAL,
                tokens=(8, 5, 5) if place % 3 == 1 else (4, 8, 3, 4),
                seconds=(3.0, 2.0),
                task=str(place % 3),
            )
            for burst in range(count)
            for place in range(SIZE)
        )
    )


def bursts_file(folder: Path) -> Path:
    """Write them into a folder and return the file."""
    file = folder / "bursts.jsonl"
    write_trace(bursts(), file)
    return file
