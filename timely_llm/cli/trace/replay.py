"""`timely-llm trace replay`: a trace against a running server, with robots and people."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

from timely_llm.cli import progress
from timely_llm.cli.options import (
    EXISTING_FILE,
    WAIT,
    OutputFile,
    at_server,
    need_ros,
)
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import count_of
from timely_llm.traces.files import read_trace
from timely_llm.traces.lines import MAX_REQUESTS

if TYPE_CHECKING:
    from timely_llm.experiments.recorded.replay_script import ReplayScript
    from timely_llm.experiments.results.document import RunDocument
    from timely_llm.ros.bags.replay import Replayed

LATENESS = {
    "late_p50_ms": "how long after its time a request was asked, milliseconds: median",
    "late_p99_ms": "the same, 99th percentile",
    "late_max_ms": "the same, the longest",
}

ENDS = {
    "UNKNOWN_SKILL_SET": "the server does not know their skill set: it needs --skill-set",
    "LOST": "the server knows nothing of them any more, and did not say how they ended",
    "UNFINISHED": "they were in work when the replay was ended",
}


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--live", is_flag=True, help="Use a running server; required.")
@click.option("--by", type=click.Choice(["action", "topic"]), default="action",
              help="Send actions, as robots do, or messages, as a played bag does.")  # fmt: skip
@click.option("--speed", type=click.FloatRange(0.01, 1000.0), default=1.0,
              help="Speed of arrivals; durations of robots stay as they are.")  # fmt: skip
@click.option("--load", type=click.IntRange(1, 1000), default=1,
              help="How often each job is asked, each time by another agent; conversations are"
                   " asked once.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, MAX_REQUESTS), default=MAX_REQUESTS,
              show_default="all", help="First requests of the trace.")  # fmt: skip
@click.option("--skill-set", "skill_files", type=EXISTING_FILE, multiple=True,
              help="File of a skill set of your own; may be given several times.")  # fmt: skip
@at_server
@WAIT
@click.option("--json", "json_file", type=OutputFile(), help="Write the same as JSON to this file.")
def replay(
    file: Path, live: bool, by: str, speed: float, load: int, limit: int,
    skill_files: tuple[Path, ...], server: str, namespace: str, domain: int | None,
    wait_s: float, json_file: Path | None,
) -> None:  # fmt: skip
    """Send the requests of the trace FILE to a running server at their times; robots execute plans.

    Simulated robots take the durations that the trace measured, where it has any. An answer has at
    most as many tokens as in the trace. A prompt without a text is replaced by one of about as many
    tokens. The trace's lines are published on /timely_llm/trace, so that a recording of the replay
    can be scored without the trace.
    """
    if not live:
        raise click.UsageError(
            "replay needs --live and a running server: in virtual time a trace is replayed by"
            " `timely-llm experiment timelyllm-drone --trace FILE`, or timelyllm-arm for arms"
        )
    need_ros()
    from timely_llm.experiments.recorded.replay_script import script
    from timely_llm.experiments.results.document import write_run
    from timely_llm.experiments.sources import shipped_skill_sets
    from timely_llm.processes.children import Interrupts
    from timely_llm.report.console import console, show
    from timely_llm.ros.bags.replay import Target, replay
    from timely_llm.skills.skill_set import load_skill_set

    own = {made.name: made for made in map(load_skill_set, skill_files)}
    what = script(read_trace(file), {**shipped_skill_sets(), **own}, load, speed, limit)
    target = Target(server, namespace, domain, by == "topic", wait_s)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Interrupts() as interrupts,
        progress.bar("replay", *columns, transient=False) as update,
    ):
        replayed = replay(what, target, lambda: not interrupts.received, update)
    if not replayed.late_s:
        interrupts.check()
    document = scored(what, replayed, by, load, speed)
    show(document, console())
    if json_file is not None:
        write_run(document, json_file)
        Console(soft_wrap=True).print(f"Wrote {json_file}", markup=False)
    interrupts.check()
    if replayed.problem:
        raise ConfigurationError(
            f"{replayed.problem}: {replayed.unasked} of {len(replayed.late_s) + replayed.unasked}"
            " requests were not asked"
        )


def scored(what: ReplayScript, replayed: Replayed, by: str, load: int, speed: float) -> RunDocument:
    """Return what came of a replay in the form of an experiment's document."""
    from timely_llm.experiments.recorded.score import LIVE_DEFINITIONS
    from timely_llm.experiments.results.document import RunDocument
    from timely_llm.experiments.results.lanes import TALK_MEASURES
    from timely_llm.experiments.sweep import MEASURES, Scored

    names: dict[str, str | bool | int | float | None] = {
        "trace": what.trace.name,
        "load": load,
        "speed": speed,
    }
    made = Scored.of(replayed.run, names)
    lateness = {
        name: round(1e3 * float(np.percentile(replayed.late_s, share)), 4)
        for name, share in zip(LATENESS, (50, 99, 100), strict=True)
    }
    row, known = {**made.row, **lateness}, LIVE_DEFINITIONS | LATENESS
    ends = ", ".join(f"{count} {end}" for end, count in replayed.results.most_common())
    return RunDocument(
        experiment="replay",
        question="What do those who ask get when the trace is replayed against a running server?",
        command=shlex.join(["timely-llm", *sys.argv[1:]]),
        profile="the engine of the running server",
        setup={
            "asked_by": by,
            "agents": len(what.trace.agents),
            "span_s": round(replayed.run.span_s, 3),
            "results": ends,
            "generated_tokens": replayed.run.generated_tokens,
        },
        keys=tuple(names),
        measures=(*MEASURES, *TALK_MEASURES, *LATENESS),
        definitions={name: meaning for name, meaning in known.items() if name in row},
        rows=(row,),
        task_rows=made.task_rows,
        notes=tuple(notes(what, replayed)),
    )


def notes(what: ReplayScript, replayed: Replayed) -> Iterator[str]:
    """Yield what is not in the rows, a sentence each."""
    for reason, count in what.left_out.items():
        yield f"{count} were left out: {reason}"
    if given := sum(job.given for job in what.trace.jobs):
        plans = count_of(given, "plan was", "plans were")
        yield f"{plans} written by hand: a server takes them only with accept_plans"
    if replayed.unasked:
        yield f"{replayed.unasked} were not asked any more when the replay was ended"
    for end, meaning in ENDS.items():
        if replayed.results[end]:
            yield f"{replayed.results[end]} {end}: {meaning}"
