"""What influence scores cost and what they are worth: `python benchmarks/influence.py [SECTION ...]`.

Every section measures all that it compares in this one process, on two threads, and writes
benchmarks/results/influence-<section>.json; without a name every section runs. benchmarks/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from influence_cases import (
    Rows,
    builtin_policy,
    chain_pool,
    medium_policy,
    random_groups,
    seconds,
    smollm2_policy,
)
from influence_layout import section_contraction, section_shared_prefix
from machine import processor
from rich.console import Console
from rich.table import Table

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.cascade import parameters_of_last_blocks
from pipeline_lib.influence.exact import exact_products
from pipeline_lib.influence.features import Features
from pipeline_lib.influence.objective import (
    gradient,
    group_gradient,
    requiring_grad,
    scored_parameters,
    surrogate,
    weighted_trajectories,
)
from pipeline_lib.influence.pack import attention_share, make_pack, packs, rows_of
from pipeline_lib.influence.projected import projection_of, scores_of_features
from pipeline_lib.influence.scores import InfluenceScores, scores_from_products
from pipeline_lib.influence.stability import spearman
from pipeline_lib.influence.validation import Directions, validation_directions
from pipeline_lib.policy import Policy
from pipeline_lib.policy.checkpointing import checkpointing
from pipeline_lib.records import RolloutGroup

RESULTS = Path(__file__).parent / "results"
TOKENS = 4096


def ignore(_: int) -> None:
    pass


def random_directions(policy: Policy, n: int = 2) -> Directions:
    generator = torch.Generator().manual_seed(1)
    parameters = scored_parameters(policy.model)
    values = [torch.randn(n, p.numel(), generator=generator) for p in parameters]
    return Directions(tuple(f"set-{j}" for j in range(n)), values)


def exact(policy: Policy, groups: Sequence[RolloutGroup], directions: Directions) -> InfluenceScores:
    products = exact_products(
        policy,
        groups,
        directions,
        scored_parameters(policy.model),
        temperature=1.0,
        tokens_per_micro_batch=TOKENS,
        progress=ignore,
    )
    return scores_from_products(products, directions.names, directions.norms())


# --- cost: exact beside one forward, and one forward and backward, over the same rows -------------------------


def over_packs(policy: Policy, groups: Sequence[RolloutGroup], *, shared: bool, backward: bool) -> None:
    """A plain pass over the same packs: with `backward`, the gradient of the whole, as training takes it."""
    share = attention_share(policy) if shared else None
    rows = [rows_of(weighted_trajectories(group), share, TOKENS) for group in groups]
    parameters = scored_parameters(policy.model) if backward else []
    with requiring_grad(policy, parameters), torch.set_grad_enabled(backward):
        for members in packs(rows, TOKENS):
            J = surrogate(policy, make_pack([rows[i] for i in members], policy), temperature=1.0)
            if backward:
                J.backward()
    for parameter in parameters:
        parameter.grad = None


def cost(policy: Policy, name: str, sizes: Sequence[tuple[int, int, int]]) -> Rows:
    """`sizes` are (prompts, prompt tokens, completion tokens), 8 completions a prompt, 2 validation sets."""
    directions = random_directions(policy)
    rows = []
    for n, prompt, completion in sizes:
        groups = random_groups(policy, n, prompt=prompt, completion=completion)
        times = 2 if n * (prompt + 8 * completion) < 20_000 else 1
        forward = seconds(lambda: over_packs(policy, groups, shared=True, backward=False), times)
        plain = seconds(lambda: over_packs(policy, groups, shared=True, backward=True), times)
        apart = seconds(lambda: over_packs(policy, groups, shared=False, backward=True), times)
        scored = seconds(lambda: exact(policy, groups, directions), times)
        with checkpointing(policy.model, True, reentrant=True):
            saving = seconds(lambda: exact(policy, groups, directions), times)
        rows.append(
            {
                "policy": name,
                "prompts": n,
                "prompt tokens": prompt,
                "completion tokens": completion,
                "forward s": forward,
                "exact / forward": scored / forward,
                "exact / forward+backward": scored / plain,
                "with checkpointing / forward+backward": saving / plain,
                "forward+backward in rows of their own / exact": apart / scored,
            }
        )
    return rows


def section_cost(root: Path) -> Rows:
    medium = [(32, 64, 32), (16, 64, 256), (4, 64, 1024)]
    small = cost(medium_policy(), "Qwen2, 5.3 M", medium)
    return small + cost(smollm2_policy(root), "SmolLM2, 135 M", [(8, 150, 20), (4, 150, 128)])


# --- the published way: a backward pass a prompt, mask, dense Gaussian -----------------------------------------


class Published:
    """Per-prompt backward, mask(0.1), Gaussian Johnson-Lindenstrauss: CROPI, arXiv 2510.26491.

    The Gaussian is drawn once for all the prompts, which flatters it: the release draws it for every four.
    """

    def __init__(self, policy: Policy, dimension: int, keep_ratio: float = 0.1) -> None:
        config = ProjectedInfluence(dimension=dimension, keep_ratio=keep_ratio, kind="gaussian")
        self.policy = policy
        self.projection = projection_of(config, policy)

    def gradient_seconds(self, groups: Sequence[RolloutGroup]) -> float:
        """Of one prompt: its trajectories in rows of their own, flattened, masked."""

        def work() -> None:
            for group in groups:
                g = gradient(
                    self.policy,
                    [[weighted] for weighted in weighted_trajectories(group)],
                    scored_parameters(self.policy.model),
                    temperature=1.0,
                    tokens_per_micro_batch=TOKENS * 4,
                )
                self.projection.mask(g)

        return seconds(work, 1) / len(groups)

    def projection_seconds(self, blocks: int = 4, batch: int = 8) -> tuple[float, float]:
        """Of one prompt, multiplying alone, and of drawing the matrix once: from a few of its blocks."""
        generator = torch.Generator()
        rows = min(1 << 15, self.projection.n_kept)
        n_blocks = self.projection.n_kept / rows
        masked = torch.randn(batch, rows)
        drawing = multiplying = 0.0
        for block in range(blocks):
            start = time.perf_counter()
            matrix = torch.randn(rows, self.projection.dimension, generator=generator.manual_seed(block))
            drawing += time.perf_counter() - start
            start = time.perf_counter()
            masked @ matrix
            multiplying += time.perf_counter() - start
        return multiplying / blocks / batch * n_blocks, drawing / blocks * n_blocks


def published(policy: Policy, name: str, sizes: Sequence[tuple[int, int, int]]) -> Rows:
    rows = []
    directions = random_directions(policy)
    ways = {dimension: Published(policy, dimension) for dimension in (8192, 32768)}
    projecting = {dimension: way.projection_seconds() for dimension, way in ways.items()}
    for n, prompt, completion in sizes:
        groups = random_groups(policy, n, prompt=prompt, completion=completion)
        scored = seconds(lambda: exact(policy, groups, directions), 1) / n
        backward = ways[8192].gradient_seconds(groups[: max(2, n // 4)])
        for dimension, (multiplying, drawing) in projecting.items():
            rows.append(
                {
                    "policy": name,
                    "k": dimension,
                    "completion tokens": completion,
                    "exact s a prompt": scored,
                    "backward s": backward,
                    "projecting s": multiplying,
                    "drawing the matrix s, once": drawing,
                    "published / exact": (backward + multiplying) / scored,
                    "drawn for 100,000 prompts": (backward + multiplying + drawing / 100_000) / scored,
                    "drawn for every 4": (backward + multiplying + drawing / 4) / scored,
                }
            )
    return rows


def section_published(root: Path) -> Rows:
    medium = [(32, 64, 32), (16, 64, 256), (4, 64, 1024)]
    return published(medium_policy(), "Qwen2, 5.3 M", medium) + published(
        smollm2_policy(root), "SmolLM2, 135 M", [(4, 150, 32)]
    )


# --- precision over the keep ratio -----------------------------------------------------------------------------


def precision(found: InfluenceScores, expected: InfluenceScores, share: float = 0.1) -> float:
    """Share of the exact top that is in the other's top, mean over validation sets. CROPI's precision@10 %."""
    n = round(share * len(expected.prompt_ids))
    tops = [
        len(set(np.argsort(-found.cosine[:, j])[:n]) & set(np.argsort(-expected.cosine[:, j])[:n])) / n
        for j in range(len(expected.validation_sets))
    ]
    return float(np.mean(tops))


PUBLISHED_CURVE = {1.0: 13.5, 0.5: 22.5, 0.2: 67.7, 0.1: 69.7, 0.05: 67.0, 0.01: 51.5, 1e-3: 34.0, 1e-4: 17.5}
"""Precision@10 % in % of the article's Qwen2.5-1.5B, read off its figure."""


