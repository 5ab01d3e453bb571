"""Local tokenizers: the whole file, the two files of GPT-2 and OPT, chat templates, and what happens without."""

import json
from pathlib import Path
from typing import Any

import pytest
from cascade_api.openai import tokenizers
from cascade_api.openai.bodies import ChatMessage, Prompt
from cascade_api.openai.tokenizers import chat_size, estimated_tokens, find, prompt_size
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE

MODEL = "facebook/tiny"
HELLO = Prompt(text="hello hello")


def write_opt(directory: Path, **config: Any) -> None:
    """A byte-level BPE in OPT's files: BOS `</s>` of id 2, one merge."""
    directory.mkdir(parents=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    vocabulary |= {letter: 4 + index for index, letter in enumerate(letters)}
    vocabulary["he"] = len(vocabulary)
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\nh e\n")
    special: dict[str, Any] = {"bos_token": {"content": "</s>"}, "eos_token": "</s>", "pad_token": "<pad>"}
    (directory / "special_tokens_map.json").write_text(json.dumps(special))
    (directory / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True, **config}))


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    tokenizers._loaded.cache_clear()


def test_opts_two_files_make_its_tokenizer_with_its_bos(tmp_path: Path) -> None:
    write_opt(tmp_path / MODEL)
    tokenizer = find(tmp_path, MODEL)
    assert tokenizer is not None
    ids = tokenizer.tokenizer.encode("hello").ids
    assert ids[0] == 2  # </s>
    assert len(ids) == 1 + 4  # he, l, l, o
    assert prompt_size(tokenizer, HELLO) == tokenizers.PromptSize(1 + 4 + 5, "tokenizer")
    assert 2 not in tokenizer.vocabulary
    assert tokenizer.decode(ids[1:]) == "hello"


def test_without_add_bos_token_there_is_none(tmp_path: Path) -> None:
    write_opt(tmp_path / MODEL, add_bos_token=False)
    assert prompt_size(find(tmp_path, MODEL), HELLO).tokens == 9


def test_a_whole_tokenizer_file_goes_first(tmp_path: Path) -> None:
    write_opt(tmp_path / MODEL)
    whole = Tokenizer(BPE({"h": 0, "e": 1, "l": 2, "o": 3}, []))
    whole.save(str(tmp_path / MODEL / "tokenizer.json"))
    tokenizer = find(tmp_path, MODEL)
    assert tokenizer is not None
    assert tokenizer.vocabulary == (0, 1, 2, 3)


def test_hugging_faces_cache_is_read(tmp_path: Path) -> None:
    write_opt(tmp_path / "models--facebook--tiny" / "snapshots" / "abc123")
    assert find(tmp_path, MODEL) is not None


@pytest.mark.parametrize(
    "name", [None, "", "..", "../x", "a/../b", "a/..", "/etc", "a/b/c", "a\x00b", "a b", "nope"]
)
def test_a_name_that_is_no_model_finds_nothing(tmp_path: Path, name: str | None) -> None:
    write_opt(tmp_path / "x")
    assert find(tmp_path / "inner", name) is None


@pytest.mark.parametrize("body", ["", "{", "[]", '{"model": {"type": "??"}}'])
def test_a_damaged_tokenizer_is_as_good_as_none(tmp_path: Path, body: str) -> None:
    (tmp_path / MODEL).mkdir(parents=True)
    (tmp_path / MODEL / "tokenizer.json").write_text(body)
    assert find(tmp_path, MODEL) is None


def test_without_a_tokenizer_four_bytes_are_a_token() -> None:
    assert prompt_size(None, Prompt(text="Hello, my name is")).tokens == 5
    assert prompt_size(None, Prompt(text="")).tokens == 1
    assert estimated_tokens("日本語") == 3
    assert estimated_tokens("\ud800") == 1


def test_ids_that_were_sent_count_as_they_are(tmp_path: Path) -> None:
    write_opt(tmp_path / MODEL)
    assert prompt_size(find(tmp_path, MODEL), Prompt(token_ids=7)) == tokenizers.PromptSize(7, "token_ids")


def messages(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text) for text in texts]


def test_a_chat_is_counted_by_its_template(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
    write_opt(tmp_path / MODEL, chat_template=template)
    size = chat_size(find(tmp_path, MODEL), messages("he", "he"))
    assert size == tokenizers.PromptSize(1 + 2 + 2, "tokenizer:chat_template")  # </s> u he u he


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{% if %}",
        "{{ messages.nope.nope }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_does_not_work_is_left_for_the_joined_text(tmp_path: Path, template: str) -> None:
    write_opt(tmp_path / MODEL, chat_template=template)
    size = chat_size(find(tmp_path, MODEL), messages("he", "he"))
    assert size == tokenizers.PromptSize(1 + 3, "tokenizer:joined")  # </s> he \n he


def test_a_named_list_of_templates_gives_its_default(tmp_path: Path) -> None:
    named = [
        {"name": "tool_use", "template": "x"},
        {"name": "default", "template": "{{ messages[0].content }}"},
    ]
    write_opt(tmp_path / MODEL, chat_template=named)
    assert chat_size(find(tmp_path, MODEL), messages("he")).source == "tokenizer:chat_template"
