"""Where sharing a prompt's row pays, and where contracting tokens with a direction does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from influence_cases import Rows, medium_policy, random_groups, seconds

from pipeline_lib.influence.layer_products import Outer, contracted_products, formed_products, forming_is_cheaper
from pipeline_lib.influence.objective import requiring_grad, scored_parameters, surrogate, weighted_trajectories
from pipeline_lib.influence.pack import attention_share, make_pack, rows_of


def section_shared_prefix(root: Path) -> Rows:
    """Plain passes forward and backward, with prompts shared and not, whatever the estimate of the cost says."""
    policy = medium_policy()
    share = attention_share(policy)
    assert share is not None
    parameters = scored_parameters(policy.model)
    rows = []
    for prompt, completion in ((32, 16), (32, 128), (32, 512), (256, 16), (256, 128), (256, 512), (1024, 128)):
        [group] = random_groups(policy, 1, prompt=prompt, completion=completion)
        weighted = weighted_trajectories(group)
        row: dict[str, Any] = {"prompt tokens": prompt, "completion tokens": completion}
        taken = {}
        for size in (1, 2, 4, 8):
            wanted = [weighted[i : i + size] for i in range(0, 8, size)]
            pack = make_pack([wanted], policy)

            def work(pack: Any = pack) -> None:
                with requiring_grad(policy, parameters):
                    surrogate(policy, pack, temperature=1.0).backward()

            taken[size] = seconds(work, 3)
            row[f"{size} a row / 1 a row"] = taken[size] / taken[1]
        chosen = len(rows_of(weighted, share, 10**9)[0])
        row |= {"chosen": chosen, "chosen / best": taken[chosen] / min(taken.values())}
        rows.append(row)
    return rows


def section_contraction(root: Path) -> Rows:
    """One layer's products, 8 prompts, 2 directions: formed, and contracted."""
    rows = []
    for O, I in ((256, 256), (1536, 576), (2048, 2048)):
        directions = torch.randn(2, O * I)
        for T in (8, 16, 32, 64, 128, 256):
            outer = Outer(torch.randn(8, T, O), torch.randn(8, T, I))
            formed = seconds(lambda: formed_products(outer, None, directions), 3)
            contracted = seconds(lambda: contracted_products(outer, None, directions), 3)
            taken = formed if forming_is_cheaper(T, O, I, 2) else contracted
            rows.append(
                {
                    "layer": f"{O} x {I}",
                    "tokens a prompt": T,
                    "formed ms": 1000 * formed,
                    "contracted / formed": contracted / formed,
                    "taken / better": taken / min(formed, contracted),
                }
            )
    return rows
