"""Clients of a plan server: `PlanClient` for plans, `TalkClient` for conversations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timely_llm.core.errors import SkillFailed
    from timely_llm.robots.client.call_log import CallLog
    from timely_llm.robots.client.execution import Executed, MadeCall, Progress
    from timely_llm.robots.client.open_plan import Execution
    from timely_llm.robots.client.pending import PlanClientError, PlanTimeout, ServerLost
    from timely_llm.robots.client.plan_task import PlanTask
    from timely_llm.ros.client.plan import PlanClient
    from timely_llm.ros.client.talk import Answer, TalkClient

__all__ = [
    "Answer", "CallLog", "Executed", "Execution", "MadeCall", "PlanClient", "PlanClientError",
    "PlanTask", "PlanTimeout", "Progress", "ServerLost", "SkillFailed", "TalkClient",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the two clients need different modules."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "talk" if name in ("Answer", "TalkClient") else "plan"
    return getattr(import_module(f"{__name__}.{module}"), name)
