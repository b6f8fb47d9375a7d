"""The API: OpenAI's own client, unchanged, gets what `generate` gives; whatever is wrong is told in the API's form."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

import headway
from browsing import served
from encoder_folders import declare_pooling, write_encoder
from headway.serve.answers import spelled
from headway.serve.api import Api, Limits
from small_writer import small_writer

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"


@pytest.fixture(scope="module")
def gpt():
    return small_writer()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder, "Model")
    declare_pooling(folder, {"pooling_mode_mean_tokens": True}, unit=True)
    return headway.load(folder, "cpu")


@pytest.fixture(scope="module")
def address(gpt, encoder):
    api = Api({"small": gpt, "vectors": encoder, "translator": headway.load(FOLDER, "cpu")})
    with served(api.asgi) as found:
        yield found
    api.close()


@pytest.fixture(scope="module")
def client(address):
    return openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0)


def ask(address: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_completion_is_what_generate_gives(client, gpt):
    found = client.completions.create(model="small", prompt="the cat", max_tokens=12, temperature=0)
    assert found.choices[0].text == gpt.generate("the cat", max_new=12, temperature=0)
    assert found.choices[0].finish_reason == "length"
    assert found.usage.completion_tokens == 12 and found.usage.prompt_tokens == len(gpt.ids("the cat"))
    drawn = client.completions.create(model="small", prompt="the cat", max_tokens=12, seed=7, top_p=0.9)
    assert drawn.choices[0].text == gpt.generate("the cat", max_new=12, seed=7, top_p=0.9)
    bias = {str(gpt.tokenizer.end): 100.0}
    ends = client.completions.create(model="small", prompt="the cat", max_tokens=12, logit_bias=bias)
    assert (ends.choices[0].text, ends.choices[0].finish_reason) == ("", "stop")
    on = client.completions.create(
        model="small", prompt="the cat", max_tokens=12, logit_bias=bias, extra_body={"ignore_eos": True}
    )
    assert on.usage.completion_tokens == 12


def test_lists_of_prompts_ids_and_samples_are_answered_in_order(client, gpt):
    prompts = ["the cat", "the dog did"]
    found = client.completions.create(model="small", prompt=prompts, max_tokens=8, seed=3, n=2)
    wanted = gpt.generate_n(prompts, max_new=8, seed=3, samples=2)
    assert [choice.text for choice in found.choices] == [one.text for some in wanted for one in some]
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    by_ids = client.completions.create(model="small", prompt=gpt.ids("the cat"), max_tokens=8, temperature=0)
    assert by_ids.choices[0].text == gpt.generate("the cat", max_new=8, temperature=0)


def test_a_text_ends_before_a_stop_string(client, gpt):
    whole = gpt.generate("the", max_new=30, seed=1)
    stop = whole[5:7]
    found = client.completions.create(model="small", prompt="the", max_tokens=30, seed=1, stop=[stop])
    assert found.choices[0].text == whole[: whole.index(stop)] and found.choices[0].finish_reason == "stop"


def test_log_probabilities_and_alternatives_come_with_the_tokens(client, gpt):
    found = client.completions.create(model="small", prompt="the cat", max_tokens=5, temperature=0, logprobs=3)
    [[wanted]] = gpt.generate_n(["the cat"], max_new=5, temperature=0, top=3)
    scores = found.choices[0].logprobs
    assert scores.tokens == list(map(spelled, gpt.tokenizer.raw(wanted.written.ids)))
    assert spelled(b" caf\xc3\xa9") == " café" and spelled(b"\xc3") == r"bytes:\xc3"
    assert scores.text_offset[0] == len("the cat")
    assert scores.token_logprobs == pytest.approx(wanted.written.logps)
    assert [len(some) for some in scores.top_logprobs] == [3] * 5
    assert max(scores.top_logprobs[0].values()) == pytest.approx(scores.token_logprobs[0])


def test_the_token_that_ends_a_text_has_its_log_probability_too(client, gpt):
    """As vLLM tells it: who drops the last of prompt + 1 must not drop one of the prompt."""
    bias = {str(gpt.tokenizer.end): 100.0}
    asked: dict[str, Any] = {"model": "small", "prompt": "the cat", "max_tokens": 1, "logit_bias": bias, "logprobs": 2}
    found = client.completions.create(**asked, echo=True)
    ids = [*gpt.ids("the cat"), gpt.tokenizer.end]
    scores, wanted = found.choices[0].logprobs, gpt.model.score(torch.tensor([ids]))[0].tolist()
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("stop", 0)
    assert scores.tokens == list(map(spelled, gpt.tokenizer.raw(ids)))
    assert scores.token_logprobs[1:] == pytest.approx(wanted[1:], abs=1e-5)
    [part] = client.completions.create(**asked, stream=True)
    assert part.choices[0].logprobs.token_logprobs == pytest.approx(wanted[-1:], abs=1e-5)
    assert part.choices[0].logprobs.text_offset == [len("the cat")]


def test_an_echoed_prompt_is_scored_as_score_does(client, gpt):
    found = client.completions.create(model="small", prompt="the cat sat", max_tokens=0, echo=True, logprobs=1)
    [wanted] = gpt.model.score(torch.tensor([gpt.ids("the cat sat")])).tolist()
    own = found.choices[0].logprobs.token_logprobs
    assert own[0] is None and own[1:] == pytest.approx(wanted[1:], abs=1e-5)
    assert found.choices[0].text == gpt.tokenizer.decode(gpt.ids("the cat sat"))


def test_a_streamed_prompt_has_its_scores_and_nothing_behind_it(client):
    asked: dict[str, Any] = {"model": "small", "prompt": ["the cat", "a mat"], "echo": True, "logprobs": 1}
    whole = client.completions.create(**asked, max_tokens=0).choices
    parts = list(client.completions.create(**asked, max_tokens=0, stream=True, stream_options={"include_usage": True}))
    assert [part.choices[0] for part in parts[:-1]] == whole
    assert (parts[-1].usage.completion_tokens, parts[-1].usage.prompt_tokens > 0) == (0, True)
    behind = list(client.completions.create(**asked, max_tokens=3, seed=1, stream=True))
    assert behind[0].choices[0].text == whole[0].text and len(behind) == 2 + 6


@pytest.mark.parametrize("samples", [1, 2])
def test_a_stream_joins_to_the_whole_text(client, gpt, samples):
    asked: dict[str, Any] = {"model": "small", "prompt": "the dog", "max_tokens": 12, "seed": 2, "n": samples}
    texts, reasons, counted = [""] * samples, [], None
    for part in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in part.choices:
            texts[choice.index] += choice.text
            reasons += [choice.finish_reason] if choice.finish_reason else []
        counted = part.usage or counted
    assert texts == [choice.text for choice in client.completions.create(**asked).choices]
    assert reasons == ["length"] * samples and counted.completion_tokens == 12 * samples


def test_a_stream_has_an_event_for_each_token_even_if_it_has_no_text_yet(client):
    body = {"model": "small", "prompt": "the", "max_tokens": 30, "seed": 4, "temperature": 2.0}
    parts = list(client.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    told = [part.choices[0].text for part in parts[:-1]]
    assert len(told) == parts[-1].usage.completion_tokens > sum(map(bool, told))


def test_a_conversation_is_answered_whole_and_in_parts(client, gpt):
    messages: list[Any] = [{"role": "user", "content": "the cat"}]
    asked: dict[str, Any] = {"model": "small", "messages": messages, "max_tokens": 10, "temperature": 0}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert whole.choices[0].message.content == gpt.generate(messages, max_new=10, temperature=0)
    assert len(whole.choices[0].logprobs.content) == 10
    assert [len(one.top_logprobs) for one in whole.choices[0].logprobs.content] == [2] * 10
    parts = list(client.chat.completions.create(**asked, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
    listed: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}]
    assert client.chat.completions.create(**asked | {"messages": listed}).choices[0].message == whole.choices[0].message


SCHEMA = {
    "type": "object", "required": ["name", "age"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
}  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_under_a_schema_always_parses(client, seed):
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    found = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "a"}], response_format=form, seed=seed
    )
    told = json.loads(found.choices[0].message.content)
    assert found.choices[0].finish_reason == "stop" and set(told) == {"name", "age"}
    assert len(told["name"]) <= 3 and 0 <= told["age"] <= 99


def test_a_schema_that_cannot_be_met_is_refused(address):
    for schema in ({"type": "integer", "minimum": 5, "maximum": 3}, {"type": "nonsense"}, None):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        status, told = ask(address, "v1/completions", {"model": "small", "prompt": "a", "response_format": form})
        assert status == 400 and "schema" in told["error"]["message"]


def test_many_streams_at_once_get_each_their_own_text(address, gpt):
    asked = [(f"the {['cat', 'dog', 'mat'][i % 3]}", i, i % 2) for i in range(60)]
    wanted = [gpt.generate(text, seed=i, temperature=float(warm), max_new=4 + i % 9) for text, i, warm in asked]

    async def one(client: openai.AsyncOpenAI, text: str, i: int, warm: int) -> str:
        body: dict[str, Any] = {"prompt": text, "seed": i, "temperature": float(warm), "max_tokens": 4 + i % 9}
        stream = await client.completions.create(model="small", **body, stream=True)
        return "".join([part.choices[0].text async for part in stream])

    async def every() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{address}v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, *some) for some in asked))

    assert asyncio.run(every()) == wanted


def test_models_vectors_and_translations(client, address, encoder):
    assert {model.id for model in client.models.list()} == {"small", "vectors", "translator"}
    found = client.embeddings.create(model="vectors", input=["the cat", "the dog"])
    for own, vector in zip(found.data, encoder.embed(["the cat", "the dog"]), strict=True):
        assert own.embedding == pytest.approx(vector.tolist(), abs=1e-6)
    status, told = ask(address, "v1/translate", {"model": "translator", "input": "He drives the car"})
    assert (status, told["translations"]) == (200, [headway.load(FOLDER, "cpu").translate("He drives the car")])


BAD: dict[str, tuple[str, Any, int]] = {
    "no JSON": ("v1/completions", b"{", 400),
    "no object": ("v1/completions", [], 400),
    "an unknown model": ("v1/completions", {"model": "other", "prompt": "a"}, 404),
    "a long prompt": ("v1/completions", {"model": "small", "prompt": "the cat " * 100}, 400),
    "a negative temperature": ("v1/completions", {"model": "small", "prompt": "a", "temperature": -1}, 400),
    "an unknown setting": ("v1/completions", {"model": "small", "prompt": "a", "temprature": 1}, 400),
    "no prompt": ("v1/completions", {"model": "small"}, 400),
    "an empty list": ("v1/completions", {"model": "small", "prompt": []}, 400),
    "a wrong id": ("v1/completions", {"model": "small", "prompt": [10**6]}, 400),
    "an empty stop": ("v1/completions", {"model": "small", "prompt": "a", "stop": [""]}, 400),
    "nothing asked for": ("v1/completions", {"model": "small", "prompt": "a", "max_tokens": 0}, 400),
    "half a surrogate": ("v1/completions", b'{"model": "small", "prompt": "\\ud800"}', 400),
    "a biased id": ("v1/completions", {"model": "small", "prompt": "a", "logit_bias": {"999999": 1}}, 400),
    "a number for a switch": ("v1/completions", {"model": "small", "prompt": "a", "echo": 1}, 400),
    "a switch for a number": ("v1/completions", {"model": "small", "prompt": "a", "logprobs": False}, 400),
    "a switch for an id": ("v1/completions", {"model": "small", "prompt": [5, True]}, 400),
    "a text for a number": ("v1/completions", {"model": "small", "prompt": "a", "temperature": "0"}, 400),
    "no messages": ("v1/chat/completions", {"model": "small", "messages": []}, 400),
    "a picture": ("v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": [{}]}]}, 400),
    "an encoder": ("v1/completions", {"model": "vectors", "prompt": "a"}, 400),
    "no encoder": ("v1/embeddings", {"model": "small", "input": "a"}, 400),
    "a writer asked for labels": ("v1/predict", {"model": "small", "input": "a"}, 400),
    "a number for a schema": (
        "v1/completions",
        {
            "model": "small",
            "prompt": "a",
            "response_format": {"type": "text", "json_schema": {"schema": 0}},
        },
        400,
    ),
    "no translator": ("v1/translate", {"model": "small", "input": "a"}, 400),
    "10 MB": ("v1/completions", b"x" * 10_000_000, 413),
    "an unknown place": ("v1/other", {}, 404),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_in_the_form_of_the_api(address, name):
    path, body, wanted = BAD[name]
    status, told = ask(address, path, body)
    assert status == wanted
    assert list(told["error"]) == ["message", "type", "param", "code"] and told["error"]["message"]
    assert ask(address, "health") == (200, {"status": "ok"})


PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"prompt": []}, "prompt: list should have at least 1 item after validation, not 0"),
        ({"prompt": [5, True]}, "prompt.1: input should be a number"),
        ({"prompt": ["a", 5]}, "prompt.1: input should be a valid string"),
        ({"prompt": [[1, 2], [3, "x"]]}, "prompt.1.1: input should be a number"),
        ({"prompt": 5}, "prompt: input should be a valid string"),
        ({"prompt": "a", "str": 3}, "str: extra inputs are not permitted"),
        ({"messages": PICTURE}, "messages.0.content.0.type: input should be 'text'"),
    ],
)
def test_of_what_may_be_several_things_the_nearest_is_told(address, more, said):
    path = "v1/completions" if "prompt" in more else "v1/chat/completions"
    status, told = ask(address, path, {"model": "small", **more})
    assert (status, told["error"]["message"], told["error"]["param"]) == (400, said, said.split(":")[0])


def test_a_key_is_asked_for_and_a_rate_is_kept(gpt):
    api = Api({"small": gpt}, Limits(keys=frozenset({"right"}), rate=2, tokens=8))
    body = {"model": "small", "prompt": "the", "max_tokens": 2}
    with served(api.asgi) as address:
        assert ask(address, "v1/completions", body)[0] == 401
        assert ask(address, "v1/completions", body, authorization="Bearer wrong")[0] == 401
        known = {"authorization": "Bearer right"}
        assert ask(address, "v1/completions", body | {"max_tokens": 9}, **known)[0] == 400
        assert [ask(address, "v1/completions", body, **known)[0] for _ in range(2)] == [200, 429]
    api.close()


def test_an_answer_of_no_given_length_has_what_the_server_writes_at_most(gpt):
    api = Api({"small": gpt}, Limits(tokens=8))
    body = {"model": "small", "messages": [{"role": "user", "content": "the"}], "ignore_eos": True}
    with served(api.asgi) as address:
        status, told = ask(address, "v1/chat/completions", body)
    assert (status, told["usage"]["completion_tokens"]) == (200, 8)
    api.close()


def test_the_metrics_have_the_names_of_vllm(address, client):
    client.completions.create(model="small", prompt="the", max_tokens=3)
    with urllib.request.urlopen(f"{address}metrics") as answer:
        text = answer.read().decode()
    for name in ("generation_tokens_total", "num_requests_running", "time_to_first_token_seconds_bucket"):
        assert f"vllm:{name}{{" in text
    with urllib.request.urlopen(address) as answer:
        assert b"<html" in answer.read()


def counted(address, name):
    with urllib.request.urlopen(f"{address}metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"vllm:{name}{{"))


def test_what_prompts_begin_with_alike_is_read_once(address, client):
    instructions = "the cat sat on the mat " * 7
    endings = ["a dog", "the end of it", "one"]
    before = counted(address, "prefix_cache_hits_total")
    first = [ask_once(client, instructions + end) for end in endings]
    shared = counted(address, "prefix_cache_hits_total") - before
    assert shared >= 2 * 32 and counted(address, "prefix_cache_queries_total") > shared
    assert [ask_once(client, instructions + end) for end in endings] == first


def ask_once(client, prompt):
    return client.completions.create(model="small", prompt=prompt, max_tokens=5, temperature=0).choices[0].text


def test_a_signal_lets_what_runs_end_and_refuses_the_rest(tmp_path):
    out = tmp_path / "model"
    torch.manual_seed(5)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat on the mat\n" * 200)
    settings = ["engine.steps=2", "model.layers=1", "model.width=16", "model.heads=2", "data.text.size=280"]
    words = [word for setting in settings for word in ("--set", setting)]
    run = [sys.executable, "-m", "headway", "train", "gpt", "--data", str(corpus), "--out", str(out), *words]
    subprocess.run(run, check=True, capture_output=True)
    serving = subprocess.Popen(
        [sys.executable, "-m", "headway", "serve", str(out), "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert serving.stderr is not None
    line = serving.stderr.readline()
    address = line.split(" at ")[1].split("v1")[0]
    body = {"model": "model" if "headway: model at" in line else line.split()[1], "prompt": "the", "max_tokens": 400}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, address, "v1/completions", body)
        before = time.monotonic()
        while b"running{" not in (text := urllib.request.urlopen(f"{address}metrics").read()) or b"} 1.0" not in text:
            assert time.monotonic() - before < 60
        os.kill(serving.pid, signal.SIGTERM)
        status, told = answer.result()
    assert serving.wait(60) == 0
    assert status == 200 and told["choices"][0]["finish_reason"]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}health", timeout=5)
