"""Engines on tiny random models, made here (nothing is downloaded), and their drivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from test.engines.letters_child import Letters, babble
from timely_llm.conformance.engines import EngineBench
from timely_llm.conformance.engines.driver import FIXED, PROMPTS, TASKS, Driver
from timely_llm.core.clock import VirtualClock
from timely_llm.engines import remote
from timely_llm.engines.contract import Engine
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.remote import RemoteEngine
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, ScriptTokenizer, SimulatedEngine
from timely_llm.engines.wrappers import PacedEngine

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# vLLM would otherwise bind its threads to the cores that others use too.
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["OMP_NUM_THREADS"] = "1"

DEVICE = os.environ.get("ENGINE_DEVICE", "cpu")
"""Where the engine `transformers` is tested: cpu or cuda."""

MakeEngine = Callable[..., Engine]

NO_TIME = Profile("none", "made up", 0, 0, 0)

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level BPE tokenizer with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(["mf(50);tc(30);?iv('cup')==True{tp();}; find the apple"] * 20, trainer)
    make_tokenizer: Any = PreTrainedTokenizerFast
    tokenizer = make_tokenizer(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def make_model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder with a random model of a transformers class, its weights large enough that
    it does not say the same word for ever."""

    def make(name: str, **options: Any) -> Path:
        import torch
        import transformers

        config = getattr(transformers, f"{name}Config")(
            **{**SIZES, "vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1,
               "eos_token_id": 2, **options}
        )  # fmt: skip
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
        with torch.no_grad():
            for weights in model.parameters():
                if weights.dim() > 1:
                    weights.normal_(0, 0.3)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def llama(make_model: Callable[..., Path]) -> Path:
    return make_model("Llama", head_dim=32)  # vLLM takes no smaller one on a CPU


@pytest.fixture(scope="session")
def qwen2(make_model: Callable[..., Path]) -> Path:
    return make_model("Qwen2")


@pytest.fixture(scope="session")
def qwen3(make_model: Callable[..., Path]) -> Path:
    return make_model("Qwen3", head_dim=32)


def remote_letters(**limits: int) -> RemoteEngine:
    """Make an engine of letters in another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        patch.setattr(remote, "CHILD", "letters_child")
        return RemoteEngine(Letters(), {"name": "letters", **limits})


KINDS: tuple[str, ...] = (
    "simulated",
    "simulated-in-flight",
    "simulated-ahead",
    "pipelined",
    "pipelined-overlapping",
    "paced",
    "remote",
    "remote-ahead",
    "llama",
    "qwen2",
    "qwen3",
    "vllm-scheduler-llama",
    "vllm-scheduler-guesses-llama",
    "vllm-scheduler-ahead-llama",
    "vllm-scheduler-stages-llama",
    "vllm-scheduler-host-llama",
    "vllm-scheduler-cache-llama",
    "vllm-llama",
    "vllm-qwen3",
    "vllm-ahead-llama",
    "vllm-guesses-llama",
)
SWITCH = "VLLM_USE_V2_MODEL_RUNNER"
if SWITCH not in os.environ:  # otherwise it decides for all of them
    KINDS += tuple(f"v2-{kind}" for kind in KINDS if kind.startswith("vllm"))
KINDS += ("vllm-scheduler-ahead-stages-llama",)  # V2 alone has both
INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))
"""Whether Triton's interpreter runs the kernels: tests of a second model would only take longer."""
if INTERPRETED:
    KINDS = tuple(kind for kind in KINDS if kind != "vllm-qwen3")
IN_FLIGHT = {"simulated-in-flight": 2, "simulated-ahead": 3}
"""Steps in flight of the kinds that have more than one."""
NGRAMS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


