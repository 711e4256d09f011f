"""A plan server with faults: whatever is called evil makes one of its callbacks raise."""

import sys
from collections.abc import Callable
from typing import Any

from timely_llm.ros import conversions, plan_server
from timely_llm.serving.server import Server

EVIL = "evil"


def breaks(owner: Any, name: str, evil: Callable[..., bool]) -> None:
    """Let a function raise for what is evil."""
    whole = getattr(owner, name)

    def broken(*arguments: Any) -> Any:
        if evil(*arguments):
            raise ZeroDivisionError(f"a fault in {name} \ud800\nsecond line")
        return whole(*arguments)

    setattr(owner, name, broken)


breaks(conversions, "plan_request", lambda message, *_: message.agent == EVIL)
breaks(conversions, "request_message", lambda request: request.agent == "evil-accepted")
breaks(conversions, "plan_result", lambda result: result.agent == "evil-result")
breaks(conversions, "execution_report", lambda message: message.agent == EVIL)
breaks(Server, "unregister", lambda server, name: name == EVIL)
breaks(Server, "register", lambda server, yaml, *_: yaml == EVIL)

if __name__ == "__main__":
    sys.exit(plan_server.main())
