"""The GRPO loss against hand-worked numbers, and its independence of how the batch is cut."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline_lib.config import Loss
from pipeline_lib.grpo.loss import grpo_loss, token_weights

MASK = torch.tensor([[False, True, True], [True, True, True]])


def loss_of(ratios: list[list[float]], advantages: list[float], config: Loss, reference: float | None = None):
    logprobs = torch.tensor(ratios).log()
    return grpo_loss(
        logprobs_BT=logprobs,
        behaviour_logprobs_BT=torch.zeros_like(logprobs),
        reference_logprobs_BT=None if reference is None else torch.full_like(logprobs, math.log(reference)),
        advantages_B=torch.tensor(advantages),
        mask_BT=MASK,
        weights_BT=token_weights(MASK, config, n_sequences=2, n_tokens=5),
        config=config,
    )


def test_token_mean_with_clipping() -> None:
    # A = 1, ratios 1.5 (clipped to 1.2), 0.5: 1.2 + 0.5. A = -1, ratios 1.5, 0.5 (clipped to 0.8), 1: -3.3.
    terms = loss_of([[9.0, 1.5, 0.5], [1.5, 0.5, 1.0]], [1.0, -1.0], Loss(aggregation="token_mean"))
    assert float(terms.loss) == pytest.approx((-1.7 + 3.3) / 5)
    assert (terms.clipped_low, terms.clipped_high) == (1.0, 1.0)


def test_sequence_mean() -> None:
    terms = loss_of([[9.0, 1.5, 0.5], [1.5, 0.5, 1.0]], [1.0, -1.0], Loss(aggregation="sequence_mean"))
    assert float(terms.loss) == pytest.approx((-1.7 / 2 + 3.3 / 3) / 2)


def test_clip_higher_is_its_own_bound() -> None:
    terms = loss_of([[1.0, 1.5, 1.0], [1.0, 1.0, 1.0]], [1.0, 0.0], Loss(clip_low=0.2, clip_high=0.4))
    assert float(terms.loss) == pytest.approx(-(1.4 + 1.0) / 5)


def test_k3_penalty() -> None:
    # log π_ref - log π = log 2 on every token: k3 = 2 - log 2 - 1.
    config = Loss(kl_coefficient=0.5)
    terms = loss_of([[1.0] * 3, [1.0] * 3], [0.0, 0.0], config, reference=2.0)
    k3 = 1 - math.log(2)
    assert float(terms.loss) == pytest.approx(0.5 * k3, rel=1e-6)
    assert terms.kl_sum == pytest.approx(5 * k3, rel=1e-6)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_micro_batches_add_up_to_the_batch(aggregation: str) -> None:
    torch.manual_seed(0)
    config = Loss(aggregation=aggregation, kl_coefficient=0.1)  # type: ignore[arg-type]
    mask = torch.rand(6, 5) < 0.7
    mask[:, -1] = True
    behaviour, reference = -torch.rand(6, 5), -torch.rand(6, 5)
    advantages = torch.randn(6)

    def gradient(cuts: list[slice]) -> tuple[float, torch.Tensor]:
        logprobs = (-torch.linspace(0.1, 1.5, 30).reshape(6, 5)).requires_grad_()
        total = 0.0
        for cut in cuts:
            terms = grpo_loss(
                logprobs_BT=logprobs[cut],
                behaviour_logprobs_BT=behaviour[cut],
                reference_logprobs_BT=reference[cut],
                advantages_B=advantages[cut],
                mask_BT=mask[cut],
                weights_BT=token_weights(mask[cut], config, n_sequences=6, n_tokens=int(mask.sum())),
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


def test_the_gradient_on_policy_is_the_policy_gradient() -> None:
    logprobs = torch.tensor([[-1.0, -0.5, -0.7], [-0.3, -0.2, -0.9]], requires_grad=True)
    terms = grpo_loss(
        logprobs_BT=logprobs,
        behaviour_logprobs_BT=logprobs.detach(),
        reference_logprobs_BT=None,
        advantages_B=torch.tensor([0.5, -2.0]),
        mask_BT=MASK,
        weights_BT=token_weights(MASK, Loss(), n_sequences=2, n_tokens=5),
        config=Loss(),
    )
    terms.loss.backward()
    expected = -torch.tensor([[0.0, 0.5, 0.5], [-2.0, -2.0, -2.0]]) / 5
    torch.testing.assert_close(logprobs.grad, expected)
