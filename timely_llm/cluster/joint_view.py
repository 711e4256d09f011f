"""What several replicas say of themselves, as one server says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from timely_llm.dispatch.contract import MOST_DUE, ServerView
from timely_llm.dispatch.load import ROWS


def joint_view(name: str, views: Sequence[ServerView]) -> ServerView:
    """Return the view of replicas that share the work evenly.

    A step of all replicas has their rows together: each computes a part of them, in the time of a
    step of its own.

    Args:
        name: of the server.
        views: those of the replicas, at least one.
    """
    count = len(views)
    rows = range(1, min(ROWS, sum(one.max_rows for one in views)) + 1)
    due = sorted((due for one in views for due in one.due), key=lambda due: due.due_in_s)
    return replace(
        views[0],
        name=name,
        steps_s=tuple(fmean(one.step_s(-(-row // count)) for one in views) for row in rows),
        row_s=fmean(one.row_s for one in views) / count,
        prefill_token_s=fmean(one.prefill_token_s for one in views) / count,
        kv_tokens=sum(one.kv_tokens for one in views),
        free_kv_tokens=sum(one.free_kv_tokens for one in views),
        max_rows=sum(one.max_rows for one in views),
        skill_sets={key: tokens for one in views for key, tokens in one.skill_sets.items()},
        kept={key: tokens for one in views for key, tokens in one.kept.items()},
        rates=tuple(rate for one in views for rate in one.rates),
        due=tuple(due[:MOST_DUE]),
    )
