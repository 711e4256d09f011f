from __future__ import annotations

import io

import pytest
from rich.console import Console

from test.demo.two_servers import run_until
from timely_llm.demo.server_rows import server_table

PACES = {"s1": "rtx4090-llama3-8b", "s2": "h100-llama3-8b"}


def rows(now_s: float, width: int = 100) -> dict[str, str]:
    """Return the line of each server."""
    console = Console(file=io.StringIO(), width=width)
    console.print(server_table(run_until(now_s), PACES, now_s, wide=width > 90))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return {line.split()[0]: line for line in lines[1:]}


@pytest.mark.parametrize("width", [80, 100])
def test_each_server_has_a_row_with_the_agents_that_it_works_for(width: int) -> None:
    both = rows(1.2, width)
    assert "alive" in both["s1"] and both["s1"].split()[-1] == "b"
    assert "alive" in both["s2"] and both["s2"].split()[-1] == "a"
    assert ("h100-llama3-8b" in both["s2"]) == (width == 100)
    assert "20 ms" in both["s1"]


def test_a_server_that_was_killed_is_lost_until_it_is_back() -> None:
    assert "lost 1.0 s" in rows(3.0)["s2"]
    assert "starts" in rows(4.5)["s2"]
    assert rows(4.5)["s1"].split()[-1] == "a", "its plan goes on at the other one"
    assert "alive" in rows(5.0)["s2"]
