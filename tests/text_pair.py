"""A stand-in for a pair of towers of a CLIP-style model: colours and their names."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("onnxruntime")

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def save_graph(path, nodes, inputs, output, weights=()):
    helper = onnx.helper
    graph = helper.make_graph(nodes, "tower", inputs, [output], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def save_pair(folder: Path) -> None:
    """The image tower gives the mean colour, the text tower the sum of its words' colours."""
    helper, kinds = onnx.helper, onnx.TensorProto
    vector = helper.make_tensor_value_info
    save_graph(
        folder / "vision_model.onnx",
        [
            helper.make_node("GlobalAveragePool", ["pixel_values"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["image_embeds"]),
        ],
        [vector("pixel_values", kinds.FLOAT, ["n", 3, 8, 8])],
        vector("image_embeds", kinds.FLOAT, ["n", 3]),
    )
    table = np.vstack([np.zeros((1, 3)), np.array(list(COLOURS.values())) - 85]).astype(np.float32)
    save_graph(
        folder / "text_model.onnx",
        [
            helper.make_node("Gather", ["words", "input_ids"], ["each"]),
            helper.make_node("ReduceMean", ["each"], ["text_embeds"], axes=[1], keepdims=0),
        ],
        [vector("input_ids", kinds.INT64, ["n", "length"])],
        vector("text_embeds", kinds.FLOAT, ["n", 3]),
        [onnx.numpy_helper.from_array(table, "words")],
    )
    words = {"[UNK]": 0, **{name: i for i, name in enumerate(COLOURS, 1)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
