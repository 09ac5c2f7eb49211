"""Prompts: adapters that turn data sets and generators into prompts, and the ingest that merges them."""

from __future__ import annotations

from pipeline_lib.prompts import gsm8k, human_eval, math, open_instruct, openrlhf, question_answer, trl, verl
from pipeline_lib.prompts.rows import Format

# The names are those of config.prompts.DataFormat.
FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        verl.FORMAT,
        trl.FORMAT,
        openrlhf.FORMAT,
        open_instruct.FORMAT,
        math.FORMAT,
        gsm8k.FORMAT,
        question_answer.FORMAT,
        human_eval.FORMAT,
    )
}
