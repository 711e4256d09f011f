"""A server as the values of the plan server's parameters describe it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from timely_llm.core.clock import Clock, RobotClock
from timely_llm.core.documents.read import read_text
from timely_llm.core.errors import ConfigurationError, SkillSetError, TimelyError
from timely_llm.core.events.log import EventLog, FileEventLog
from timely_llm.core.events.schema import ReadyEvent
from timely_llm.core.object_reference import is_reference
from timely_llm.core.text import count_of, quoted
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.grammars import asks_for_prose
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.registry import POLICIES, make_policy, parse_options
from timely_llm.policies.timely import Timely
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.serving.busy import GATES
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.journal.file import JournalFile
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.limits import AdmissionLimits, RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.agent_budgets import agent_rates
from timely_llm.serving.server.registration import read_apart
from timely_llm.serving.server.server import Server
from timely_llm.serving.sink import ServerSink
from timely_llm.skills.prose import PROSE_GRAMMAR
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

EMBEDDED_SKILL_SETS = "config/skill_sets"
LOADING_POLL_S = 0.1

SAMPLE_BYTES = 1 << 16
"""Bytes read at the beginning, in the middle and at the end of a file with weights."""

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


class Logger(Protocol):
    """What a logger of Python and one of ROS have in common."""

    def info(self, message: str, /) -> object:
        """Log what is as it should be."""
        ...

    def warning(self, message: str, /) -> object:
        """Log what is not as its user expects."""
        ...


def read_skill_sets(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and the texts of the skill set files of the parameters.

    Raises:
        SkillSetError: a file cannot be read.
    """
    shipped = sorted(resource(EMBEDDED_SKILL_SETS).glob("*.yaml"))
    files = [Path(path) for path in values["skill_sets"] if path] or shipped
    return [(str(path), read_text(path, "skill set", SkillSetError)) for path in files]


def make_server(
    values: Mapping[str, Any], skill_sets: Sequence[tuple[str, str]], sink: ServerSink,
    clock: Clock, logger: Logger, meanwhile: Callable[[], None] = lambda: None,
    robot_clock: RobotClock | None = None,
) -> Server:  # fmt: skip
    """Return a server that is ready: model loaded, skill sets registered.

    Args:
        values: of the plan server's parameters, by name.
        skill_sets: sources and texts of the skill sets to register.
        sink: takes requests, segments and results.
        clock: of the loop.
        logger: logs the registered skill sets.
        meanwhile: called often while the model is loaded; an exception of it ends the loading.
        robot_clock: robots' time; None: that of `clock`.

    Raises:
        TimelyError: the model, a skill set, the event log or the recovery journal cannot be used.
    """
    engine_args = parse_engine_args(values["engine_args"])
    file = values["event_log"] or values["journal"]
    if values["explain"] and not file:
        raise ConfigurationError(
            "parameter explain needs the parameter event_log: reasons go there"
        )
    event_log: EventLog | None = FileEventLog(file) if file else None
    journal_sink = None
    try:
        journal = _journal(values)
    except TimelyError:
        if event_log is not None:
            event_log.close()  # it can be opened again
        raise
    if journal is not None:
        sink = event_log = journal_sink = JournalSink(journal, sink, event_log)

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
            micro_batches=values["micro_batches"],
        )
        admission = AdmissionLimits(
            values["max_prompt_tokens"], values["constrained"], _answer_grammar(values)
        )
        policy = _policy(values)
        capacity = engine.capacity
        if capacity.stages > 1:
            policy = in_micro_batches(policy, Mode(values["micro_batching"]))
            logger.info(
                f"{capacity.stages} stages: at most {capacity.micro_batches} steps in flight,"
                f" micro-batching {values['micro_batching']}"
            )
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
        values["accept_plans"], agent_rates(values),
    )  # fmt: skip
    hang_s = values["step_timeout_s"] or math.inf
    server = Server(make_loop, sink, clock, limits, hang_s, read_apart, event_log)
    try:
        while not server.ready(LOADING_POLL_S):
            meanwhile()
        server.wait_ready()
        for source, text in skill_sets:
            name, tokens = server.skill_sets.register(text, source, parse_skill_set).result()
            logger.info(
                f"skill set {quoted(name)}: {tokens} prompt tokens computed once and shared"
            )
        if journal_sink is not None and (open_ones := journal_sink.attach(server, clock.now())):
            requests = count_of(open_ones, "request", "requests")
            logger.info(f"recovery journal: {requests} had not ended")
    except Exception:
        server.close()
        if event_log is not None:
            event_log.close()
        raise
    if event_log is not None:
        event_log.write(ReadyEvent(clock.now()))
    return server


def _journal(values: Mapping[str, Any]) -> JournalFile | None:
    """Return the recovery journal, None if there is none."""
    path = values["recovery_journal"]
    if not path:
        return None
    if values["cloud_url"]:
        raise ConfigurationError(
            "a recovery journal does not know what a cloud has begun: leave recovery_journal or"
            " cloud_url out"
        )
    made_with = [values[name] for name in ("engine", "model", "dtype", "engine_args")]
    model = _model(values)
    if model and values["engine"] != "simulated":  # this one has no model
        try:
            made_with.append(fingerprint(Path(model)))
        except OSError as error:
            raise ConfigurationError(
                f"the model {quoted(str(model))} cannot be read: {error.strerror or error}"
            ) from error
    return JournalFile(
        path, json.dumps(made_with), values["result_timeout_s"], values["max_results"],
        values["recovery_sync"],
    )  # fmt: skip


def _model(values: Mapping[str, Any]) -> str | Path:
    """Return the model; empty: an engine of a user's own has none."""
    if is_reference(values["engine"]):
        return str(values["model"])
    return values["model"] or resource(EMBEDDED_MODEL)


def _answer_grammar(values: Mapping[str, Any]) -> str | None:
    """Return the grammar of answers; None: they are free, as those of the simulated engine."""
    wanted = values["prose_answers"]
    model = _model(values)
    if wanted == "never" or values["engine"] == "simulated" or not model:
        return None
    return PROSE_GRAMMAR if wanted == "always" or asks_for_prose(model) else None


def _patience(values: Mapping[str, Any]) -> Timeouts:
    return Timeouts(
        client_timeout_s=values["client_timeout_s"] or math.inf,
        answer_timeout_s=values["answer_timeout_s"],
        queue_timeout_s=values["queue_timeout_s"],
        drop_late=values["drop_late"],
        max_replans=values["max_replans"],
    )


def _policy(values: Mapping[str, Any]) -> Policy:
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


def _lead_s(values: Mapping[str, Any]) -> float:
    lead_s: float = values["lead_s"]
    return math.inf if lead_s < 0 else lead_s


def fingerprint(folder: Path) -> str:
    """Return a hash of the files of a folder, without those below it; empty: it is no folder.

    Configurations and tokenizers count wholly; of weights, their size and three samples.

    Raises:
        OSError: a file cannot be read.
    """
    if not folder.is_dir():
        return ""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name.startswith("."):
            continue
        size = path.stat().st_size
        found.update(f"{path.name}\n{size}\n".encode())
        if path.suffix not in WEIGHTS:
            found.update(path.read_bytes())
            continue
        with path.open("rb") as file:
            for place in (0, (size - SAMPLE_BYTES) // 2, size - SAMPLE_BYTES):
                file.seek(max(place, 0))
                found.update(file.read(SAMPLE_BYTES))
    return found.hexdigest()