def section_keep_ratio(root: Path) -> Rows:
    """Three seeds each, on the very gradients that `exact` ranks by; the time is that of masking and projecting."""
    policy = builtin_policy()
    pool, validation = chain_pool(policy, 510)
    parameters = scored_parameters(policy.model)
    settings: dict[str, Any] = {"temperature": 1.0, "tokens_per_micro_batch": TOKENS}
    directions = validation_directions(policy, validation, parameters, **settings, progress=ignore)
    expected = exact(policy, pool, directions)
    gradients = [group_gradient(policy, group, **settings) for group in pool]
    held_out = [directions.of_set(j, parameters) for j in range(len(validation))]
    ids = tuple(group.prompt_id for group in pool)
    rows = []
    for keep_ratio, article in PUBLISHED_CURVE.items():
        row: dict[str, Any] = {"r_s": keep_ratio, "article, 1.5B, k=32768": article}
        for kind, dimension in (("gaussian", 2048), ("orthogonal", 8192), ("sparse", 8192), ("sparse", 32768)):
            if kind == "orthogonal" and keep_ratio < 0.03:
                continue  # more dimensions than coordinates
            found, start = [], time.perf_counter()
            for seed in (0, 1, 2):
                config = ProjectedInfluence(kind=kind, dimension=dimension, keep_ratio=keep_ratio, seed=seed)  # type: ignore[arg-type]
                projection = projection_of(config, policy)
                values = projection.project_all(iter([*gradients, *held_out]), len(gradients) + len(held_out))
                prompts = Features(ids, values[: len(ids)], projection.name)
                sets = Features(tuple(validation), values[len(ids) :], projection.name)
                found.append(100 * precision(scores_of_features(prompts, sets), expected))
            row[f"{kind} {dimension}"] = f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}"
            row[f"{kind} {dimension} ms a prompt"] = 1000 * (time.perf_counter() - start) / 3 / len(pool)
        rows.append(row)
    return rows


