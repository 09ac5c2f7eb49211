"""Engines that run out of memory, are not there, or are not what they should be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
from rollout_cases import tiny_policy

from pipeline_lib.config import Generation, RunConfig, VllmEngine, VllmServer
from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rollout import (
    Completion,
    EngineFailed,
    EngineOverloaded,
    SamplingParams,
    TransformersEngine,
    make_engine,
    roll_out,
)

PARAMS = SamplingParams(n=2, temperature=1.0, max_tokens=6, batch_size=8)


class Cramped(TransformersEngine):
    """The real engine, on a machine that holds only so many sequences at once."""

    def __init__(self, holds: int, error: Exception) -> None:
        super().__init__(tiny_policy())
        self.holds, self.error, self.tried = holds, error, list[int]()

    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        self.tried.append(params.batch_size)
        if params.batch_size > self.holds:
            raise self.error
        return super().generate(prompts_token_ids, params, seed)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
    EngineOverloaded("503"),
]


def all_right(answers: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
    return [Verdict(1.0, True, "ok") for _ in answers]


def prompts() -> list[Prompt]:
    return [Prompt("p", ({"role": "user", "content": f"{n}+1=?"},), str(n + 1), "exact") for n in range(4)]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_half_as_many_are_tried_where_memory_runs_out(error: Exception) -> None:
    engine = Cramped(3, error)
    rollout = roll_out(engine.policy, engine, all_right, prompts(), PARAMS, seed=0)
    assert engine.tried == [8, 4, 2]
    assert [len(group.trajectories) for group in rollout.groups] == [2, 2, 2, 2]


def test_too_little_memory_for_one_fails_with_the_cause() -> None:
    engine = Cramped(0, OUT_OF_MEMORY[0])
    with pytest.raises(EngineFailed, match="one sequence at a time is too much for the engine: CUDA out of memory"):
        roll_out(engine.policy, engine, all_right, prompts(), PARAMS, seed=0)
    assert engine.tried == [8, 4, 2, 1]


def test_another_error_is_not_taken_for_too_little_memory() -> None:
    engine = Cramped(0, RuntimeError("device-side assert"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        roll_out(engine.policy, engine, all_right, prompts(), PARAMS, seed=0)
    assert engine.tried == [8]


class Answers(BaseHTTPRequestHandler):
    answers: Mapping[str, tuple[int, str]] = {}

    def do_GET(self) -> None:
        status, text = self.answers.get(self.path, (404, "nothing here"))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Answers,), {"answers": {}}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


MODELS = {"/v1/models": (200, '{"data": [{"id": "m"}]}')}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "/v1/models: not found; is it vLLM's address, without /v1"),
        (MODELS | {"/v1/completions": (400, "no such model")}, "/v1/completions: 400 no such model"),
        (MODELS | {"/v1/completions": (503, "busy")}, "/v1/completions: 503 busy"),
        (
            MODELS | {"/v1/completions": (200, '{"choices": [{"index": 0, "text": "a"}]}')},
            "gives no token ids with log-probs",
        ),
        ({"/v1/models": (200, "<html>Sign in</html>")}, "the answer is not JSON: '<html>Sign in</html>'"),
    ],
    ids=["not vLLM", "refuses", "busy", "no token ids", "a page"],
)
def test_a_server_that_cannot_serve_training_is_refused_in_words(
    server: HTTPServer, answers: dict[str, tuple[int, str]], said: str
) -> None:
    server.RequestHandlerClass.answers = answers  # type: ignore[attr-defined]
    wanted = Generation(engine=VllmServer(base_url=f"http://127.0.0.1:{server.server_port}"))
    with pytest.raises(EngineFailed) as refused:
        make_engine(wanted, tiny_policy())
    assert said in str(refused.value)


@pytest.mark.parametrize(("status", "overloaded"), [(503, True), (429, True), (400, False), (403, False)])
def test_a_server_with_too_much_to_do_is_asked_for_less(server: HTTPServer, status: int, overloaded: bool) -> None:
    answers = MODELS | {"/v1/completions": (status, "no")}
    server.RequestHandlerClass.answers = answers  # type: ignore[attr-defined]
    with pytest.raises(EngineFailed) as refused:
        make_engine(Generation(engine=VllmServer(base_url=f"http://127.0.0.1:{server.server_port}")), tiny_policy())
    assert isinstance(refused.value, EngineOverloaded) == overloaded


def test_a_server_that_is_not_up_is_named(server: HTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    server.socket.close()
    with pytest.raises(EngineFailed, match=r"is the server up\?"):
        make_engine(Generation(engine=VllmServer(base_url=url)), tiny_policy())


def test_several_training_processes_cannot_have_an_engine_each() -> None:
    chains = {"type": "chains", "kinds": ["plus"], "lengths": [1], "count": 4}
    config = {
        "name": "r",
        "root": "r",
        "prompts": {"train": [chains], "validation": {"v": [chains]}, "evaluation": {"e": [chains]}},
        "generation": {"engine": "vllm"},
    }
    assert RunConfig.model_validate(config).generation.engine == VllmEngine()
    with pytest.raises(ValueError, match="each process would start an engine of its own"):
        RunConfig.model_validate(config | {"train": {"backend": {"type": "torch", "processes": 2}}})


def test_where_an_engine_finds_its_memory_is_no_part_of_what_is_sampled() -> None:
    small, large = (Generation(engine=VllmEngine(memory_share=share)) for share in (0.2, 0.8))
    assert small.what_is_sampled() == large.what_is_sampled() != Generation().what_is_sampled()
    assert Generation().what_is_sampled()["engine"] == "transformers"
