"""Progress of long commands: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn


@contextlib.contextmanager
def bar(
    name: str, *columns: ProgressColumn, transient: bool = True
) -> Iterator[Callable[[float, float | None], None]]:
    """Yield a function that takes what is done and of how much, None if that is not known.

    Args:
        name: what is worked at, before the bar.
        columns: of the bar.
        transient: the bar is gone after the work.
    """
    page = Console(stderr=True)
    if not page.is_terminal:  # a bar that is switched off leaves an empty line in older releases
        yield lambda done, total: None
        return
    with Progress(
        TextColumn("{task.description}"), *columns, console=page, transient=transient
    ) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
