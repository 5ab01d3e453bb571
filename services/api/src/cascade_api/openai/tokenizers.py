"""Tokenizers from local files. Nothing is ever downloaded; without files, sizes are estimated and say so.

spec: request-simulation, OpenAI-compatible single-request example. A directory holds `tokenizer.json`, or `vocab.json`
and `merges.txt` of a byte-level BPE (GPT-2, OPT) with `tokenizer_config.json` and `special_tokens_map.json` beside.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import structlog
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from cascade_api.openai.bodies import ChatMessage, Prompt

_logger = structlog.get_logger(__name__)

BYTES_PER_TOKEN = 4
MOST_TOKENIZERS = 8
"""Kept in memory; each has some megabytes."""
_NAME = re.compile(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/(?!\.{1,2}$)[A-Za-z0-9._-]+)?")
_TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip
_SPECIALS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")

Source = Literal[
    "tokenizer", "tokenizer:chat_template", "tokenizer:joined", "token_ids", "estimated:utf8-bytes/4"
]


@dataclass(frozen=True, slots=True)
class PromptSize:
    """How long a prompt is, and who says so."""

    tokens: int
    source: Source


@dataclass(frozen=True, slots=True)
class LocalTokenizer:
    """One model's tokenizer."""

    tokenizer: Tokenizer
    vocabulary: tuple[int, ...]
    """Ids that are no special tokens."""
    chat_template: str | None
    special_tokens: Mapping[str, str]

    def count(self, text: str, *, with_specials: bool = True) -> int:
        """Tokens of `text`."""
        return len(self.tokenizer.encode(text, add_special_tokens=with_specials).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The ids as text."""
        return str(self.tokenizer.decode(list(ids)))


def prompt_size(tokenizer: LocalTokenizer | None, prompt: Prompt) -> PromptSize:
    """The size of a completion's prompt; at least one token."""
    if prompt.token_ids is not None:
        return PromptSize(prompt.token_ids, "token_ids")
    if tokenizer is None:
        return PromptSize(estimated_tokens(prompt.text), "estimated:utf8-bytes/4")
    return PromptSize(max(1, tokenizer.count(prompt.text)), "tokenizer")


def chat_size(tokenizer: LocalTokenizer | None, messages: Sequence[ChatMessage]) -> PromptSize:
    """The size of a chat: by the model's own template where it has a usable one, else of its joined contents."""
    joined = "\n".join(message.text for message in messages)
    if tokenizer is None:
        return PromptSize(estimated_tokens(joined), "estimated:utf8-bytes/4")
    rendered = _rendered(tokenizer, messages)
    if rendered is not None:
        # A template writes its special tokens itself.
        return PromptSize(max(1, tokenizer.count(rendered, with_specials=False)), "tokenizer:chat_template")
    return PromptSize(max(1, tokenizer.count(joined)), "tokenizer:joined")


def estimated_tokens(text: str) -> int:
    """The size of `text` without a tokenizer."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return max(1, -(-size // BYTES_PER_TOKEN))


def find(root: Path, model: str | None) -> LocalTokenizer | None:
    """The tokenizer of `model` below `root`; None where there is none that can be used.

    Looked for in `<root>/<model>/`, then in the layout of Hugging Face's cache, `<root>/models--<org>--<name>/`.
    """
    if model is None or _NAME.fullmatch(model) is None:
        return None  # the name comes from a trace's metadata and must not lead anywhere else
    cache = root / ("models--" + model.replace("/", "--")) / "snapshots"
    for directory in (root / model, *(sorted(cache.iterdir()) if cache.is_dir() else ())):
        if (directory / "tokenizer.json").is_file() or (directory / "vocab.json").is_file():
            return _loaded(directory)
    return None


@lru_cache(maxsize=MOST_TOKENIZERS)
def _loaded(directory: Path) -> LocalTokenizer | None:
    try:
        config = _json(directory / "tokenizer_config.json")
        specials = _special_tokens(config, _json(directory / "special_tokens_map.json"))
        whole = directory / "tokenizer.json"
        tokenizer = (
            Tokenizer.from_file(str(whole)) if whole.is_file() else _byte_level(directory, config, specials)
        )
    # The library raises a bare Exception for a file that it cannot read.
    except Exception as error:  # noqa: BLE001
        _logger.warning("tokenizer is not used", directory=str(directory), error=str(error))
        return None
    added = tokenizer.get_added_tokens_decoder()
    special_ids = {token_id for token_id, token in added.items() if token.special}
    return LocalTokenizer(
        tokenizer,
        tuple(token_id for token_id in range(tokenizer.get_vocab_size()) if token_id not in special_ids),
        _chat_template(directory, config),
        specials,
    )


def _byte_level(directory: Path, config: Mapping[str, Any], specials: Mapping[str, str]) -> Tokenizer:
    """GPT-2's tokenizer from its two files, as its slow implementation would build it."""
    tokenizer = Tokenizer(models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt")))
    prefix = config.get("add_prefix_space") is True
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in dict.fromkeys(specials.values())]
    )
    bos = specials.get("bos_token")
    if config.get("add_bos_token") is True and bos is not None:
        bos_id = tokenizer.token_to_id(bos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, bos_id)]
        )
    return tokenizer


def _special_tokens(*documents: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for document in documents:
        for name in _SPECIALS:
            token = document.get(name)
            content = token.get("content") if isinstance(token, dict) else token
            if isinstance(content, str) and content:
                found.setdefault(name, content)
    return found


def _chat_template(directory: Path, config: Mapping[str, Any]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) and template else None


def _rendered(tokenizer: LocalTokenizer, messages: Sequence[ChatMessage]) -> str | None:
    """The chat as the model's template writes it; None without a template, or where it does not take this chat."""
    if tokenizer.chat_template is None:
        return None

    def refuse(message: str) -> str:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(tokenizer.chat_template).render(
            messages=[{"role": message.role, "content": message.text} for message in messages],
            add_generation_prompt=True,
            **tokenizer.special_tokens,
        )
    except (
        TemplateError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        _logger.info("chat template is not used", error=str(error))
        return None


def _json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    return document if isinstance(document, dict) else {}
