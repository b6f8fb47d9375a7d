"""/v1/predict answers what `headway predict` answers; the description names models and errors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from browsing import served
from headway.serve.api import Api
from small_writer import small_writer

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    api = Api({"small": small_writer(), "translator": headway.load(FOLDER, "cpu")})
    with served(api.asgi) as found:
        yield found
    api.close()


def ask(address: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_predictions_are_those_of_the_models_task(address: str) -> None:
    status, told = ask(address, "v1/predict", {"model": "translator", "input": ["He drives the car"]})
    expected = headway.load(FOLDER, "cpu").translate("He drives the car")
    assert status == 200
    assert told["predictions"] == [{"text": "He drives the car", "translation": expected}]


@pytest.mark.parametrize(
    "body",
    [
        {"model": "translator", "input": []},
        {"model": "translator", "input": [3]},
        {"model": "translator", "input": "a", "options": {"beams": 3}},
        {"model": "small", "input": "a"},  # opened without a folder
    ],
)
def test_what_cannot_be_predicted_is_refused(address: str, body: dict[str, Any]) -> None:
    status, told = ask(address, "v1/predict", body)
    assert status == 400 and told["error"]["message"]


def test_the_description_names_the_models_and_the_form_of_errors(address: str) -> None:
    _, told = ask(address, "openapi.json")
    schemas = told["components"]["schemas"]
    assert schemas["PredictionRequest"]["properties"]["model"]["enum"] == ["small", "translator"]
    for path in ("/v1/completions", "/v1/predict"):
        assert {"400", "401", "404", "429", "503"} <= set(told["paths"][path]["post"]["responses"])
    answers = told["paths"]["/v1/completions"]["post"]["responses"]["200"]["content"]
    assert set(answers) == {"application/json", "text/event-stream"}
