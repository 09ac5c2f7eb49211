"""The ways to choose that are compared: what is known of a pool -> the prompts to train on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from pipeline_lib.config import (
    AllSelection,
    InfluenceSelection,
    LearnabilitySelection,
    PassRateSelection,
    PosteriorSampler,
    RandomSelection,
    RelevanceSelection,
    Sampler,
    Selection,
    UniformSampler,
)
from pipeline_lib.influence.scores import InfluenceScores
from pipeline_lib.selection import Candidates, Likeness, select
from pipeline_lib.selection.ranks import ranks_by_set

ALPHA = 0.1

By = Literal["cosine", "dot", "tokens", "signal"]
"""What ranks prompts: the cosine, the inner product, that times the tokens of a completion (what the DAPO loss gives a
prompt in a batch), or the cosine times the standard deviation of the reward."""


@dataclass(frozen=True)
class Measured:
    scores: InfluenceScores
    tokens_N: np.ndarray
    """Mean length of a completion."""


UNIFORM = UniformSampler()


@dataclass(frozen=True)
class Arm:
    selection: Selection
    sampler: Sampler = UNIFORM
    geometry: Literal["euclidean", "adam"] | None = None
    by: By = "cosine"
    rescored: bool = True
    """Whether each stage is scored by its own starting policy, or all by the first."""
    screen: float | None = None
    """Influence is asked only of the top screen·α by p(1-p); None asks it of all."""
    rolled_out: tuple[int | None, int] = (None, 8)
    """How many prompts before the first stage, drawn at random, and how often each; None is all."""
    prompts_per_step: int = 32
    oracle: bool = False
    """Told which prompts are of the kinds asked for and have their right golds."""

    @property
    def collects(self) -> bool:
        """Whether the pool is rolled out before the first stage."""
        return self.selection.type not in ("all", "random")

    @property
    def relates(self) -> bool:
        """Whether the pool is compared with the validation sets before the first stage."""
        return self.selection.type == "relevance"

    def asked(self, pass_rate: Mapping[str, tuple[int, int]]) -> list[str]:
        """The prompts that influence is measured of: all, or those that pass the screen."""
        ids = list(pass_rate)
        if self.screen is None:
            return ids
        screen = Arm(LearnabilitySelection(alpha=self.screen * ALPHA))
        passed = set(screen.select(ids, pass_rate, (0, 0)))
        return [i for i in ids if i in passed]

    def select(
        self,
        prompt_ids: Sequence[str],
        pass_rate: Mapping[str, tuple[int, int]],
        seed: tuple[int, int],
        *,
        signal: Collection[str] = (),
        tokens: Mapping[str, float] = MappingProxyType({}),
        measured: Measured | None = None,
        likeness: Likeness | None = None,
    ) -> list[str]:
        """`prompt_ids` are those that there are to choose from, `measured` and `likeness` are of them; `signal` has
        those whose first rollouts differed, or newest ones of any age for `likeness`, `tokens` the newest mean length
        of completions."""
        n = np.array([pass_rate[i][0] for i in prompt_ids])
        right = np.array([pass_rate[i][1] for i in prompt_ids])
        p = np.divide(right, n, out=np.full(len(n), np.nan), where=n > 0)
        mixed = np.array([i in signal for i in prompt_ids])
        rank_NV = None
        if measured is not None:
            assert list(measured.scores.prompt_ids) == list(prompt_ids)
            rank_NV = ranks_by_set(self._values(measured, p), np.array(prompt_ids))
        sets: Sequence[str] = () if measured is None else measured.scores.validation_sets
        if likeness is not None:
            sets = [str(j) for j in range(likeness.relevance_NV.shape[1])]
        candidates = Candidates(
            prompt_ids=np.array(prompt_ids, dtype=object),
            pass_rate=p,
            n=n,
            tokens=np.array([tokens.get(i, np.nan) for i in prompt_ids]),
            outcome=np.where(mixed, "mixed", "all_wrong"),
            has_signal=mixed,
            rank_NV=rank_NV,
            likeness=likeness,
            validation_sets=sets,
        )
        share = min(1.0, ALPHA * len(pass_rate) / len(prompt_ids))
        selection = self.selection.model_copy(update={"alpha": share}) if self.screen else self.selection
        chosen = select(selection, candidates, seed)
        return chosen.filter(chosen["selected"])["prompt_id"].to_pylist()

    def _values(self, measured: Measured, p_N: np.ndarray) -> np.ndarray:
        match self.by:
            case "cosine":
                return measured.scores.cosine
            case "dot":
                return measured.scores.dot
            case "tokens":
                return measured.scores.dot * measured.tokens_N[:, None]
            case "signal":
                return measured.scores.cosine * np.sqrt(p_N * (1 - p_N))[:, None]


RELEVANCE = RelevanceSelection()
FEW = (128, 4)
INFLUENCE = InfluenceSelection(alpha=ALPHA)

ARMS: dict[str, Arm] = {
    "full": Arm(AllSelection()),
    "full posterior": Arm(AllSelection(), PosteriorSampler()),
    "random": Arm(RandomSelection(alpha=ALPHA)),
    "pass rate": Arm(PassRateSelection(alpha=ALPHA)),
    "learnability": Arm(LearnabilitySelection(alpha=ALPHA)),
    "learnability posterior": Arm(LearnabilitySelection(alpha=ALPHA), PosteriorSampler()),
    "relevance": Arm(RELEVANCE, rolled_out=FEW),
    "relevance of all": Arm(RELEVANCE),
    "relevance per completion": Arm(RelevanceSelection(per_token=False), rolled_out=FEW),
    "relevance posterior": Arm(RELEVANCE, PosteriorSampler(), rolled_out=FEW),
    "full 16": Arm(AllSelection(), prompts_per_step=16),
    "learnability 16": Arm(LearnabilitySelection(alpha=ALPHA), prompts_per_step=16),
    "relevance 16": Arm(RELEVANCE, rolled_out=FEW, prompts_per_step=16),
    "oracle 16": Arm(AllSelection(), prompts_per_step=16, oracle=True),
    "cosine": Arm(INFLUENCE, geometry="euclidean"),
    "cosine static": Arm(INFLUENCE, geometry="euclidean", rescored=False),
    "dot": Arm(INFLUENCE, geometry="euclidean", by="dot"),
    "adam": Arm(INFLUENCE, geometry="adam"),
    "adam posterior": Arm(INFLUENCE, PosteriorSampler(), geometry="adam"),
    "adam static": Arm(INFLUENCE, geometry="adam", rescored=False),
    "adam dot": Arm(INFLUENCE, geometry="adam", by="dot"),
    "adam tokens": Arm(INFLUENCE, geometry="adam", by="tokens"),
    "adam signal": Arm(INFLUENCE, geometry="adam", by="signal"),
    "screened": Arm(INFLUENCE, geometry="adam", screen=3.0),
    "screened tokens": Arm(INFLUENCE, geometry="adam", screen=3.0, by="tokens"),
    "screened posterior": Arm(INFLUENCE, PosteriorSampler(), geometry="adam", screen=3.0),
}
