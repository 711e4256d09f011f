"""The testbed of Zhan et al. 2025: a cloud with one of six models, and four edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from timely_llm.cloud.simulated import CloudPath
from timely_llm.core.text import quoted
from timely_llm.engines.simulated import PROFILES, Profile
from timely_llm.experiments.contract import ExperimentError


class FarModel(NamedTuple):
    """A model of the cloud.

    Attributes:
        name: as in Table III.
        rows: most questions of a batch.
        small: models that an edge may run beside it, from the least to the most capable one.
        bias: predicted over true length of an answer.
    """

    name: str
    rows: int
    small: tuple[str, ...]
    bias: float = 1.0

    @property
    def profile(self) -> Profile:
        """Its step times."""
        return PROFILES[f"a100x4-{self.name}"]

    @property
    def rpm(self) -> float:
        """Questions a minute: 1.5 times the rows of a batch (§V-B)."""
        return 1.5 * self.rows


SMALL = ("qwen2.5-1.5b", "llama3-8b", "qwen2.5-7b")

FAR_MODELS: Mapping[str, FarModel] = {
    one.name: one
    for one in (
        FarModel("qwen2.5-72b", 20, SMALL),
        FarModel("llama3-70b", 20, SMALL),
        FarModel("qwen2.5-32b", 28, SMALL, bias=0.5),
        FarModel("llama3-8b", 50, ("qwen2.5-1.5b", "qwen2.5-7b")),
        FarModel("qwen2.5-7b", 59, ("qwen2.5-1.5b",)),
        FarModel("qwen2.5-1.5b", 99, ()),
    )
}
"""The models of Table III.

Rows are read for the first (20); the text says that the others are adjusted in proportion, not to
what. They are derived: 20 for the second and 31 for the third have the paper's throughput and
latency of a full batch in a run of 80 questions; the others are throughput over 1.5, since their
batches are not full. The third underestimates lengths (§V-B); by how much is this package's.
"""

DEFAULT_FAR_MODEL = "llama3-70b"
EDGES = 4
EDGE_ROWS = 8
"""Most rows of an edge's step. The paper has no number; its edges alone take one query at once."""

PATH = CloudPath(0.02, 100.0)
NETWORK_TO_EDGE = CloudPath(0.002, 1000.0)


@dataclass(frozen=True)
class Devices:
    """Devices of a run.

    Attributes:
        far: the cloud's model.
        path: between edges and cloud.
        edges: number of edges.
        switch_s: seconds in which an edge changes its model. The paper has no number; an Orin's
            memory holds all three models.
    """

    far: FarModel = FAR_MODELS[DEFAULT_FAR_MODEL]
    path: CloudPath = PATH
    edges: int = EDGES
    switch_s: float = 1.0


def edge_profile(model: str) -> Profile:
    """Return the step times of a small model on an edge."""
    return PROFILES[f"orin-{model}"]


def check_models(names: Sequence[str]) -> None:
    """Check the names of cloud models.

    Raises:
        ExperimentError: one is unknown.
    """
    for name in names:
        if name not in FAR_MODELS:
            allowed = ", ".join(FAR_MODELS)
            raise ExperimentError(f"unknown cloud model {quoted(name)}: choose one of {allowed}")
