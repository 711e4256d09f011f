"""Time-aware serving of language-model plans and conversations to robots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timely_llm.ros.client import PlanClient, TalkClient

__all__ = ["PlanClient", "TalkClient", "__version__"]
__version__ = "0.2.0"


if not TYPE_CHECKING:  # a type checker would take every name for an attribute

    def __getattr__(name: str) -> Any:
        """Import a client when it is first used: most of the package needs no ROS."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from timely_llm.ros import client

        return getattr(client, name)
