"""What a vLLM server is asked for, and which of its answers are taken for rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from rollout_cases import PROMPTS, tiny_policy

from pipeline_lib.config import VllmServer
from pipeline_lib.rollout import EngineFailed, SamplingParams
from pipeline_lib.rollout.vllm_engine import request_seed
from pipeline_lib.rollout.vllm_server import VllmServerEngine

PARAMS = SamplingParams(n=3, temperature=0.7, max_tokens=4, batch_size=6)
EOS = (2, 18)


def choice(index: int, token_ids: Sequence[int] | None = (7, 8, 2), logprobs: Any = (-0.5, -0.25, -1.0)) -> Any:
    return {"index": index, "token_ids": token_ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": "stop"}


class Server:
    """Keeps the requests, and gives every one of them the same choices."""

    def __init__(self, choices: Sequence[Any]) -> None:
        self.choices, self.requests = choices, list[Mapping[str, Any]]()

    def ask(self, engine: VllmServerEngine, method: str, path: str, body: Any = None) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "served"}]}
        assert (method, path) == ("POST", "/v1/completions")
        self.requests.append(body)
        return {"choices": self.choices}


def engine_of(server: Server, monkeypatch: pytest.MonkeyPatch, **options: Any) -> VllmServerEngine:
    monkeypatch.setattr(VllmServerEngine, "_ask", lambda engine, *asked: server.ask(engine, *asked))
    return VllmServerEngine(tiny_policy(eos=EOS), VllmServer(base_url="http://there", **options))


def asked(monkeypatch: pytest.MonkeyPatch, *, seed: int = 0, **options: Any) -> list[Mapping[str, Any]]:
    """The requests for all of PROMPTS, in their order."""
    server = Server([choice(i) for i in range(PARAMS.n)])
    engine_of(server, monkeypatch, **options).generate(PROMPTS, PARAMS, seed)
    return sorted(server.requests, key=lambda request: PROMPTS.index(request["prompt"]))


def test_the_whole_distribution_is_asked_for_and_nothing_is_left_to_the_models_generation_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for request in asked(monkeypatch):
        sampling = {"temperature": 0.7, "top_p": 1, "top_k": 0, "min_p": 0}
        penalties = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
        assert {name: request.get(name) for name in sampling | penalties} == sampling | penalties
        assert (request["n"], request["max_tokens"]) == (3, 4)
        # The stop tokens are all of the policy's and no others; its pad token is never sampled.
        assert (request["ignore_eos"], request["stop_token_ids"]) == (True, list(EOS))
        assert request["logit_bias"][0] <= -100


def test_prompts_go_as_token_ids_and_token_ids_are_asked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = asked(monkeypatch)
    assert [request["prompt"] for request in requests] == PROMPTS
    assert all(request["return_token_ids"] for request in requests)


def test_no_two_completions_share_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM gives sample k of a request the request's seed + k."""
    requests = [asked(monkeypatch, seed=seed) for seed in (5, 6)]
    seeds = [request["seed"] + k for call in requests for request in call for k in range(PARAMS.n)]
    assert len(set(seeds)) == len(seeds) == 2 * len(PROMPTS) * PARAMS.n
    assert [r["seed"] for r in asked(monkeypatch, seed=5)] == [r["seed"] for r in requests[0]]


def test_seeds_of_many_prompts_and_steps_fit_their_type_and_stay_apart() -> None:
    starts = sorted(request_seed(step * 1000, prompt) for step in range(30) for prompt in range(100))
    assert starts[0] >= 0 and starts[-1] < 2**62
    assert min(later - earlier for earlier, later in pairwise(starts)) > 1024


def test_a_server_that_takes_no_seeds_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {request["seed"] for request in asked(monkeypatch, seeded=False)} == {None}


def test_tokens_and_log_probs_are_the_servers_and_how_it_ended_is_in_the_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = [choice(2, (7, 8, 9, 10), (-1, -2, -3, -4)), choice(0, (7, 18), (-0.5, -1)), choice(1)]
    groups = engine_of(Server(choices), monkeypatch).generate(PROMPTS, PARAMS, seed=0)
    assert len(groups) == len(PROMPTS)
    for first, second, third in groups:
        assert (first.token_ids, first.logprobs, first.finish_reason) == ((7, 18), (-0.5, -1), "stop")
        assert (second.token_ids, second.finish_reason) == ((7, 8, 2), "stop")
        assert (third.token_ids, third.logprobs, third.finish_reason) == ((7, 8, 9, 10), (-1, -2, -3, -4), "length")


@pytest.mark.parametrize(
    "bad",
    [
        choice(1, None),
        choice(1, (), ()),
        choice(1, logprobs=None),
        choice(1, logprobs=(-0.5, -1.0)),
        choice(1, logprobs=(None, -0.5, -1.0)),
        {"index": 1, "text": "34"},
    ],
    ids=["no ids", "no tokens", "no log-probs", "too few log-probs", "a log-prob missing", "text alone"],
)
def test_a_completion_that_cannot_be_trained_on_is_refused(bad: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(Server([choice(0), bad, choice(2)]), monkeypatch)
    with pytest.raises(EngineFailed, match="http://there: the server gives no token ids with log-probs"):
        engine.generate(PROMPTS, PARAMS, seed=0)


def test_a_group_that_is_not_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(Server([choice(0)]), monkeypatch)
    with pytest.raises(EngineFailed, match="gives 1 completions of a prompt where n=3 were asked for"):
        engine.generate(PROMPTS, PARAMS, seed=0)
