"""Outcomes of a task as a plain file, from which the priors of another task start.

JSON lines of the rows themselves, not a fitted model: a fit is a function of rows and seed and takes
seconds, while a pickle (joblib) runs whatever code it holds and reads only with the scikit-learn that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pipeline_lib.atomic import write_text
from pipeline_lib.sampling.priors.rows import Row, Text


def save_rows(path: Path, rows: Iterable[Row]) -> None:
    """One line a row, oldest first."""
    lines = [{**row.text._asdict(), "n": row.n, "n_correct": row.n_correct} for row in rows]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def load_rows(path: Path) -> list[Row]:
    """The rows that `save_rows` wrote. Raises ValueError where `path` is missing or is no such file."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [
            Row(Text(line["prompt_id"], line["data_source"], line["text"]), int(line["n"]), int(line["n_correct"]))
            for line in lines
        ]
    except FileNotFoundError:
        raise ValueError(f"train.sampler.prior.warm_start={path}: no such file; {_REMEDY}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"train.sampler.prior.warm_start={path}: not rows of outcomes ({error!r}); {_REMEDY}"
        ) from None


_REMEDY = "give the prior.jsonl of a finished stage, or leave warm_start out"
