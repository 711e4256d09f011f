"""Conversions between a server's view of itself and its message."""

from __future__ import annotations

from timely_llm import msg
from timely_llm.core.errors import RequestError
from timely_llm.core.text import quoted
from timely_llm.dispatch.contract import MOST_DUE, Due, ServerView


def load_message(view: ServerView, life: str, active: bool) -> msg.ServerLoad:
    """Return what a server says of itself as a message, without a stamp.

    Args:
        view: its name, its age and its round trip are left out.
        life: random text of this start of the server.
        active: the server takes requests.
    """
    return msg.ServerLoad(
        life=life,
        active=active,
        steps=[float(seconds) for seconds in view.steps_s],
        row=float(view.row_s),
        prompt_token=float(view.prefill_token_s),
        kv_tokens=view.kv_tokens,
        free_kv_tokens=view.free_kv_tokens,
        max_rows=view.max_rows,
        skill_sets=[
            msg.PinnedSkillSet(name=name, tokens=tokens) for name, tokens in view.skill_sets.items()
        ],
        kept=[
            msg.KeptConversation(agent=agent, conversation=name, tokens=tokens)
            for (agent, name), tokens in view.kept.items()
        ],
        rates=[float(rate) for rate in view.rates],
        due=[
            msg.DueSegment(
                due_in=float(one.due_in_s),
                tokens=float(one.tokens),
                weight=float(one.weight),
                grace=float(one.grace_s),
                prompt_tokens=one.prompt_tokens,
            )
            for one in view.due
        ],
        requests=[
            msg.ServedRequest(request_id=key, begun=key not in view.unstarted)
            for key in view.served or ()
        ],
    )


def server_view(
    message: msg.ServerLoad, name: str, rtt_s: float = 0.0, age_s: float = 0.0
) -> ServerView:
    """Return the view in a message.

    Args:
        message: from any node.
        name: of the server.
        rtt_s: seconds of a message to the server and back.
        age_s: seconds since the server made the message.

    Raises:
        RequestError: the view has an impossible number or too long a due list.
    """
    if len(message.due) > MOST_DUE:
        raise RequestError(
            f"the view of server {quoted(name)} has {len(message.due)} entries in its due list, at"
            f" most {MOST_DUE} are allowed"
        )
    return ServerView(
        name,
        tuple(message.steps),
        message.row,
        message.prompt_token,
        message.kv_tokens,
        message.free_kv_tokens,
        message.max_rows,
        {one.name: one.tokens for one in message.skill_sets},
        {(one.agent, one.conversation): one.tokens for one in message.kept},
        tuple(message.rates),
        tuple(
            Due(one.due_in, one.tokens, one.weight, one.grace, one.prompt_tokens)
            for one in message.due
        ),
        len(message.requests),
        frozenset(one.request_id for one in message.requests if not one.begun),
        rtt_s,
        age_s,
        tuple(one.request_id for one in message.requests),
        message.active,
    )
