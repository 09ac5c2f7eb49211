"""How near prompts are to validation sets in text, by a sentence-transformers model. N texts, D dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch

from pipeline_lib.records import Prompt

SIMILARITY_SCHEMA = pa.schema(
    {"prompt_id": pa.string(), "validation_set": pa.string(), "cosine": pa.float64()},
)


def similarities(
    pool: Sequence[Prompt], validation: Mapping[str, Sequence[Prompt]], model: str, *, device: torch.device
) -> pa.Table:
    """Cosine of each prompt of the pool to the centroid of each set; rows of SIMILARITY_SCHEMA. Raises ValueError.

    A prompt's text is its last message: system prompt and solved examples are the same for many prompts, and
    would make all of them alike.
    """
    texts = [prompt.messages[-1]["content"] for prompt in (*pool, *(p for ps in validation.values() for p in ps))]
    unit_ND = embed(texts, model, device=device)
    pool_ND, held_out_ND = unit_ND[: len(pool)], unit_ND[len(pool) :]
    ends = np.cumsum([len(prompts) for prompts in validation.values()])[:-1]
    ids = pa.array([prompt.prompt_id for prompt in pool], pa.string())
    tables = [
        pa.table(
            {
                "prompt_id": ids,
                "validation_set": pa.array([name] * len(pool), pa.string()),
                "cosine": cosine_to_centroid(pool_ND, set_ND),
            },
            SIMILARITY_SCHEMA,
        )
        for name, set_ND in zip(validation, np.split(held_out_ND, ends), strict=True)
    ]
    return pa.concat_tables(tables)


def cosine_to_centroid(unit_ND: np.ndarray, set_ND: np.ndarray) -> np.ndarray:
    """[N] cosines of rows of length 1 to the mean of the set's; 0 where the set's rows cancel out."""
    centroid_D = set_ND.mean(axis=0, dtype=np.float64)
    length = np.linalg.norm(centroid_D)
    return unit_ND.astype(np.float64) @ (centroid_D / length if length > 0 else centroid_D)


def embed(
    texts: Sequence[str], model: str, *, device: torch.device, key: str = "diagnosis.embedding_model"
) -> np.ndarray:
    """[N, D] float32 embeddings of length 1. Raises ValueError where the package or the model is missing.

    `key` is where the config names the model.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ValueError(
            f"{key}={model}: needs the package sentence-transformers, which is not installed; "
            f'pip install "rlsift[embeddings]", or set {key}=null'
        ) from None
    try:
        encoder = SentenceTransformer(model, device=str(device))
    except (OSError, ValueError) as error:  # no such directory or hub id; no model in it
        raise ValueError(f"{key}={model}: cannot be loaded: {error}") from error
    embeddings_ND: np.ndarray = encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    return embeddings_ND
