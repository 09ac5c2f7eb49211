"""The losses against hand-worked numbers, and their independence of how the batch is cut."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline_lib.config import DapoLoss, DrGrpoLoss, GrpoLoss, GspoLoss, Loss
from pipeline_lib.grpo.loss import BatchSize, LossTerms, policy_loss, token_weights

MASK = torch.tensor([[False, True, True], [True, True, True]])
SIZE = BatchSize(n_sequences=2, n_tokens=5, max_tokens=4)
RATIOS = [[9.0, 1.5, 0.5], [1.5, 0.5, 1.0]]
LOSSES: list[Loss] = [GrpoLoss(), DrGrpoLoss(), DapoLoss(), GspoLoss()]


def loss_of(
    ratios: list[list[float]],
    advantages: list[float],
    config: Loss,
    reference: float | None = None,
    entropy: float = 0.0,
) -> LossTerms:
    logprobs = torch.tensor(ratios).log()
    return policy_loss(
        logprobs_BT=logprobs,
        entropy_BT=torch.full_like(logprobs, entropy),
        behaviour_logprobs_BT=torch.zeros_like(logprobs),
        reference_logprobs_BT=None if reference is None else torch.full_like(logprobs, math.log(reference)),
        advantages_B=torch.tensor(advantages),
        mask_BT=MASK,
        weights_BT=token_weights(MASK, config, SIZE),
        config=config,
    )


def test_dapo_is_the_mean_over_the_batchs_tokens_clipped_higher_above() -> None:
    # A = 1, ratios 1.5 (clipped to 1.28), 0.5: 1.28 + 0.5. A = -1, ratios 1.5, 0.5 (clipped to 0.8), 1: -3.3.
    terms = loss_of(RATIOS, [1.0, -1.0], DapoLoss())
    assert float(terms.loss) == pytest.approx((-1.78 + 3.3) / 5)
    assert terms.clipped_low_BT.tolist() == [[False] * 3, [False, True, False]]
    assert terms.clipped_high_BT.tolist() == [[False, True, False], [False] * 3]


def test_grpo_is_the_mean_over_each_completion_then_over_completions() -> None:
    terms = loss_of(RATIOS, [1.0, -1.0], GrpoLoss())
    assert float(terms.loss) == pytest.approx((-1.7 / 2 + 3.3 / 3) / 2)


def test_dr_grpo_divides_by_the_greatest_length_there_may_be() -> None:
    terms = loss_of(RATIOS, [1.0, -1.0], DrGrpoLoss())
    assert float(terms.loss) == pytest.approx((-1.7 + 3.3) / (2 * 4))


def test_gspo_clips_one_ratio_for_the_completion() -> None:
    # Geometric means: sqrt(1.5 * 0.5) = 0.866, below 1 - ε but A > 0, so it stays; cbrt(1.5 * 0.5 * 1) = 0.909, A < 0,
    # clipped to 1 - 3e-4.
    terms = loss_of(RATIOS, [1.0, -1.0], GspoLoss())
    assert float(terms.loss) == pytest.approx((-math.sqrt(0.75) + (1 - 3e-4)) / 2, rel=1e-6)
    assert terms.clipped_low_BT.tolist() == [[False] * 3, [True] * 3]
    assert not terms.clipped_high_BT.any()


def test_k3_penalty() -> None:
    # log π_ref - log π = log 2 on every token: k3 = 2 - log 2 - 1.
    terms = loss_of([[1.0] * 3, [1.0] * 3], [0.0, 0.0], DapoLoss(kl_coefficient=0.5), reference=2.0)
    k3 = 1 - math.log(2)
    assert float(terms.loss) == pytest.approx(0.5 * k3, rel=1e-6)
    assert terms.k3_BT is not None and float(terms.k3_BT.sum()) == pytest.approx(5 * k3, rel=1e-6)


def test_a_reference_that_is_only_looked_at_leaves_the_loss_alone() -> None:
    terms = loss_of([[1.0] * 3, [1.0] * 3], [0.0, 0.0], DapoLoss(), reference=2.0)
    assert float(terms.loss) == 0.0
    assert terms.k3_BT is not None and float(terms.k3_BT.sum()) > 0


def test_entropy_is_a_bonus() -> None:
    terms = loss_of([[1.0] * 3, [1.0] * 3], [0.0, 0.0], GrpoLoss(entropy_coefficient=0.1), entropy=2.0)
    assert float(terms.loss) == pytest.approx(-0.2, rel=1e-6)


def test_the_importance_correction_weighs_instead_of_clipping() -> None:
    # Weights 1.3 (of 1.5), 0.5 with A = 1, and 1.3, 0.5, 1 with A = -1; every clipped ratio is 1.
    terms = loss_of(RATIOS, [1.0, -1.0], DapoLoss(max_importance_ratio=1.3))
    assert float(terms.loss) == pytest.approx((-1.8 + 2.8) / 5)
    assert not terms.clipped_low_BT.any() and not terms.clipped_high_BT.any()
    assert terms.importance_BT is not None
    torch.testing.assert_close(terms.importance_BT[MASK], torch.tensor([1.3, 0.5, 1.3, 0.5, 1.0]))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("config", LOSSES, ids=lambda config: config.type)
def test_a_ratio_beyond_what_a_float_holds_leaves_loss_and_gradient_finite(config: Loss, advantage: float) -> None:
    logprobs = torch.tensor([[-1.0, -1.0, -1.0]] * 2, requires_grad=True)
    terms = policy_loss(
        logprobs_BT=logprobs,
        entropy_BT=torch.zeros(2, 3),
        behaviour_logprobs_BT=torch.full((2, 3), -400.0),
        reference_logprobs_BT=torch.full((2, 3), 400.0),
        advantages_B=torch.tensor([advantage, advantage]),
        mask_BT=MASK,
        weights_BT=token_weights(MASK, config, SIZE),
        config=config.model_copy(update={"kl_coefficient": 0.1}),
    )
    terms.loss.backward()
    assert torch.isfinite(terms.loss)
    assert logprobs.grad is not None and torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("config", LOSSES, ids=lambda config: config.type)
def test_micro_batches_add_up_to_the_batch(config: Loss) -> None:
    torch.manual_seed(0)
    config = config.model_copy(update={"kl_coefficient": 0.1, "max_importance_ratio": 1.5})
    mask = torch.rand(6, 5) < 0.7
    mask[:, -1] = True
    behaviour, reference, entropy = -torch.rand(6, 5), -torch.rand(6, 5), torch.rand(6, 5)
    advantages = torch.randn(6)
    size = BatchSize(n_sequences=6, n_tokens=int(mask.sum()), max_tokens=5)

    def gradient(cuts: list[slice]) -> tuple[float, torch.Tensor]:
        logprobs = (-torch.linspace(0.1, 1.5, 30).reshape(6, 5)).requires_grad_()
        total = 0.0
        for cut in cuts:
            terms = policy_loss(
                logprobs_BT=logprobs[cut],
                entropy_BT=entropy[cut],
                behaviour_logprobs_BT=behaviour[cut],
                reference_logprobs_BT=reference[cut],
                advantages_B=advantages[cut],
                mask_BT=mask[cut],
                weights_BT=token_weights(mask[cut], config, size),
                config=config,
            )
            terms.loss.backward()
            total += float(terms.loss.detach())
        assert logprobs.grad is not None
        return total, logprobs.grad

    whole_loss, whole = gradient([slice(0, 6)])
    cut_loss, cut = gradient([slice(0, 1), slice(1, 4), slice(4, 6)])
    assert cut_loss == pytest.approx(whole_loss, rel=1e-6)
    torch.testing.assert_close(cut, whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("max_importance_ratio", [None, 2.0])
@pytest.mark.parametrize("config", LOSSES, ids=lambda config: config.type)
def test_the_gradient_on_policy_is_the_policy_gradient(config: Loss, max_importance_ratio: float | None) -> None:
    config = config.model_copy(update={"max_importance_ratio": max_importance_ratio})
    logprobs = torch.tensor([[-1.0, -0.5, -0.7], [-0.3, -0.2, -0.9]], requires_grad=True)
    weights = token_weights(MASK, config, SIZE)
    terms = policy_loss(
        logprobs_BT=logprobs,
        entropy_BT=torch.zeros(2, 3),
        behaviour_logprobs_BT=logprobs.detach(),
        reference_logprobs_BT=None,
        advantages_B=torch.tensor([0.5, -2.0]),
        mask_BT=MASK,
        weights_BT=weights,
        config=config,
    )
    terms.loss.backward()
    torch.testing.assert_close(logprobs.grad, -weights * torch.tensor([[0.5], [-2.0]]))
