"""Paces of engines: profiles of step times by name, of one stage and of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents.nodes import bounded_document
from timely_llm.core.documents.read import MAX_SIZE, load_document, read_text
from timely_llm.core.errors import EngineError, EngineSettingError
from timely_llm.engines.pipeline_profiles import PIPELINES, pipeline_profile
from timely_llm.engines.pipelined import PipelineProfile, StageLink
from timely_llm.engines.simulated import PROFILES, Profile

MEASURED = "measured:"
"""Prefix of a profile's name that names a file of `timely-llm profile --engine` instead."""

MAX_BYTES = 65_536
"""Largest file with a profile."""

GIGABIT_S = 8 / 1e9
"""Seconds for a byte on a link of 1 Gbit/s."""

STAGED: dict[str, PipelineProfile] = {
    profile.name: profile
    for profile in (
        PipelineProfile(
            "two-boxes",
            "Llama 3 8B on two boxes with an RTX 4090 each and a link of 1 Gbit/s, composed: each"
            " stage takes half of every time of rtx4090-llama3-8b, the first and the last layer"
            " not counted; a token's hidden state and residual are 2 x 4,096 numbers of 2 bytes;"
            " 0.2 ms for any message is this package's; a transfer blocks both its stages, as the"
            " times of Ahn et al. 2025 suggest",
            stages=tuple(
                Profile(f"two-boxes, stage {stage}", "as two-boxes", 0.0108, 0.000075, 0.000055)
                for stage in (1, 2)
            ),
            links=(StageLink(0.0002, 2 * 4096 * 2 * GIGABIT_S),),
        ),
        *(pipeline_profile(name) for name, row in PIPELINES.items() if len(row.layers) > 1),
    )
}
"""Profiles of models in stages by name."""

PACES = (*PROFILES, *STAGED)
"""Names of all profiles that an engine can have as its pace."""

MOST_STAGES = 64


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


FiniteSeconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
LineOfText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_one_line)]


class StepSeconds(BaseModel):
    """The seconds of a profile in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: FiniteSeconds
    row_s: FiniteSeconds
    prefill_token_s: FiniteSeconds
    context_token_s: FiniteSeconds = 0.0
    prefill_s: FiniteSeconds = 0.0
    table_s: Annotated[tuple[FiniteSeconds, ...], Field(max_length=4096)] = ()
    beyond_s: FiniteSeconds = 0.0
    swap_token_s: FiniteSeconds = 0.0
    long_prefill_token_s: FiniteSeconds | None = None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        first_rows = self.table_s or (self.base_s + self.row_s,)
        if not min(*first_rows, self.base_s + self.prefill_s + self.prefill_token_s):
            raise ValueError("every step must take some time")
        return self


class _Measured(StepSeconds):
    """A profile in a file."""

    name: LineOfText
    source: LineOfText


class _Link(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    message_s: FiniteSeconds
    token_s: FiniteSeconds


class _MeasuredPipeline(BaseModel):
    """A profile with stages in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: LineOfText
    source: LineOfText
    stages: Annotated[tuple[StepSeconds, ...], Field(min_length=1, max_length=MOST_STAGES)]
    links: tuple[_Link, ...] = ()
    blocking: bool = True
    kv_tokens: tuple[Annotated[int, Field(ge=1)], ...] = ()
    overhead_s: FiniteSeconds = 0.0

    @model_validator(mode="after")
    def _fit(self) -> _MeasuredPipeline:
        self.profile()
        return self

    def profile(self) -> PipelineProfile:
        """Return the profile.

        Raises:
            ValueError: stages, links and KV limits do not fit together.
        """
        stages = tuple(
            Profile(f"{self.name}, stage {number}", self.source, **dict(stage))
            for number, stage in enumerate(self.stages, 1)
        )
        links = tuple(StageLink(link.message_s, link.token_s) for link in self.links)
        try:
            return PipelineProfile(
                self.name, self.source, stages, links, self.blocking, self.kv_tokens,
                self.overhead_s,
            )  # fmt: skip
        except EngineError as error:
            raise ValueError(str(error)) from error


def pace_profile(name: str) -> Profile | PipelineProfile:
    """Return a profile by its name, or the one in a file: "measured:FILE".

    A file that names stages is a model in stages.

    Raises:
        EngineError: there is no profile of that name, or the file has none.
    """
    if name.startswith(MEASURED):
        path = Path(name.removeprefix(MEASURED))
        check_file(path)
        return read_pipeline(path) if _has_stages(path) else read_profile(path)
    if name in STAGED:
        return STAGED[name]
    if name not in PROFILES:
        allowed = ", ".join((*PACES, f"{MEASURED}FILE"))
        raise EngineSettingError(f"unknown profile {name!r}: choose one of {allowed}")
    return PROFILES[name]


def step_time_profile(name: str) -> Profile:
    """Return a profile by its name, or the one in a file: "measured:FILE".

    Raises:
        EngineSettingError: there is no profile of that name, or the file has none.
    """
    if name.startswith(MEASURED):
        return read_profile(Path(name.removeprefix(MEASURED)))
    if name not in PROFILES:
        allowed = ", ".join((*PROFILES, f"{MEASURED}FILE"))
        raise EngineSettingError(f"unknown profile {name!r}: choose one of {allowed}")
    return PROFILES[name]


def read_profile(path: Path) -> Profile:
    """Return the profile in a YAML file; its values are checked.

    Raises:
        EngineSettingError: one sentence; the file cannot be read, or a value is impossible.
    """
    check_file(path)
    return Profile(**dict(load_document(path, _Measured, "profile", EngineSettingError)))


def check_file(path: Path) -> None:
    """Check that a profile's file can be read.

    Raises:
        EngineSettingError: one sentence; it is no file, or too large.
    """
    try:
        readable = path.is_file() and path.stat().st_size <= MAX_BYTES
    except OSError:  # such as a name that is too long
        readable = False
    if not readable:
        raise EngineSettingError(
            f"{str(path)!r} is no file of at most {MAX_BYTES} bytes, as timely-llm profile --engine"
            " writes it"
        )


def read_pipeline(path: Path) -> PipelineProfile:
    """Return the profile with stages in a YAML file; its values are checked.

    Raises:
        EngineError: one sentence; the file cannot be read, or a value is impossible.
    """
    check_file(path)
    return load_document(path, _MeasuredPipeline, "profile", EngineSettingError).profile()


def _has_stages(path: Path) -> bool:
    try:
        data, _ = bounded_document(read_text(path, "profile", EngineSettingError), MAX_SIZE)
    except Exception:  # the reader of profiles says what is wrong
        return False
    return isinstance(data, dict) and "stages" in data
