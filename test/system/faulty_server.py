"""A plan server with faults: a request or a name that is evil makes one callback raise."""

import sys
from collections.abc import Callable
from typing import Any

from timely_llm.ros import conversions
from timely_llm.ros.server import node
from timely_llm.serving.server.registration import SkillSets
from timely_llm.serving.server.server import Server

EVIL = "evil"


def breaks(owner: Any, name: str, evil: Callable[..., bool], what: str = "") -> None:
    """Let a function raise for evil arguments."""
    whole = getattr(owner, name)

    def broken(*arguments: Any) -> Any:
        if evil(*arguments):
            raise ZeroDivisionError(f"a fault in {what or name} \ud800\nsecond line")
        return whole(*arguments)

    setattr(owner, name, broken)


breaks(conversions, "plan_request", lambda message, *_: message.agent == EVIL)
breaks(
    conversions.PLAN_REQUEST,
    "message",
    lambda request: request.agent == "evil-accepted",
    "request_message",
)
breaks(
    conversions.PLAN_RESULT,
    "message",
    lambda result, *action: bool(action) and result.agent == "evil-result",
    "plan_result",
)
breaks(conversions, "execution_report", lambda message: message.agent == EVIL)
breaks(Server, "unregister", lambda server, name: name == EVIL)
breaks(SkillSets, "register", lambda sets, yaml, *_: yaml == EVIL)

if __name__ == "__main__":
    sys.exit(node.main())
