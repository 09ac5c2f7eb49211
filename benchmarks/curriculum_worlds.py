"""The pools that selection is tried on, with what their validation sets ask for: chains of the built-in policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from pipeline_lib.config import ChainKind, ChainSource, Generation
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt

Kinds = Sequence[ChainKind]
Part = tuple[Kinds, Sequence[int]]
"""Kinds and lengths, in equal shares."""

WorldName = Literal["homogeneous", "heterogeneous", "extremes", "quarter_wrong", "half_wrong", "apart"]


@dataclass(frozen=True)
class World:
    """`pool` are shares of the pool with their chains; `targets` what each validation set and the evaluation ask."""

    pool: Sequence[tuple[float, Part]]
    targets: dict[str, Part]
    untargeted: Part
    wrong_golds: float = 0.0
    """Share of the pool whose gold answer is another digit than the right one."""
    max_tokens: int = 40

    @property
    def generation(self) -> Generation:
        return Generation(max_tokens=self.max_tokens, max_prompt_tokens=32, batch_size=1024)


LONG = [4, 5, 6]
EVERY_LENGTH = [1, 2, 3, 4, 5, 6]
MINUS_AND_MIXED: dict[str, Part] = {"minus": (["minus"], LONG), "mixed": (["mixed"], LONG)}
ASKED_FOR = World([(1.0, (["minus", "mixed"], EVERY_LENGTH))], MINUS_AND_MIXED, (["times", "max"], LONG))

WORLDS: dict[WorldName, World] = {
    "homogeneous": ASKED_FOR,
    "heterogeneous": replace(
        ASKED_FOR,
        pool=[(0.5, (["minus", "mixed"], EVERY_LENGTH)), (0.5, (["plus", "times", "max"], EVERY_LENGTH))],
    ),
    # 22 tokens hold the solution of four operations: longer chains are never right, those of one or two of plus nearly
    # always.
    "extremes": World(
        [
            (0.4, (["plus", "max"], [2])),
            (0.3, (["minus", "mixed"], [5, 6])),
            (0.3, (["minus", "mixed"], [2, 3, 4])),
        ],
        {"minus": (["minus"], [3, 4]), "mixed": (["mixed"], [3, 4])},
        (["times"], [3, 4]),
        max_tokens=22,
    ),
    "quarter_wrong": replace(ASKED_FOR, wrong_golds=0.25),
    "half_wrong": replace(ASKED_FOR, wrong_golds=0.5),
    # One set's skill fills most of the pool, the other's a tenth of it.
    "apart": World(
        [(0.6, (["minus"], EVERY_LENGTH)), (0.1, (["times"], EVERY_LENGTH)), (0.3, (["plus", "max"], EVERY_LENGTH))],
        {"minus": (["minus"], LONG), "times": (["times"], LONG)},
        (["max"], LONG),
    ),
}


@dataclass(frozen=True)
class Prompts:
    """A pool as one seed draws it. No prompt of the pool stands in another set."""

    pool: list[Prompt]
    validation: dict[str, list[Prompt]]
    targeted: list[Prompt]
    untargeted: list[Prompt]
    wrong: frozenset[str] = field(default=frozenset())
    """prompt_ids of the pool with a wrong gold."""


def draw(world: World, size: int, validation_size: int, evaluation_size: int, seed: int) -> Prompts:
    """`validation_size` prompts of each validation set; `evaluation_size` of the targeted ones, half of untargeted."""
    validation = {name: _chains(part, validation_size, 1000 + seed) for name, part in world.targets.items()}
    share = evaluation_size // len(world.targets)
    targeted = [prompt for part in world.targets.values() for prompt in _chains(part, share, 2000 + seed)]
    untargeted = _chains(world.untargeted, evaluation_size // 2, 3000 + seed)
    held_out = {p.prompt_id for prompts in (*validation.values(), targeted, untargeted) for p in prompts}
    parts = [_chains(part, round(share * size), 4000 + seed) for share, part in world.pool]
    pool = list({p.prompt_id: p for prompts in parts for p in prompts if p.prompt_id not in held_out}.values())
    random = Random(seed)
    wrong = frozenset(p.prompt_id for p in random.sample(pool, round(world.wrong_golds * len(pool))))
    pool = [_with_wrong_gold(p, random) if p.prompt_id in wrong else p for p in pool]
    return Prompts(pool, validation, targeted, untargeted, wrong)


def _chains(part: Part, count: int, seed: int) -> list[Prompt]:
    kinds, lengths = part
    source = ChainSource(kinds=list(kinds), lengths=list(lengths), count=count, seed=seed)
    return [prompt for _, prompt in read_chains(source)]


def _with_wrong_gold(prompt: Prompt, random: Random) -> Prompt:
    return replace(prompt, gold=str((int(prompt.gold) + random.randint(1, 9)) % 10))
