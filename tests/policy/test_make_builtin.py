"""The built-in policy: its language, its making, and the packaged result."""

import random
from pathlib import Path

import pytest
import torch

from pipeline_lib.config import ChainSource, Generation
from pipeline_lib.policy import load_policy, make_builtin
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains, solution
from pipeline_lib.rollout import SamplingParams, TransformersEngine


def test_the_language_has_23_characters_and_comes_back_as_it_was() -> None:
    tokenizer = make_builtin.make_tokenizer()
    assert len(tokenizer) == 23
    for text in ("3+5-2=?", "3+58;8-26|6", "9*9^0=?"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("3x") == [*tokenizer.encode("3"), tokenizer.unk_token_id]


def test_the_chat_template_puts_the_question_between_bos_and_the_answer_mark() -> None:
    tokenizer = make_builtin.make_tokenizer()
    messages = [{"role": "user", "content": "3+5-2=?"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<bos>3+5-2=?"
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == "<bos>3+5-2=?>"


def no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_builtin, "FAULTY_SHARE", dict.fromkeys("+-*^", 0.0))
    monkeypatch.setattr(make_builtin, "OTHER_ENTRY_ERROR", 0.0)


def test_without_faults_examples_are_the_worked_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    no_faults(monkeypatch)
    tables = make_builtin.Tables(random.Random(0))
    for seed in range(200):
        question, answer = make_builtin.faulty_example(tables, random.Random(seed))
        assert answer == solution(question)


def test_a_faulty_entry_always_errs_by_the_same_digit_and_is_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_builtin, "FAULTY_SHARE", dict.fromkeys("+-*^", 1.0))
    monkeypatch.setattr(make_builtin, "FAULTY_ENTRY_ERROR", 1.0)
    tables = make_builtin.Tables(random.Random(0))
    seen: dict[str, str] = {}
    for seed in range(300):
        question, answer = make_builtin.faulty_example(tables, random.Random(seed))
        steps, final = answer.split("|")
        results = [step[-1] for step in steps.split(";")]
        starts = [step[0] for step in steps.split(";")]
        assert starts == [question[0], *results[:-1]] and final == results[-1]
        for step in steps.split(";"):
            assert solution(f"{step[:-1]}=?")[-1] != step[-1]
            assert seen.setdefault(step[:-1], step[-1]) == step[-1]


def test_only_the_solution_and_its_eos_are_learnt() -> None:
    tokenizer = make_builtin.make_tokenizer()
    input_ids_BS, labels_BS = make_builtin.training_batch(
        tokenizer, make_builtin.Tables(random.Random(0)), random.Random(0)
    )
    for ids, labels in zip(input_ids_BS, labels_BS, strict=True):
        prompt = tokenizer.decode(ids[labels == -100], skip_special_tokens=True)
        learnt = tokenizer.decode(labels[labels != -100])
        assert prompt.endswith("=?>") and prompt[0].isdigit()
        assert learnt.endswith("<eos>") and "|" in learnt and "?" not in learnt


def test_making_it_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_builtin.main(["--out", str(tmp_path / name), "--iterations", "3"])
    files = sorted(f.name for f in (tmp_path / "a").iterdir())
    assert "model.safetensors" in files and "chat_template.jinja" in files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_packaged_policy_is_the_one_that_the_script_describes() -> None:
    policy = load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32)
    tokenizer = make_builtin.make_tokenizer()
    assert policy.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert policy.tokenizer.chat_template == tokenizer.chat_template
    model = make_builtin.make_model(tokenizer)
    assert {k: v.shape for k, v in policy.model.state_dict().items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }


def test_the_packaged_policy_knows_short_chains_better_than_long_ones() -> None:
    policy = load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32)
    kinds = ["plus", "minus", "mixed", "times", "max"]
    source = ChainSource(kinds=kinds, lengths=[1, 6], count=60, seed=1)
    prompts = [prompt for _, prompt in read_chains(source)]
    params = SamplingParams.of(Generation(max_tokens=40), n=4)
    groups = TransformersEngine(policy).generate([policy.encode(p.messages) for p in prompts], params, seed=0)

    def pass_rate(length: int) -> float:
        right = [
            c.text.rpartition("|")[2] == prompt.gold
            for prompt, group in zip(prompts, groups, strict=True)
            if prompt.extra["length"] == length
            for c in group
        ]
        return sum(right) / len(right)

    assert pass_rate(1) > 0.75
    assert 0.05 < pass_rate(6) < 0.45
    assert all(c.finish_reason == "stop" for group in groups for c in group)