@pytest.fixture(scope="session", params=KINDS)
def make(request: pytest.FixtureRequest) -> MakeEngine:
    """Make an engine of each kind with the given limits."""
    if request.param.startswith("pipelined"):
        words = ScriptTokenizer()
        stage, link = step_time_profile("millisecond"), StageLink(0.002, 0.0001)
        blocking = request.param == "pipelined"
        stages = PipelineProfile("three", "made up", (stage,) * 3, (link,) * 2, blocking)

        def make_pipelined(**limits: int) -> Engine:
            engine = PipelinedEngine(stages, babble, VirtualClock(), EngineLimits(**limits), 4)
            engine.tokenizer = words
            return engine

        return make_pipelined
    if request.param.startswith("simulated") or request.param == "paced":
        profile, words = step_time_profile("millisecond"), ScriptTokenizer()
        in_flight = IN_FLIGHT.get(request.param, 1)
        ahead = request.param.endswith("ahead")

        def make_simulated(**limits: int) -> Engine:
            engine = SimulatedEngine(
                profile, babble, VirtualClock(), EngineLimits(**limits), in_flight, ahead
            )
            engine.tokenizer = words  # so that two engines' token ids can be compared
            return PacedEngine(engine, NO_TIME) if request.param == "paced" else engine

        return make_simulated
    if request.param == "remote":
        return remote_letters
    if request.param == "remote-ahead":
        return partial(remote_letters, in_flight=2, ahead=True)
    kind, _, name = request.param.rpartition("-")
    model = request.getfixturevalue(name)
    if kind:
        pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")
        from test.engines.vllm_runner import NoModel, asynchronous, need_runner
        from timely_llm.engines.vllm.engine import VllmEngine

        args: dict[str, Any] = {}
        if "v2" in kind or "ahead-stages" in kind:
            args["model_runner"] = need_runner("v2")
        elif SWITCH not in os.environ:
            args["model_runner"] = "v1"
        if "scheduler" in kind:
            args["distributed_executor_backend"] = NoModel
        if "guesses" in kind:
            if find_spec("numba") is None:
                pytest.skip("vLLM guesses tokens with the package numba")
            args["speculative_config"] = NGRAMS
        if "ahead" in kind:
            args["async_scheduling"] = True
        if "stages" in kind:
            args["pipeline_parallel_size"] = 2
        if "cache" in kind:
            args["enable_prefix_caching"] = True

        def make_vllm(**limits: int) -> Engine:
            if "host" in kind:
                from test.engines.vllm_host import new_host

                _, args["kv_transfer_config"] = new_host()
            with asynchronous():
                return VllmEngine(model, limits=EngineLimits(**limits), engine_args=args)

        return make_vllm

    def make_transformers(**limits: int) -> Engine:
        from timely_llm.engines.transformers.engine import TransformersEngine

        return TransformersEngine(model, device=DEVICE, limits=EngineLimits(**limits))

    return make_transformers


@pytest.fixture
def drive() -> type[Driver]:
    """The driver's class, for tests with an engine of their own."""
    return Driver


@pytest.fixture(scope="session")
def fixed() -> str:
    """What all tasks begin with."""
    return FIXED


@pytest.fixture(scope="session")
def tasks() -> dict[str, str]:
    """Prompts that begin alike."""
    return PROMPTS


@pytest.fixture(scope="module")
def bench(make: MakeEngine) -> Iterator[EngineBench]:
    """What the checks of the contract work with."""
    bench = EngineBench(lambda limits: make(**asdict(limits)), our_words=True)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def engine(make: MakeEngine) -> Iterator[Engine]:
    engine = make(max_rows=8)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def answers(engine: Engine) -> dict[str, list[int]]:
    """What each task is answered when it is served alone, and whole."""
    driver = Driver(engine)
    for key in TASKS:
        driver.add_task(key)
        driver.answer(key)
    driver.remove_all()
    return driver.said


@pytest.fixture
def driver(engine: Engine) -> Iterator[Driver]:
    driver = Driver(engine)
    free = engine.capacity.free_tokens
    yield driver
    driver.remove_all()
    assert engine.capacity.free_tokens == free
