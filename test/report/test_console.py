import io
from pathlib import Path

from rich.console import Console

from test.experiments.bursts import bursts_file
from test.report.test_terminal import SAVED
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Paper, Row, RunDocument
from timely_llm.report.console import WIDE, show


def shown(run: RunDocument, terminal: bool = False) -> str:
    page = io.StringIO()
    width = 100 if terminal else WIDE
    show(run, Console(file=page, width=width, force_terminal=terminal, no_color=True))
    return page.getvalue()


def row(policy: str, seed: int, **values: float | None) -> Row:
    return {"load": 1, "policy": policy, "seed": seed, "share_served": 1.0, **values}


def cells(text: str, first: str) -> list[list[str]]:
    """Return the cells of the lines of tables that begin with the cell `first`."""
    lines = (line.strip().strip("|").split("|") for line in text.splitlines() if "|" in line)
    return [[cell.strip() for cell in line] for line in lines if line[0].strip() == first]


RUN = RunDocument(
    experiment="e",
    question="Which one?",
    keys=("load", "policy"),
    measures=("utility", "waiting_s", "unknown"),
    definitions={"utility": "what it is worth"},
    rows=(
        row("fcfs", 0, utility=1.0, waiting_s=0.012),
        row("fcfs", 1, utility=2.0, waiting_s=0.012),
        {**row("drops", 0, utility=0.5, waiting_s=250.0), "share_served": 0.5},
        {**row("drops", 1, utility=0.5, waiting_s=None), "share_served": 0.5},
    ),
    papers=(Paper(title="Figure 1", note="A bar.", rows=({"policy": "fcfs", "utility": 0.74},)),),
    notes=("Be careful.",),
    timelines=(SAVED,),
)


def test_cells_are_means_with_intervals_and_the_papers_numbers_stand_below() -> None:
    text = shown(RUN)
    assert cells(text, "policy") == [["policy", "utility", "waiting (s)"]]
    assert cells(text, "fcfs") == [["fcfs", "1.50 ±6.35", "0.012 ±0.000"]]
    assert cells(text, "paper: fcfs") == [["paper: fcfs", "0.74", ""]]
    assert text.index("load 1\n") < text.index("paper: fcfs") < text.index("| drops")


def test_times_are_in_brackets_where_requests_were_not_served() -> None:
    assert cells(shown(RUN), "drops") == [["drops", "0.50 ±0.00", "(250)"]]


def test_everything_that_is_needed_to_judge_the_numbers_is_shown() -> None:
    text = shown(RUN)
    for words in ("Which one?", "- utility: what it is worth", "- Be careful.", "Figure 1: A bar."):
        assert words in text
    assert "    71 normal model    ███" in text


def test_kinds_of_tasks_are_columns_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = experiment("timelyllm-drone")
    options = found.options(
        trace=bursts_file(tmp_path), loads=(1, 2), seeds=1, policies=("fcfs",), jobs=1
    )
    run = found.run(options, lambda done, total: None)
    text = shown(run)
    heads = cells(text, "utility of task")
    assert heads == [["utility of task", "0", "1 !", "2 !"]] * 2, "a table for each load"
    by_task = {r["task"]: r["utility"] for r in run.task_rows if r["load"] == 2}
    shown_ones = [float(cell) for cell in cells(text, "fcfs")[5][1:]]
    assert [round(float(by_task[task] or 0.0), 2) for task in "012"] == [
        round(value, 2) for value in shown_ones
    ]


def test_untrusted_names_do_not_command_the_terminal() -> None:
    hostile = "[red]\x1b[2J|x"
    rows = tuple({**one, "policy": hostile} for one in RUN.rows)
    text = shown(RUN.model_copy(update={"rows": rows, "notes": ("\x1b[2J",)}), terminal=True)
    assert "\x1b[2J" not in text
    assert "[red] [2J|x" in text
