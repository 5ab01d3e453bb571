"""One request's prediction: its base simulation, its size, its timing, and text of that length."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random, SystemRandom

from cascade_core.errors import Corrupt, NotFound, Refused, Unavailable
from cascade_core.sims.state import Sim
from cascade_core.tasks import end
from pydantic import JsonValue

from cascade_api.gateway import Gateway
from cascade_api.openai import errors, replies, tokenizers
from cascade_api.openai.bodies import ChatBody, CompletionBody
from cascade_api.openai.replies import Reply
from cascade_api.openai.text import sampled_text
from cascade_api.openai.tokenizers import LocalTokenizer, PromptSize
from cascade_api.scenarios import asking, base_run
from cascade_api.scenarios.base_run import BaseRun

COMMENT_EVERY_S = 10.0
"""Shorter than the silence after which common proxies close a stream."""

_entropy = SystemRandom()


async def resolve(gateway: Gateway, body: CompletionBody | ChatBody) -> BaseRun:
    """The base simulation that `body.model` names: a trace by its id, else the newest ready trace of a model.

    Raises NotFound, Refused, Unavailable.
    """
    fresh = body.fresh is True
    with suppress(NotFound):
        return await base_run.resolve(
            gateway, trace_id=body.model, model=None, gpu_config=body.gpu_config, fresh=fresh
        )
    return await base_run.resolve(
        gateway, trace_id=None, model=body.model, gpu_config=body.gpu_config, fresh=fresh
    )


async def predict(gateway: Gateway, base: BaseRun, body: CompletionBody | ChatBody) -> Reply:
    """The whole reply on a base that has finished. Raises Refused, Unavailable."""
    tokenizer = await asyncio.to_thread(
        tokenizers.find, gateway.settings.tokenizer_dir.expanduser(), base.trace.text("model")
    )
    size = await asyncio.to_thread(_size, tokenizer, body)
    asked: dict[str, JsonValue] = {"prompt_tokens": size.tokens, "output_tokens": body.output_tokens}
    answer = await asking.ask(gateway, base, "estimate", asked)
    timing = answer["timing"]
    assert isinstance(timing, dict)
    output = timing["output_tokens"]
    assert isinstance(output, int)
    random = Random(_entropy.getrandbits(64) if body.seed is None else body.seed)  # noqa: S311 - made-up text
    text = await asyncio.to_thread(sampled_text, tokenizer, output, stops=body.stops, random=random)
    return Reply(
        api="chat" if isinstance(body, ChatBody) else "completions",
        key=uuid.uuid4().hex,
        created_s=int(gateway.now().timestamp()),
        model=body.model,
        prompt_tokens=size.tokens,
        output_tokens=output,
        text=text,
        cascade=answer
        | {
            "prompt_tokens_source": size.source,
            "text_source": text.source,
            "trace_id": base.trace.trace_id,
            "gpu_config": base.config.name,
            "run_id": base.run_id,
            "sim_id": base.sim_id,
            "cached": base.reused,
            "counterfactual": counterfactual(
                answer.get("counterfactual"), base.trace.text("real_gpu_config"), base.config.name
            ),
        },
    )


def counterfactual(told: JsonValue, captured_on: str | None, gpu_config: str) -> JsonValue:
    """Whether what was measured is another GPU's, whose errors are no accuracy; None where nothing says it.

    told: by the answer, from the same reading of the run as its assumptions. captured_on: the trace's own config, which
    is asked where the run says nothing.
    """
    return captured_on != gpu_config if told is None and captured_on is not None else told


async def stream(gateway: Gateway, base: BaseRun, body: CompletionBody | ChatBody) -> AsyncIterator[bytes]:
    """The events of a stream whose base is still under way: comments while it runs, then chunks, or one error."""
    states: list[str] = []

    async def note(sim: Sim) -> None:
        states[:] = [f"{sim.state}, {sim.kernels_done} of {sim.kernels_total} kernels"]

    waiting = asyncio.create_task(
        base_run.wait_for_timing(gateway, base, within_s=gateway.settings.openai_wait_s, progress=note)
    )
    try:
        while not waiting.done():
            state = f" ({states[0]})" if states else ""
            yield replies.comment(f"waiting for base simulation {base.sim_id} of {base.run_id}{state}")
            await asyncio.wait({waiting}, timeout=COMMENT_EVERY_S)
        await waiting
        reply = await predict(gateway, base, body)
    except (Refused, Unavailable, Corrupt) as error:
        yield errors.frame_of(error)
        return
    finally:
        await end(waiting)
    for chunk in replies.chunks(reply, with_usage=body.wants_usage_chunk):
        yield chunk


def _size(tokenizer: LocalTokenizer | None, body: CompletionBody | ChatBody) -> PromptSize:
    if isinstance(body, ChatBody):
        return tokenizers.chat_size(tokenizer, body.messages)
    return tokenizers.prompt_size(tokenizer, body.one_prompt)
