"""TRL's side of benchmarks/trainer.py: `TRL/bin/python benchmarks/trainer_trl.py (measure|check) SETTING OUT`.

Runs in an environment that has TRL and not rlsift. GRPOTrainer is used as it comes; what is overridden only keeps time
or, for `check`, puts given completions where it would generate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from trainer_setting import Setting, memory_mib, reward_of, write_json
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class TimedTrainer(GRPOTrainer):
    """Keeps the seconds of each call that samples, grades and makes the advantages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_s: list[float] = []
        self.generated_tokens = 0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        scored = super()._generate_and_score_completions(inputs)
        self.rollout_s.append(time.perf_counter() - start)
        self.generated_tokens = int(scored["completion_mask"].sum())
        return scored


class GivenTrainer(GRPOTrainer):
    """Puts the completions of `check` where it would generate them; the advantages are TRL's own."""

    given: list[dict[str, list[Any]]]

    def _generate(self, prompts: Any) -> Any:
        prompt_ids = [row["prompt"] for row in self.given]
        completion_ids = [row["completion"] for row in self.given]
        completions = [[{"role": "assistant", "content": ""}] for _ in self.given]
        return prompt_ids, completion_ids, None, completions, None, {}, None, []


class StepClock(TrainerCallback):
    """From before a step's rollout to after its optimizer step: logging and the next batch are left out."""

    def __init__(self) -> None:
        self.total_s: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.total_s.append(time.perf_counter() - self.start)


def load(setting: Setting) -> Any:
    return AutoModelForCausalLM.from_pretrained(setting.policy, dtype=torch.float32, attn_implementation="sdpa")


def make_trainer(kind: type[GRPOTrainer], model: Any, setting: Setting, n_sequences: int, out: Path) -> Any:
    """With every default of TRL's but those that a comparison on a CPU in float32 needs."""

    def rewards(completions: list[Any], **_: Any) -> list[float]:
        return [reward_of(i % setting.group_size) for i in range(len(completions))]

    micro_batches = n_sequences // setting.sequences_per_micro_batch
    config = GRPOConfig(
        output_dir=str(out.parent / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=setting.sequences_per_micro_batch,
        gradient_accumulation_steps=micro_batches,
        num_generations=setting.group_size,
        max_completion_length=setting.completion_tokens,
        temperature=1.0,
        loss_type="dapo",
        beta=0.0,
        epsilon=0.2,
        learning_rate=setting.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_steps=setting.steps,
        shuffle_dataset=False,
        use_vllm=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return kind(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": messages} for messages in setting.prompts * setting.steps]),
        processing_class=AutoTokenizer.from_pretrained(setting.policy, padding_side="left"),
    )


def check(setting: Setting, out: Path) -> dict[str, float]:
    """Loss and gradient norm of the trajectories given, over micro-batches as in training."""
    trainer = make_trainer(GivenTrainer, load(setting), setting, len(setting.check), out)
    trainer.given = setting.check
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    scored = trainer._generate_and_score_completions([{"prompt": setting.prompts[0]} for _ in setting.check])
    behaviour_BT = torch.zeros(scored["completion_ids"].shape)
    for row, given in enumerate(setting.check):
        behaviour_BT[row, : len(given["logprobs"])] = torch.tensor(given["logprobs"])
    scored["old_per_token_logps"] = behaviour_BT
    loss = 0.0
    for start in range(0, len(setting.check), setting.sequences_per_micro_batch):
        rows = slice(start, start + setting.sequences_per_micro_batch)
        part = {name: value[rows] if value.dim() else value for name, value in scored.items()}
        share = trainer.compute_loss(trainer.model, part)
        share.backward()
        loss += float(share.detach())
    gradients = [parameter.grad for parameter in trainer.model.parameters() if parameter.grad is not None]
    return {"loss": loss, "grad_norm": float(torch.nn.utils.get_total_norm(gradients))}


def measure(setting: Setting, out: Path) -> dict[str, object]:
    """Seconds of each step but the first; the update is what a step takes beside its rollout."""
    model = load(setting)
    loaded = memory_mib("VmRSS")
    trainer = make_trainer(TimedTrainer, model, setting, len(setting.prompts) * setting.group_size, out)
    clock = StepClock()
    trainer.add_callback(clock)
    trainer.train()
    assert len(clock.total_s) == len(trainer.rollout_s) == setting.steps
    return {
        "rollout_s": trainer.rollout_s[1:],
        "update_s": [a - b for a, b in zip(clock.total_s, trainer.rollout_s, strict=True)][1:],
        "total_s": clock.total_s[1:],
        "generated_tokens": trainer.generated_tokens,
        "loaded_mib": loaded,
        "peak_mib": memory_mib("VmHWM"),
        "versions": {
            "trl": trl.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "threads": torch.get_num_threads(),
        "optimizer": trainer.args.optim,
    }


def main() -> None:
    what, setting_path, out = sys.argv[1:]
    setting = Setting.read(Path(setting_path))
    torch.set_num_threads(setting.threads)
    write_json(Path(out), {"measure": measure, "check": check}[what](setting, Path(out)))


if __name__ == "__main__":
    main()
