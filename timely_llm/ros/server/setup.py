"""The plan server's parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.slo import TEXT, SloClass, parse_slo_class
from timely_llm.engines.paces import PACES
from timely_llm.engines.registry import ENGINES
from timely_llm.policies.micro_batches.policy import Mode
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES
from timely_llm.ros.parameters import NodeParameter
from timely_llm.ros.process import EXECUTOR
from timely_llm.ros.server.claim import FIND_S
from timely_llm.ros.server.help import CLOUD
from timely_llm.serving.busy import GATES

DEFAULT_LEAD_S = 0.5
DEFAULT_SLO_CLASSES = [
    "voice:rate=8", "text:rate=10", "real-time:rate=20,deadline=1.5,weight=100",
]  # fmt: skip

CONFIGURED = (
    NodeParameter("max_model_len", 2048, "most tokens of one prompt and its answer", 64, 1_000_000),
    NodeParameter("kv_tokens", 131_072, "tokens of KV cache for all requests", 256, 100_000_000),
    NodeParameter("max_tokens", 256, "most tokens of a plan if its request sets none", 1, 4096),
    NodeParameter("max_answer_tokens", 256, "most tokens of an answer if its request sets none",
              1, MAX_TOKENS),
    NodeParameter("max_rows", 64, "most requests in one step", 1, 4096),
    NodeParameter("max_step_tokens", 2048, "most tokens computed in one step", 16, 1_000_000),
    NodeParameter("policy", DEFAULT_POLICY, "decides which requests take part in each step",
              choices=tuple(POLICIES), reference="my_module:MyPolicy"),
    NodeParameter("policy_options", [""],
              "options of the policy, each as name=value, such as people=2 for deadline; they win"
              " over the parameters timely_* and lead_s"),
    NodeParameter("micro_batching", Mode.AUTO.value,
              "engines in stages: how steps are cut into micro-batches; auto: cycle, but off for"
              " policies that bound their own batches; off: each step takes all that it can; cycle:"
              " the number with the shortest cycle; docs/pipeline.md has the others; no effect on"
              " an engine of one stage", choices=tuple(Mode)),
    NodeParameter("timely_rows", 8,
              "timely, edf, fcfs-segments: most requests in one step; timely+slice: most plans",
              1, 4096),
    NodeParameter("timely_admissions", 1,
              "timely, timely+slice, edf, fcfs-segments: most plans joining at one step", 1, 4096),
    NodeParameter("timely_segment_tokens", 10,
              "timely, timely+slice, edf, fcfs-segments: tokens of the longest segment", 1, 4096),
    NodeParameter("lead_s", DEFAULT_LEAD_S,
              "timely, timely+slice, edf, fcfs-segments, and plans written by hand: seconds on"
              " the wall before its robot will be idle at which a suspended plan goes on;"
              " negative: whenever there is room", -1.0, 3600.0),
    NodeParameter("accept_plans", False,
              "take plans written by hand, which come with their requests (given_plan)"),
    NodeParameter("constrained", False,
              "let the model choose only tokens that a skill set's grammar allows"),
    NodeParameter("prose_answers", "auto",
              "let the model choose only words and punctuation in answers to people, nothing of a"
              " plan; auto: if its config.json says prose_answers, as the embedded model's does",
              choices=("auto", "always", "never")),
    NodeParameter("slo_classes", DEFAULT_SLO_CLASSES,
              "service levels of answers: a name, a colon and any of ttft (s), rate (tokens/s),"
              " deadline (s), weight; requests that name none have `text`"),
    NodeParameter("max_conversations", 64,
                  "most conversations with KV that is kept for their next turn",
              0, 100_000),
    NodeParameter("conversation_timeout_s", 600.0,
              "drop a kept conversation after this time without a turn, seconds", 0.0, 86_400.0),
    NodeParameter("max_requests", 256, "most requests served at a time", 1, 100_000),
    NodeParameter("max_requests_per_agent", 16, "most requests of one agent served at a time",
              1, 100_000),
    NodeParameter("agent_requests_per_s", 0.0,
                  "most requests of one agent a second, in the long run; 0: no limit, neither for"
                  " one agent nor for new ones", 0.0, 1e6),
    NodeParameter("agent_burst", 10, "with agent_requests_per_s: requests that an agent may send at"
                  " once after a pause", 1, 100_000),
    NodeParameter("new_agents_requests_per_s", 4.0,
                  "with agent_requests_per_s: most requests a second of all agents together of"
                  " which none has ended well; 0: no limit, and new names evade that of one agent",
                  0.0, 1e6),
    NodeParameter("new_agents_burst", 64,
                  "with agent_requests_per_s: requests that all these agents together may send at"
                  " once after a pause", 1, 100_000),
    NodeParameter("agent_worth_per_min", 0.0,
                  "worth above the default that one agent may claim in a minute; its further"
                  " requests count with the default worth; 0: no limit", 0.0, 1e9),
    NodeParameter("refuse_when_busy", "people",
              "refuse requests that the engine cannot begin in time beside the others, with error"
              " code 18 and the seconds to wait: those of people and machines for answers, or all,"
              " plans too", choices=tuple(GATES)),
    NodeParameter("max_skill_sets", 64,
                  "most registered skill sets; each keeps its prompt in memory",
              1, 10_000),
    NodeParameter("max_prompt_tokens", 1536, "most tokens of a prompt, the shared part included",
              16, 1_000_000),
    NodeParameter("client_timeout_s", 10.0,
              "end a request when its agent was silent for this time, seconds; does not apply to"
              " agents that never sent a report or ALIVE; with use_sim_time, seconds that have"
              " passed on /clock and on the wall; 0: never", 0.0, 86_400.0),
    NodeParameter("answer_timeout_s", 60.0,
              "end a request if the value of a blocking skill does not come within this time"
              " after its predicted end, seconds; with use_sim_time, seconds of /clock",
              0.1, 86_400.0),
    NodeParameter("queue_timeout_s", 120.0,
              "end a request that waited this time for a segment or a token, seconds; for a plan"
              " with use_sim_time, seconds that have passed on /clock and on the wall",
              0.1, 86_400.0),
    NodeParameter("drop_late", False,
              "end a request that reaches its zero point before its first segment"),
    NodeParameter("max_replans", 2, "most new plans for a request with failed segments", 0, 100),
    NodeParameter("drain_timeout_s", 30.0,
              "after deactivation: seconds to finish what is being served", 0.0, 3600.0),
    NodeParameter("shutdown_drain_s", 1.0,
              "after Ctrl-C: seconds to finish what is being served", 0.0, 3600.0),
    NodeParameter("step_timeout_s", 60.0,
              "end the server, with status 1, when a step takes longer; ten times as long until the"
              " first step is done and while a skill set is registered; 0: never", 0.0, 86_400.0),
    NodeParameter("stats_period_s", 1.0, "seconds between two messages on ~/stats", 0.05, 3600.0),
)  # fmt: skip
"""Parameters that can be set while the node is not configured."""
FIXED = (
    NodeParameter("engine", "transformers", "what runs the model", choices=tuple(ENGINES),
              reference="my_module:MyEngine"),
    NodeParameter("model", "",
                  "folder or Hugging Face id of a causal model; empty: the embedded one"),
    NodeParameter("dtype", "float32", "number type of the weights and the KV cache",
              choices=("float32", "bfloat16", "float16")),
    NodeParameter("device", "auto", "where the model runs", choices=("auto", "cpu", "cuda")),
    NodeParameter("threads", 1, "CPU threads of the model", 1, 256),
    NodeParameter("engine_args", [""],
              "vllm, and an engine of your own: more of its options, each as name=value"),
    NodeParameter("engine_process", False, "run the engine in a process of its own"),
    NodeParameter("replicas", 1,
              "number of servers with an engine each behind this node; a replica that ends is"
              " started again, and its requests go on at others", 1, 256),
    NodeParameter("cluster", "processes",
              "where more than one replica runs: processes of this machine (`processes`), a Ray"
              " cluster of this machine (`ray`), or one that runs (`ray:HOST:PORT`)"),
    NodeParameter("replica_resources", [""],
              "ray: what each replica takes of its node, each as name=number, such as GPU=1 or a"
              " resource of your own"),
    NodeParameter("pace", "none", "make every step take as long as on this profile: none,"
              f" {', '.join(PACES)} or measured:FILE; with a pace that has stages, the engine"
              " simulated has them too"),
    NodeParameter("micro_batches", 0,
              "engines in stages: most steps in flight, at least the number of stages; 0: as many"
              " as stages", 0, 256),
    NodeParameter("skill_sets", [""],
                  "skill set files to register at the start; empty: those shipped"),
    NodeParameter("event_log", "",
                  "append the loop's events to this file as JSON lines; each life of the"
              " server begins with an event `opened`; empty: do not"),
    NodeParameter("journal", "", "the former name of `event_log`; it works in this release"),
    NodeParameter("recovery_journal", "",
              "write the open requests to this file, so that a server that is started again goes on"
              " with them: docs/recovery.md; empty: do not"),
    NodeParameter("recovery_sync", False,
                  "flush each record of recovery_journal to the disk before it counts, so that it"
                  " survives the loss of power; takes the time of the disk for each write"),
    NodeParameter("explain", False,
                  "write to the event log why each request joined each step or not;"
                  " `timely-llm trace explain` shows it"),
    NodeParameter("agent_keys", "",
              "file with an agent's key, or folder with such files: these agents must sign their"
              " messages; docs/security.md; empty: keys are not checked"),
    NodeParameter("require_auth", False,
              "refuse agents without a key in agent_keys; false: they need no signature"),
    NodeParameter("autostart", True,
              "configure and activate at the start; false: wait for `ros2 lifecycle set`"),
    EXECUTOR,
    NodeParameter("name_check_s", FIND_S,
              "least seconds from the node's start until it serves: meanwhile it looks for"
              " another server of its name and loads the model; below 3 it may miss one",
              0.0, 60.0),
    NodeParameter("diagnostics", True,
                  "publish the server's health on /diagnostics, once a second"),
    NodeParameter("publish_steps", False, "publish every step of the engine on ~/steps"),
    NodeParameter("result_timeout_s", 300.0,
              "seconds for which a result is kept for clients that missed it: ~/get_result and"
              " the result services of the actions; 0: not at all", 0.0, 86_400.0),
    NodeParameter("max_results", 4096,
              "most results that are kept, in 64 MiB at most; the oldest are dropped first",
              1, 1_000_000),
)  # fmt: skip
"""Parameters that are read once, at the start. All that name a file, a model or an option of the
engine are among them, because any node can set a parameter of any other."""
PARAMETERS = tuple(replace(parameter, fixed=False) for parameter in CONFIGURED) + FIXED + CLOUD


def slo_classes(values: dict[str, Any]) -> dict[str, SloClass]:
    """Return the service levels of answers by name, `text` among them.

    Raises:
        ConfigurationError: one cannot be read, or two have the same name.
    """
    made = [parse_slo_class(text) for text in values["slo_classes"] if text]
    by_name = {slo_class.name: slo_class for slo_class in made}
    if len(by_name) < len(made):
        raise ConfigurationError("parameter slo_classes names a service level twice")
    return {TEXT.name: TEXT} | by_name
