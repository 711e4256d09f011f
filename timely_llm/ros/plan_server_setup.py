"""The plan server's parameters, and how a server is made from them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from rclpy.impl.rcutils_logger import RcutilsLogger

from timely_llm.core.clock import Clock
from timely_llm.core.documents import read_text
from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError, SkillSetError
from timely_llm.core.journal import FileJournal, Journal, NoJournal
from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.slo import TEXT, SloClass, parse_slo_class
from timely_llm.engines.engine_args import parse_engine_args
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.profiles import PROFILES
from timely_llm.engines.registry import ENGINES, make_engine
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES, make_policy
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.ros.claim import FIND_S
from timely_llm.ros.parameters import Parameter
from timely_llm.ros.spinning import EXECUTOR
from timely_llm.serving.admission import AdmissionLimits
from timely_llm.serving.conversations import Keeping
from timely_llm.serving.gate import Limits
from timely_llm.serving.loop import Loop
from timely_llm.serving.patience import Patience
from timely_llm.serving.server import Server
from timely_llm.serving.sink import ServerSink, Sink
from timely_llm.skills.reader import read_apart
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

EMBEDDED_MODEL = "models/tiny_planner"
EMBEDDED_SKILL_SETS = "config/skill_sets"
DEFAULT_LEAD_S = 0.5
DEFAULT_SLO_CLASSES = [
    "voice:rate=8", "text:rate=10", "real-time:rate=20,deadline=1.5,weight=100",
]  # fmt: skip

CONFIGURED = (
    Parameter("max_model_len", 2048, "most tokens of one prompt and its answer", 64, 1_000_000),
    Parameter("kv_tokens", 131_072, "tokens of KV cache for all requests", 256, 100_000_000),
    Parameter("max_tokens", 256, "most tokens of a plan whose request says nothing", 1, 4096),
    Parameter("max_answer_tokens", 256, "most tokens of an answer whose request says nothing",
              1, MAX_TOKENS),
    Parameter("max_rows", 64, "most requests in one step", 1, 4096),
    Parameter("max_step_tokens", 2048, "most tokens computed in one step", 16, 1_000_000),
    Parameter("policy", DEFAULT_POLICY, "decides who takes part in each step",
              choices=tuple(POLICIES)),
    Parameter("timely_rows", 8,
              "timely, edf, fcfs-segments: most requests in one step; timely+slice: most plans",
              1, 4096),
    Parameter("timely_admissions", 1,
              "timely, timely+slice, edf, fcfs-segments: most plans joining at one step", 1, 4096),
    Parameter("timely_segment_tokens", 10,
              "timely, timely+slice, edf, fcfs-segments: longest one, tokens", 1, 4096),
    Parameter("lead_s", DEFAULT_LEAD_S,
              "timely, timely+slice, edf, fcfs-segments: resume a suspended plan so many seconds"
              " before its robot will be idle; negative: whenever there is room", -1.0, 3600.0),
    Parameter("constrained", False,
              "let the model choose only tokens that a skill set's grammar allows"),
    Parameter("slo_classes", DEFAULT_SLO_CLASSES,
              "service levels of answers: a name, a colon and any of ttft (s), rate (tokens/s),"
              " deadline (s), weight; `text` is that of requests that name none"),
    Parameter("max_conversations", 64, "most conversations whose KV is kept for their next turn",
              0, 100_000),
    Parameter("conversation_timeout_s", 600.0,
              "give a kept conversation up after so many seconds without a turn", 0.0, 86_400.0),
    Parameter("max_requests", 256, "most requests served at a time", 1, 100_000),
    Parameter("max_requests_per_agent", 16, "of these, most of one agent", 1, 100_000),
    Parameter("max_skill_sets", 64, "most registered skill sets; each keeps its prompt in memory",
              1, 10_000),
    Parameter("max_prompt_tokens", 1536, "most tokens of a prompt, the shared part included",
              16, 1_000_000),
    Parameter("client_timeout_s", 10.0,
              "end a request whose agent was silent for so many seconds; agents that never reported"
              " or said ALIVE are not held to it; 0: never", 0.0, 86_400.0),
    Parameter("answer_timeout_s", 60.0,
              "end a request whose blocking skill's value did not come so many seconds after its"
              " predicted end", 0.1, 86_400.0),
    Parameter("queue_timeout_s", 120.0,
              "end a request that waited for a segment or a token for so many seconds",
              0.1, 86_400.0),
    Parameter("drop_late", False,
              "end a request as soon as its time utility is spent before its first segment"),
    Parameter("max_replans", 2, "most new plans for a request whose segments fail", 0, 100),
    Parameter("drain_timeout_s", 30.0,
              "after deactivation: seconds to finish what is being served", 0.0, 3600.0),
    Parameter("shutdown_drain_s", 1.0,
              "after Ctrl-C: seconds to finish what is being served", 0.0, 3600.0),
    Parameter("step_timeout_s", 60.0,
              "end the server, with status 1, when a step takes longer; ten times as long until the"
              " first step is done and while a skill set is registered; 0: never", 0.0, 86_400.0),
    Parameter("stats_period_s", 1.0, "seconds between two messages on ~/stats", 0.05, 3600.0),
)  # fmt: skip
"""Parameters that can be set while the node is not configured."""
FIXED = (
    Parameter("engine", "transformers", "what runs the model", choices=tuple(ENGINES)),
    Parameter("model", "", "folder or Hugging Face id of a causal model; empty: the embedded one"),
    Parameter("dtype", "float32", "number type of the weights and the KV cache",
              choices=("float32", "bfloat16", "float16")),
    Parameter("device", "auto", "where the model runs", choices=("auto", "cpu", "cuda")),
    Parameter("threads", 1, "CPU threads of the model", 1, 256),
    Parameter("engine_args", [""], "vllm: more of its options, each as name=value"),
    Parameter("engine_process", False, "run the engine in a process of its own"),
    Parameter("pace", "none", "make every step take as long as on this profile: none,"
              f" {', '.join(PROFILES)} or measured:FILE"),
    Parameter("skill_sets", [""], "skill set files to register at the start; empty: those shipped"),
    Parameter("journal", "", "append what the loop does to this file as JSON lines, each life of"
              " the server from an event `opened` on; empty: do not"),
    Parameter("autostart", True,
              "configure and activate at the start; false: wait for `ros2 lifecycle set`"),
    EXECUTOR,
    Parameter("name_check_s", FIND_S,
              "seconds from the node's start until it serves, at least: so long it looks for"
              " another server of its name, while it loads the model; below 3 it may miss one",
              0.0, 60.0),
    Parameter("diagnostics", True, "publish the server's health on /diagnostics, once a second"),
    Parameter("publish_steps", False, "publish every step of the engine on ~/steps"),
    Parameter("result_timeout_s", 300.0,
              "seconds for which a result is kept for those who missed it and ask: ~/get_result and"
              " the result services of the actions; 0: not at all", 0.0, 86_400.0),
    Parameter("max_results", 4096,
              "most results that are kept, in 64 MiB at most; the oldest go first", 1, 1_000_000),
)  # fmt: skip
"""Parameters that are read once, at the start: among them all that name a file, a model, or an
option of the engine, since any node can set a parameter of any other."""
PARAMETERS = tuple(replace(parameter, fixed=False) for parameter in CONFIGURED) + FIXED


def make_server(
    values: dict[str, Any], sink: ServerSink, clock: Clock, logger: RcutilsLogger
) -> Server:
    """Return a server that is ready: model loaded, skill sets registered.

    Raises:
        TimelyError: the model, a skill set or the journal cannot be used; one sentence why.
    """
    skill_sets = _read_skill_sets([path for path in values["skill_sets"] if path])
    engine_args = parse_engine_args(values["engine_args"])
    journal: Journal = FileJournal(values["journal"]) if values["journal"] else NoJournal()

    def make_loop(watched: Sink) -> Loop:
        def served() -> list[SkillSet]:
            return [known.skill_set for known in loop.prompts.all]

        engine = make_engine(
            values["engine"],
            model=values["model"] or resource(EMBEDDED_MODEL),
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
        admission = AdmissionLimits(values["max_prompt_tokens"], values["constrained"])
        loop = Loop(
            engine, _policy(values), watched, clock, None, journal, _patience(values), admission,
            Keeping(values["max_conversations"], values["conversation_timeout_s"]),
        )  # fmt: skip
        return loop

    limits = Limits(
        values["max_requests"], values["max_requests_per_agent"], values["max_skill_sets"]
    )
    hang_s = values["step_timeout_s"] or math.inf
    server = Server(make_loop, sink, clock, limits, hang_s, read_apart)
    try:
        server.wait_ready()
        for path, text in skill_sets:
            name, tokens = server.register(text, str(path), parse_skill_set).result()
            logger.info(
                f"skill set {quoted(name)}: {tokens} prompt tokens computed once and shared"
            )
    except Exception:
        server.close()
        journal.close()
        raise
    journal.write("ready", clock.now())
    return server


def slo_classes(values: dict[str, Any]) -> dict[str, SloClass]:
    """Return the service levels of answers by name, `text` among them.

    Raises:
        ConfigurationError: one means nothing, or two have the same name.
    """
    made = [parse_slo_class(text) for text in values["slo_classes"] if text]
    by_name = {slo_class.name: slo_class for slo_class in made}
    if len(by_name) < len(made):
        raise ConfigurationError("parameter slo_classes names a service level twice")
    return {TEXT.name: TEXT} | by_name


def _patience(values: dict[str, Any]) -> Patience:
    return Patience(
        client_timeout_s=values["client_timeout_s"] or math.inf,
        answer_timeout_s=values["answer_timeout_s"],
        queue_timeout_s=values["queue_timeout_s"],
        drop_late=values["drop_late"],
        max_replans=values["max_replans"],
    )


def _policy(values: dict[str, Any]) -> Policy:
    if not issubclass(POLICIES[values["policy"]], Timely):
        return make_policy(values["policy"])
    return make_policy(
        values["policy"],
        rows=values["timely_rows"],
        admissions=values["timely_admissions"],
        segment_tokens=values["timely_segment_tokens"],
        lead_s=math.inf if values["lead_s"] < 0 else values["lead_s"],
    )


def _read_skill_sets(paths: list[str]) -> list[tuple[Path, str]]:
    shipped = sorted(resource(EMBEDDED_SKILL_SETS).glob("*.yaml"))
    files = [Path(path) for path in paths] or shipped
    return [(path, read_text(path, "skill set", SkillSetError)) for path in files]