# --- a cascade -------------------------------------------------------------------------------------------------


def section_cascade(root: Path) -> Rows:
    """Share of the exact top α that the cheap pass keeps, and the time of both passes beside exact on all."""
    policy = builtin_policy()
    pool, validation = chain_pool(policy, 510)
    settings: dict[str, Any] = {"temperature": 1.0, "tokens_per_micro_batch": TOKENS, "progress": ignore}
    whole = scored_parameters(policy.model)
    directions = validation_directions(policy, validation, whole, **settings)
    expected = exact(policy, pool, directions)
    on_all = seconds(lambda: exact(policy, pool, directions))
    rows = []
    for blocks in (1, 2):
        parameters = parameters_of_last_blocks(policy.model, blocks)
        part = directions.over(whole, parameters)
        for trajectories in (2, 4, 8):

            def cheap(
                parameters: Any = parameters, part: Directions = part, trajectories: int = trajectories
            ) -> InfluenceScores:
                products = exact_products(policy, pool, part, parameters, trajectories=trajectories, **settings)
                return scores_from_products(products, part.names, part.norms())

            first = seconds(cheap)
            found = cheap()
            for alpha in (0.1, 0.25):
                n = round(alpha * len(pool))
                row: dict[str, Any] = {"blocks": blocks, "trajectories": trajectories, "α": alpha}
                for keep in (1, 2, 3):
                    recalled = [
                        len(
                            set(np.argsort(-found.cosine[:, j])[: keep * n])
                            & set(np.argsort(-expected.cosine[:, j])[:n])
                        )
                        / n
                        for j in range(2)
                    ]
                    row[f"recall, c={keep}"] = float(np.mean(recalled))
                    row[f"time / exact on all, c={keep}"] = first / on_all + min(1.0, keep * alpha)
                row["Spearman"] = float(np.mean([spearman(found.cosine[:, j], expected.cosine[:, j]) for j in (0, 1)]))
                rows.append(row)
    return rows


# --- 100,000 prompts ---------------------------------------------------------------------------------------------


def section_pool(root: Path, n: int = 100_000) -> Rows:
    """The built-in policy's own rollouts over and over, scored in portions of 512 prompts; memory as it goes."""
    policy = builtin_policy()
    pool, validation = chain_pool(policy, 510)
    settings: dict[str, Any] = {"temperature": 1.0, "tokens_per_micro_batch": TOKENS, "progress": ignore}
    directions = validation_directions(policy, validation, scored_parameters(policy.model), **settings)
    rows, start, done = [], time.perf_counter(), 0
    while done < n:
        exact(policy, [pool[(done + i) % len(pool)] for i in range(512)], directions)
        done += 512
        if len(rows) < 10 * done // n or done <= 1024:
            elapsed = time.perf_counter() - start
            rows.append({"prompts": done, "prompts a second": done / elapsed, "resident MiB": resident()})
            print(rows[-1], flush=True)
    return rows


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


SECTIONS: dict[str, Callable[[Path], Rows]] = {
    "cost": section_cost,
    "published": section_published,
    "keep_ratio": section_keep_ratio,
    "cascade": section_cascade,
    "shared_prefix": section_shared_prefix,
    "contraction": section_contraction,
    "pool": section_pool,
}


def show(name: str, rows: Rows) -> None:
    table = Table(*rows[0], title=name)
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in (row.get(c, "") for c in rows[0])))
    Console(width=240).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all of them when none is named")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="where SmolLM2 is converted to")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.sections or SECTIONS:
        started = time.perf_counter()
        rows = SECTIONS[name](arguments.root)
        machine = {"processor": processor(), "torch": torch.__version__, "threads": 2}
        result = {"section": name, "machine": machine, "seconds": time.perf_counter() - started, "rows": rows}
        (RESULTS / f"influence-{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        show(name, rows)


if __name__ == "__main__":
    main()
