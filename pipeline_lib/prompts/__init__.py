"""Prompts: adapters that turn data sets and generators into prompts, and the ingest that merges them."""

from __future__ import annotations

from pipeline_lib.prompts import gsm8k, trl, verl
from pipeline_lib.prompts.rows import Format

# Tried in this order: what verl writes also has the columns of the simpler formats.
FORMATS: dict[str, Format] = {form.name: form for form in (verl.FORMAT, trl.FORMAT, gsm8k.FORMAT)}
