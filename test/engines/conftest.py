"""Engines on tiny random models, made here (nothing is downloaded), and who drives them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from test.engines.letters_child import Letters, babble
from timely_llm.core.clock import VirtualClock
from timely_llm.engines import remote
from timely_llm.engines.contract import GREEDY, Decoding, Engine, Prefix, StepResult
from timely_llm.engines.paced import PacedEngine
from timely_llm.engines.profiles import Profile, step_time_profile
from timely_llm.engines.remote import RemoteEngine
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.policies.contract import StepPlan

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# vLLM would otherwise bind its threads to the cores that others use too.
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["OMP_NUM_THREADS"] = "1"

MakeEngine = Callable[..., Engine]

FIXED = "You control a small drone. Answer with a plan and nothing else, one skill a line. "
TASKS = {
    "a": "Find the apple.",
    "b": "Go to the chair, and if there is a cup on it, take a picture of the cup.",
    "c": "Turn!",
    "d": "Look around for my keys; say yes when you have found them, say no otherwise.",
}
# A sequence of each kind; the simulated engine answers all of them alike.
DECODINGS = {
    "a": GREEDY,
    "b": Decoding(0.7, seed=1),
    "c": Decoding(1.5, seed=2),
    "d": Decoding(1.0, seed=3, grammar='start: (/[a-z]{1,6}/ ";" | /[0-9]+/ "!")+'),
}
ANSWER = 24
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


KINDS = (
    "simulated",
    "simulated-flights",
    "simulated-ahead",
    "paced",
    "remote",
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
FLIGHTS = {"simulated-flights": 2, "simulated-ahead": 3}
"""Steps in flight of the kinds that have more than one."""
NGRAMS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


@pytest.fixture(scope="session", params=KINDS)
def make(request: pytest.FixtureRequest) -> MakeEngine:
    """Make an engine of each kind with the given limits."""
    if request.param.startswith("simulated") or request.param == "paced":
        profile, words = step_time_profile("millisecond"), ScriptTokenizer()
        in_flight = FLIGHTS.get(request.param, 1)
        ahead = request.param.endswith("ahead")

        def make_simulated(**limits: int) -> Engine:
            engine = SimulatedEngine(
                profile, babble, VirtualClock(), Limits(**limits), in_flight, ahead
            )
            engine.tokenizer = words  # so that two engines' token ids can be compared
            return PacedEngine(engine, NO_TIME) if request.param == "paced" else engine

        return make_simulated
    if request.param == "remote":
        return remote_letters
    kind, _, name = request.param.rpartition("-")
    model = request.getfixturevalue(name)
    if kind:
        pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")
        from test.engines.vllm_runner import NoModel, asynchronous
        from timely_llm.engines.vllm import VllmEngine

        args: dict[str, Any] = {}
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
                return VllmEngine(model, limits=Limits(**limits), engine_args=args)

        return make_vllm

    def make_transformers(**limits: int) -> Engine:
        from timely_llm.engines.transformers import TransformersEngine

        return TransformersEngine(model, device="cpu", limits=Limits(**limits))

    return make_transformers


class Driver:
    """Runs steps and notes what came of them.

    An engine may store and share KV in whole blocks of `block_tokens` only: outside words then
    cost it the rest of the last block. Tokens whose KV it finds or fetches are counted as
    computed here, and as recomputed if they were.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.block_tokens = getattr(engine, "block_tokens", 1)
        self.left: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.recomputed: Counter[str] = Counter()
        self.loaded: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.loading: set[str] = set()
        self.said: dict[str, list[int]] = {}

    def add(
        self, key: str, text: str, prefix: Prefix | None = None, decoding: Decoding = GREEDY
    ) -> int:
        return self.add_ids(key, self.engine.tokenizer.encode(text), prefix, decoding)

    def add_task(self, key: str, prefix: Prefix | None = None) -> int:
        """Add one of the tasks, decoded its own way."""
        return self.add(key, FIXED + TASKS[key], prefix, DECODINGS[key])

    def add_ids(
        self,
        key: str,
        token_ids: list[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        self.left[key] = self.engine.add(key, token_ids, prefix, decoding)
        self.said[key] = []
        self.kept[key] = 0
        del self.computed[key], self.recomputed[key], self.loaded[key], self.reached[key]
        self.loading.discard(key)
        return self.left[key]

    def append(self, key: str, text: str, drop: int = 0) -> None:
        token_ids = self.engine.tokenizer.encode(text)
        self.left[key] += len(token_ids) - drop + self.cut(key)
        assert self.engine.append(key, token_ids, drop) == self.left[key]

    def resume(self, key: str, new_key: str, text: str) -> None:
        """Go on with a sequence under another name."""
        token_ids = self.engine.tokenizer.encode(text)
        for of in (self.left, self.kept, self.reached):
            of[new_key] = of.pop(key, 0)
        self.left[new_key] += len(token_ids) + self.cut(new_key)
        del self.computed[new_key]
        self.said[new_key] = []
        assert self.engine.resume(key, new_key, token_ids) == self.left[new_key]

    def cut(self, key: str) -> int:
        """Keep only whole blocks of a sequence; return how many tokens that costs."""
        lost = self.kept[key] % self.block_tokens
        self.kept[key] -= lost
        return lost

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of so many tokens fill whole blocks."""
        return tokens // self.block_tokens * self.block_tokens

    def stored(self, *keys: str) -> int:
        """Return the tokens that the blocks of these sequences can hold."""
        return -sum(-self.kept[key] // self.block_tokens for key in keys) * self.block_tokens

    def step(
        self, entries: dict[str, int], evictable: Sequence[str] = (), lost: Sequence[str] = ()
    ) -> StepResult:
        """Make a step and check that only its sequences went on, as far as they were told.

        Sequences whose KV comes later compute nothing, nor do `lost` ones whose KV is broken.
        """
        wanted = {key: min(tokens, self.left[key]) for key, tokens in entries.items()}
        self.engine.submit(StepPlan(tuple(entries.items()), tuple(evictable)))
        result = self.engine.collect()
        for key, tokens in result.loaded.items():
            if self.reached[key] > self.kept[key]:
                self.recomputed[key] += min(tokens, self.reached[key] - self.kept[key])
            self.left[key] -= tokens
            self.kept[key] += tokens
            if key in wanted:
                wanted[key] = min(entries[key], self.left[key])
        self.loaded.update(result.loaded)
        self.computed.update(result.loaded)
        resting = {*result.failures, *result.rested, *self.loading}
        resting |= set(lost) - result.computed.keys()
        self.loading = (self.loading | set(result.loading)) - result.loaded.keys()
        served = {key: tokens for key, tokens in wanted.items() if key not in resting}
        beyond = {key: len(result.tokens[key]) - 1 for key in result.guessed}
        for key, most in result.guessed.items():
            assert 0 <= beyond[key] <= most < entries[key]
            assert wanted[key] == 1
        served = {key: tokens + beyond.get(key, 0) for key, tokens in served.items()}
        assert result.computed == served
        assert sum(wanted.values()) + sum(result.guessed.values()) <= (
            self.engine.capacity.max_step_tokens
        )
        assert set(result.evicted) <= set(evictable) - set(entries)
        for key in result.evicted:
            self.left[key] += self.kept.pop(key)
        for key, tokens in served.items():
            self.left[key] -= tokens
            self.kept[key] += tokens
            self.reached[key] = max(self.reached[key], self.kept[key])
        finished = {key for key in served if self.left[key] == -beyond.get(key, 0)}
        assert set(result.tokens) == finished
        self.computed.update(result.computed)
        self.recomputed.update(result.recomputed)
        for key, tokens_said in result.tokens.items():
            self.said[key] += tokens_said
            self.left[key] += len(tokens_said)
        return result

    def answer(self, key: str, tokens: int = ANSWER, chunk: int = 512) -> list[int]:
        """Go on with one sequence until it has said so many tokens, and no more by guesses."""
        while (more := tokens - len(self.said[key])) > 0:
            self.step({key: min(chunk, max(self.left[key], more))})
        return self.said[key][:tokens]

    def take_back(self, key: str, tokens: int) -> None:
        """Forget the newest tokens of a sequence."""
        del self.said[key][-tokens:]
        self.kept[key] -= tokens
        self.left[key] += self.cut(key)
        assert self.engine.take_back(key, tokens) == self.left[key]

    def remove_all(self) -> None:
        for key in self.said:
            self.engine.remove(key)


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
    return {key: FIXED + task for key, task in TASKS.items()}


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
