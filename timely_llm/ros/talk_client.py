"""`from timely_llm.ros.talk_client import TalkClient`: a name of `timely_llm.ros.client`."""

from timely_llm.robots.client.pending import PlanClientError, PlanTimeout, ServerLost
from timely_llm.ros.client.talk import Answer, TalkClient

__all__ = ["Answer", "PlanClientError", "PlanTimeout", "ServerLost", "TalkClient"]
