"""Short runs of the experiments with sketches."""

from __future__ import annotations

from typing import Any

from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import RunDocument
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def short(name: str, **given: Any) -> RunDocument:
    """Return a document of one seed, after checks that hold for each experiment."""
    found = experiment(name)
    given = {"seeds": 1, "jobs": 1, "minutes": 0.2, **given}
    options = found.options(**{k: v for k, v in given.items() if v is not None})
    made = found.run(options, lambda done, total: None)
    assert set(made.keys) <= made.rows[0].keys()
    assert set(made.measures) <= set().union(*made.rows)
    assert set().union(*made.rows) <= {"seed", *made.definitions, *made.keys}
    assert name in render([LoadedRun.of(made)])
    return made
