"""vLLM as it comes, to compare with: its own scheduler decides, with the options of our engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from timely_llm.core.errors import EngineError, TimelyError
from timely_llm.engines.positions import most_positions
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm import BLOCK_TOKENS
from timely_llm.engines.vllm_once import close_core, enter_core
from timely_llm.engines.vllm_options import engine_config
from timely_llm.engines.vllm_version import reason


def stock_config(
    model: str | Path,
    dtype: str,
    limits: Limits,
    engine_args: Mapping[str, Any],
    scheduling: str = "fcfs",
) -> Any:
    """Return the configuration of our engine, but with vLLM's own scheduler and choice of tokens.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV.
        limits: as of our engine.
        engine_args: options of vLLM's own.
        scheduling: what vLLM calls its policy: fcfs or priority.

    Raises:
        ModelError: the model cannot be read.
        EngineError: an option or the model cannot be had.
    """
    limits = limits.for_model(most_positions(model))
    config = engine_config(str(model), dtype, limits, BLOCK_TOKENS, engine_args)
    config.scheduler_config.scheduler_cls = None
    config.scheduler_config.policy = scheduling
    config.model_config.logits_processors = None
    return config


@contextmanager
def starting() -> Iterator[None]:
    """Say in one sentence what vLLM finds wrong when it starts.

    Raises:
        EngineError: it does.
    """
    try:
        yield
    except TimelyError:
        raise
    except Exception as error:
        raise EngineError(f"vLLM does not start: {reason(error)}") from error


class StockVllm:
    """vLLM's `LLMEngine` in this process: requests in, text of each step out.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV.
        limits: as of our engine.
        engine_args: options of vLLM's own.

    Attributes:
        cached: tokens that the request of the last output found in the prefix cache.

    Raises:
        EngineError: an option or the model cannot be had.
    """

    def __init__(
        self, model: str | Path, dtype: str, limits: Limits, engine_args: Mapping[str, Any]
    ) -> None:
        with starting():
            config = stock_config(model, dtype, limits, engine_args)
            config.model_config.skip_tokenizer_init = False
            self._engine = LLMEngine(config, Executor.get_class(config), log_stats=False)
        client = self._engine.engine_core
        # It would end the process's other engines too, whenever its memory is collected.
        if hasattr(client, "_finalizer"):  # since 0.31
            client._finalizer.detach()
        self._core = client.engine_core
        enter_core(self._core)
        self._asked = 0
        self.cached = 0

    def ask(self, token_ids: Sequence[int], tokens: int) -> str:
        """Ask for so many tokens after a prompt; return the request's id."""
        self._asked += 1
        params = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )  # fmt: skip
        prompt = {"prompt_token_ids": list(token_ids)}
        return str(self._engine.add_request(str(self._asked), prompt, params))

    def step(self) -> list[int]:
        """Make a step and the text of its tokens; return these."""
        outputs = self._engine.step()
        if outputs:
            self.cached = outputs[-1].num_cached_tokens
        return [token for output in outputs for token in output.outputs[0].token_ids]

    def core_step(self) -> list[int]:
        """Make a step, but no text; return its tokens."""
        made, _ = self._core.step()
        found = made[0].outputs if made else ()
        return [token for said in found for token in said.new_token_ids]

    def stop(self, request_id: str) -> None:
        """Stop a request; its blocks stay in the prefix cache until they are overwritten."""
        self._engine.abort_request([request_id], internal=True)

    def close(self) -> None:
        """Free the engine."""
        close_core(self._core)
