"""Likeness in text: the arithmetic by hand, and a real if tiny sentence-transformers model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_lib import similarity
from pipeline_lib.records import Prompt
from pipeline_lib.similarity import SIMILARITY_SCHEMA, cosine_to_centroid, embed, similarities

CPU = torch.device("cpu")
WORDS = ["plus", "minus", "times", "max", "one", "two", "three", "four"]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="sentence-transformers is not installed (extra `embeddings`)",
)


def prompt(text: str, system: str = "Be brief.") -> Prompt:
    messages = ({"role": "system", "content": system}, {"role": "user", "content": text})
    return Prompt(data_source="words", messages=messages, gold="1", verifier="exact")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT of one random layer with mean pooling, saved as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    directory = tmp_path_factory.mktemp("encoder")
    (directory / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=5 + len(WORDS), max_position_embeddings=32, **shape)).save_pretrained(
            directory / "bert"
        )
    BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory / "bert")
    words = Transformer(str(directory / "bert"))
    SentenceTransformer(modules=[words, Pooling(16)], device="cpu").save(str(directory / "model"))
    return str(directory / "model")


def test_cosine_to_the_centroid_by_hand() -> None:
    unit_ND = np.array([[1, 0], [0.6, 0.8], [0, -1]], dtype=np.float32)
    # The mean of (1, 0) and (0, 1) points along (1, 1) / √2.
    assert cosine_to_centroid(unit_ND, np.eye(2)) == pytest.approx(np.array([1, 1.4, -1]) / np.sqrt(2))
    assert cosine_to_centroid(unit_ND, np.array([[1, 0], [-1, 0]])).tolist() == [0, 0, 0]


def test_each_prompt_meets_each_set_by_its_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    directions = {"east": (1.0, 0.0), "north": (0.0, 1.0), "west": (-1.0, 0.0)}
    monkeypatch.setattr(
        similarity, "embed", lambda texts, model, device: np.array([directions[text] for text in texts])
    )
    pool = [prompt("east"), prompt("west", system="Be long.")]
    validation = {"v": [prompt("east"), prompt("north")], "w": [prompt("west")]}
    table = similarities(pool, validation, "any", device=CPU)
    assert table.schema == SIMILARITY_SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (pool[0].prompt_id, "v", pytest.approx(0.5**0.5)),
        (pool[1].prompt_id, "v", pytest.approx(-(0.5**0.5))),
        (pool[0].prompt_id, "w", -1.0),
        (pool[1].prompt_id, "w", 1.0),
    ]


@needs_package
def test_a_real_model_gives_unit_vectors_and_the_same_text_the_same_place(model: str) -> None:
    unit_ND = embed(["plus one two", "times three", "plus one two"], model, device=CPU)
    assert unit_ND.shape == (3, 16)
    assert np.linalg.norm(unit_ND, axis=1) == pytest.approx(1, abs=1e-6)
    table = similarities(
        [prompt("plus one two"), prompt("times three")], {"v": [prompt("plus one two")]}, model, device=CPU
    )
    same, other = table["cosine"].to_pylist()
    assert same == pytest.approx(1, abs=1e-6)
    assert other < 1 - 1e-4


@needs_package
def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(ValueError, match=rf"diagnosis.embedding_model={path}: cannot be loaded"):
            embed(["one"], str(path), device=CPU)


def test_a_missing_package_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ValueError, match=r'embedding_model=m: needs .*"rlsift\[embeddings\]".*embedding_model=null'):
        embed(["one"], "m", device=CPU)
