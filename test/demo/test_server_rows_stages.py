from __future__ import annotations

import io

from rich.console import Console

from test.report.stages import BLOCKING
from timely_llm.core.events.history import History
from timely_llm.core.events.schema import StepEvent
from timely_llm.demo.server_rows import recent_use, stage_table


def history() -> History:
    made = History()
    made.add(StepEvent(0.0, 0.6, ("a",), BLOCKING))
    made.add(StepEvent(5.0, 0.6, ("a",), BLOCKING._replace(idle_s=(0.3, 0.2))))
    return made


def test_each_stage_has_a_row_of_the_last_seconds() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(stage_table(recent_use(history(), 6.0)))
    assert isinstance(console.file, io.StringIO)
    _, first, second = console.file.getvalue().splitlines()
    assert first.split()[0] == "1" and "33%" in first and "50%" in first
    assert "17% in use" in first and "in use" not in second


def test_an_engine_of_one_stage_has_no_rows() -> None:
    assert recent_use(history(), 9.0) == []
    one = History()
    one.add(StepEvent(0.0, 0.6, ("a",)))
    assert recent_use(one, 0.5) == []
