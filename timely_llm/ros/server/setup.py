"""The plan server's parameters, and the server that they describe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rclpy.impl.rcutils_logger import RcutilsLogger

from timely_llm.core.clock import Clock, RobotClock
from timely_llm.core.documents.read import read_text
from timely_llm.core.errors import ConfigurationError, SkillSetError
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.schema import ReadyEvent
from timely_llm.core.object_reference import is_reference
from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.slo import TEXT, SloClass, parse_slo_class
from timely_llm.core.text import quoted
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.grammars import asks_for_prose
from timely_llm.engines.registry import ENGINES, make_engine, parse_engine_args
from timely_llm.engines.simulated import PROFILES
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.registry import (
    DEFAULT_POLICY,
    POLICIES,
    make_policy,
    parse_options,
)
from timely_llm.policies.timely import Timely
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.ros.parameters import NodeParameter
from timely_llm.ros.process import EXECUTOR
from timely_llm.ros.server.claim import FIND_S
from timely_llm.serving.busy import GATES
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.limits import AdmissionLimits, RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.registration import read_apart
from timely_llm.serving.server.server import Server
from timely_llm.serving.sink import ServerSink
from timely_llm.skills.prose import PROSE_GRAMMAR
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

EMBEDDED_SKILL_SETS = "config/skill_sets"
DEFAULT_LEAD_S = 0.5
LOADING_POLL_S = 0.1
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
    NodeParameter("pace", "none", "make every step take as long as on this profile: none,"
              f" {', '.join(PROFILES)} or measured:FILE"),
    NodeParameter("skill_sets", [""],
                  "skill set files to register at the start; empty: those shipped"),
    NodeParameter("event_log", "",
                  "append the loop's events to this file as JSON lines; each life of the"
              " server begins with an event `opened`; empty: do not"),
    NodeParameter("journal", "", "the former name of `event_log`; it works in this release"),
    NodeParameter("explain", False,
                  "write to the event log why each request joined each step or not;"
                  " `timely-llm trace explain` shows it"),
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
PARAMETERS = tuple(replace(parameter, fixed=False) for parameter in CONFIGURED) + FIXED


def make_server(
    values: dict[str, Any], sink: ServerSink, clock: Clock, logger: RcutilsLogger,
    meanwhile: Callable[[], None] = lambda: None, robot_clock: RobotClock | None = None,
) -> Server:  # fmt: skip
    """Return a server that is ready: model loaded, skill sets registered.

    Args:
        values: of `PARAMETERS`, by name.
        sink: takes requests, segments and results.
        clock: of the loop.
        logger: logs the registered skill sets.
        meanwhile: called often while the model is loaded; an exception of it ends the loading.
        robot_clock: robots' time; None: that of `clock`.

    Raises:
        TimelyError: the model, a skill set or the event log cannot be used.
    """
    skill_sets = _read_skill_sets([path for path in values["skill_sets"] if path])
    engine_args = parse_engine_args(values["engine_args"])
    file = values["event_log"] or values["journal"]
    if values["explain"] and not file:
        raise ConfigurationError(
            "parameter explain needs the parameter event_log: reasons go there"
        )
    event_log = FileEventLog(file) if file else None

    def make_loop() -> Loop:
        def served() -> list[SkillSet]:
            return [known.skill_set for known in loop.prompts.all]

        engine = make_engine(
            values["engine"],
            model=_model(values),
            dtype=values["dtype"],
            device=values["device"],
            threads=values["threads"],
            max_model_len=values["max_model_len"],
            kv_tokens=values["kv_tokens"],
            max_rows=values["max_rows"],
            max_step_tokens=values["max_step_tokens"],
            pace=None if values["pace"] == "none" else values["pace"],
            engine_args=engine_args,
            process=values["engine_process"],
            script=ExampleScript(served),
        )
        admission = AdmissionLimits(
            values["max_prompt_tokens"], values["constrained"], _answer_grammar(values)
        )
        policy = _policy(values)
        if values["explain"] and not ask_for_reasons(policy):
            logger.warning(f"policy {quoted(values['policy'])} gives no reasons to explain")
        loop = Loop(
            engine, policy, clock, None, _patience(values), admission,
            RetentionLimits(values["max_conversations"], values["conversation_timeout_s"]),
            _lead_s(values), robot_clock, values["explain"],
            GATES[values["refuse_when_busy"]](),
        )  # fmt: skip
        return loop

    limits = RequestLimits(
        values["max_requests"], values["max_requests_per_agent"], values["max_skill_sets"],
        values["accept_plans"],
    )  # fmt: skip
    hang_s = values["step_timeout_s"] or math.inf
    server = Server(make_loop, sink, clock, limits, hang_s, read_apart, event_log)
    try:
        while not server.ready(LOADING_POLL_S):
            meanwhile()
        server.wait_ready()
        for path, text in skill_sets:
            name, tokens = server.skill_sets.register(text, str(path), parse_skill_set).result()
            logger.info(
                f"skill set {quoted(name)}: {tokens} prompt tokens computed once and shared"
            )
    except Exception:
        server.close()
        if event_log is not None:
            event_log.close()
        raise
    if event_log is not None:
        event_log.write(ReadyEvent(clock.now()))
    return server


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


def _model(values: dict[str, Any]) -> str | Path:
    """Return the model; empty: an engine of a user's own has none."""
    if is_reference(values["engine"]):
        return str(values["model"])
    return values["model"] or resource(EMBEDDED_MODEL)


def _answer_grammar(values: dict[str, Any]) -> str | None:
    """Return the grammar of answers; None: they are free, as those of the simulated engine."""
    wanted = values["prose_answers"]
    model = _model(values)
    if wanted == "never" or values["engine"] == "simulated" or not model:
        return None
    return PROSE_GRAMMAR if wanted == "always" or asks_for_prose(model) else None


def _patience(values: dict[str, Any]) -> Timeouts:
    return Timeouts(
        client_timeout_s=values["client_timeout_s"] or math.inf,
        answer_timeout_s=values["answer_timeout_s"],
        queue_timeout_s=values["queue_timeout_s"],
        drop_late=values["drop_late"],
        max_replans=values["max_replans"],
    )


def _policy(values: dict[str, Any]) -> Policy:
    name, options = values["policy"], {}
    made = POLICIES.get(name)
    if made is not None and issubclass(made, Timely):
        options = {
            "rows": values["timely_rows"],
            "admissions": values["timely_admissions"],
            "segment_tokens": values["timely_segment_tokens"],
            "lead_s": _lead_s(values),
        }
    return make_policy(name, **(options | parse_options(name, values["policy_options"])))


def _lead_s(values: dict[str, Any]) -> float:
    lead_s: float = values["lead_s"]
    return math.inf if lead_s < 0 else lead_s


def _read_skill_sets(paths: list[str]) -> list[tuple[Path, str]]:
    shipped = sorted(resource(EMBEDDED_SKILL_SETS).glob("*.yaml"))
    files = [Path(path) for path in paths] or shipped
    return [(path, read_text(path, "skill set", SkillSetError)) for path in files]
