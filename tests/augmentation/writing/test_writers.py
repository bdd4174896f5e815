"""Language models: transformers' in small, a server that misbehaves, llama.cpp by a stand-in."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from augmentation.writing.causal_writer import CausalWriter
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import FAILED, TIMED_OUT, LlamaCppWriter, ServerWriter
from captioning.served.answer_text import CUT, REFUSED
from tests.causal_folder import POSITIONS, save_causal
from tests.served_model import Body, asked, chat, served

SHORT = ("dog", "red bird", "a tall tree", "x")


def prompt(question: str) -> Prompt:
    return Prompt(instruction="Do.", examples=(("a", "b"),), question=question, names=("T", "S"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal"))


def test_many_at_once_are_answered_as_one_by_one(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), temperature=0, max_new_tokens=6, device="cpu")
    prompts = [prompt(text) for text in SHORT]
    together = writer.answers(prompts, seed=0)
    alone = [writer.answers([request], seed=0)[0] for request in prompts]
    for answer, other in zip(together, alone, strict=True):
        assert answer.text == other.text
        assert answer.likelihood == pytest.approx(other.likelihood, rel=1e-4)
    network, tokenizer = writer._network, writer._tokenizer
    for request, answer in zip(prompts, together, strict=True):
        ids = tokenizer(request.opening(), add_special_tokens=False)["input_ids"]
        ids += tokenizer(request.ending(), add_special_tokens=False)["input_ids"]
        tokens, log_probs = [], []
        for _ in range(6):
            logits = network(input_ids=torch.tensor([ids])).logits[0, -1]
            token = int(logits.argmax())
            if token in writer._stops:
                break
            tokens.append(token)
            log_probs.append(float(logits.log_softmax(0)[token]))
            ids = [*ids, token]
        assert answer.text == tokenizer.decode(tokens).strip()
        assert answer.likelihood == pytest.approx(np.mean(log_probs), rel=1e-3)


def test_draws_depend_on_the_seed_alone(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), temperature=2.0, max_new_tokens=6, device="cpu")
    prompts = [prompt(text) for text in SHORT]
    assert writer.answers(prompts, seed=1) == writer.answers(prompts, seed=1)
    assert writer.answers(prompts, seed=1) != writer.answers(prompts, seed=2)
    assert writer.answers([], seed=0) == []


def test_a_line_ends_an_answer(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), device="cpu")
    ends = writer._tokenizer("\n", add_special_tokens=False)["input_ids"]
    assert writer._stops >= set(ends)
    assert 0 in writer._stops  # the end of a text
    assert len(writer._stops) < 20


CHAT = (
    "{% for turn in messages %}{{ turn['role'] }}: {{ turn['content'] }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def test_a_chat_is_given_in_the_form_of_the_model(tmp_path: Path) -> None:
    folder = save_causal(tmp_path, positions=256)
    spoken = PreTrainedTokenizerFast.from_pretrained(folder)
    spoken.chat_template = CHAT
    spoken.save_pretrained(folder)
    settings = {"chat": True, "device": "cpu", "temperature": 0, "max_new_tokens": 6}
    writer = CausalWriter(name=str(folder), **settings)
    prompts = [prompt(text) for text in ("a dog", "a bird", "x")]
    answers = writer.answers(prompts, seed=0)
    assert writer._stops == {0}  # a line's end ends no answer
    network, tokenizer = writer._network, writer._tokenizer
    for request, answer in zip(prompts, answers, strict=True):
        turns = [f"{turn['role']}: {turn['content']}<|endoftext|>" for turn in request.messages()]
        text = "".join(turns) + "assistant:"
        assert request.question in text
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        output = network.generate(
            torch.tensor([ids]), max_new_tokens=6, do_sample=False, pad_token_id=0
        )
        assert (
            answer.text == tokenizer.decode(output[0, len(ids) :], skip_special_tokens=True).strip()
        )


def test_running_text_begins_as_the_model_expects(tmp_path: Path) -> None:
    folder = save_causal(tmp_path)
    llama = PreTrainedTokenizerFast.from_pretrained(folder)
    llama.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    llama.save_pretrained(folder)
    writer = CausalWriter(name=str(folder), device="cpu")
    head, tails = writer._prompt_ids([prompt("x"), prompt("a dog")])
    assert writer._tokenizer.decode(head) == f"<|endoftext|>{prompt('x').opening()}"
    assert [writer._tokenizer.decode(tail) for tail in tails] == [" x\nS:", " a dog\nS:"]


def test_a_model_without_chats_is_refused_one(folder: Path) -> None:
    with pytest.raises(ValueError, match="no chat template: set method.writer.chat=false"):
        CausalWriter(name=str(folder), chat=True, device="cpu")


def test_prompts_that_do_not_fit_are_refused(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), device="cpu")
    with pytest.raises(ValueError, match=f"reads at most {POSITIONS}: use fewer examples"):
        writer.answers([prompt("dog " * POSITIONS)], seed=0)
    other = Prompt(instruction="Other.", examples=(), question="x", names=("T", "S"))
    with pytest.raises(ValueError, match="the same examples"):
        writer.answers([prompt("x"), other], seed=0)
    with pytest.raises(ValueError, match="temperature"):
        CausalWriter(name=str(folder), temperature=-1)
    with pytest.raises(ValueError, match="precision"):
        CausalWriter(name=str(folder), precision="int3")


def test_too_many_prompts_for_a_gpu_name_the_setting(folder: Path, monkeypatch) -> None:
    writer = CausalWriter(name=str(folder), device="cpu", max_new_tokens=6)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(writer, "_sample", full)
    with pytest.raises(MemoryError, match=r"2 prompts in a batch: lower method\.pace\.batch_size"):
        writer.answers([prompt("x"), prompt("y")], seed=0)
    monkeypatch.undo()
    assert len(writer.answers([prompt("x")], seed=0)) == 1


class Handler(BaseHTTPRequestHandler):
    """Answers by what is asked."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        roles = [turn["role"] for turn in body["messages"]]
        if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
            self.send_error(400, "roles must alternate")  # as Mistral's talks are refused by vLLM
            return
        self.server.opened.append(body["messages"][0]["content"])
        question = body["messages"][-1]["content"]
        self.server.questions.append((question, self.headers.get("Authorization")))
        if question == "slow":
            time.sleep(0.6)
        if question == "forbidden":
            self.send_error(401)
            return
        if question.startswith("busy"):
            self.server.times.append(time.monotonic())
            self.send_response(503)
            _, _, after = question.partition(" ")
            if after:
                self.send_header("Retry-After", after)
            self.end_headers()
            return
        reply = {"choices": [{"message": {"content": f"A {question}."}}]}
        text = json.dumps({"nothing": 1} if question == "odd" else reply)
        self.send_response(200)
        self.end_headers()
        self.wfile.write((text[:9] if question == "half" else text).encode())

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A server on a free port of this machine."""
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.questions, http_server.opened, http_server.times = [], [], []
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    yield http_server
    http_server.shutdown()
    http_server.server_close()
    thread.join()


def address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def test_a_server_answers_in_order_and_its_faults_are_told_apart(server, monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    writer = ServerWriter(
        address=address(server), model="m", timeout=0.3, retries=1, wait=0, key_variable="MY_KEY"
    )
    questions = ["dog", "busy", "cat", "odd", "half", "slow", "bird"]
    answers = writer.answers([prompt(text) for text in questions], seed=0)
    assert [answer.text for answer in answers] == ["A dog.", "", "A cat.", "", "", "", "A bird."]
    problems = [answer.problem for answer in answers]
    assert problems == ["", FAILED, "", FAILED, FAILED, TIMED_OUT, ""]
    asked_questions = [question for question, _ in server.questions]
    assert asked_questions.count("busy") == 2
    assert asked_questions.count("dog") == 1
    assert {key for _, key in server.questions} == {"Bearer secret"}


def test_a_server_that_refuses_or_is_gone_stops_the_run(server) -> None:
    writer = ServerWriter(address=address(server), model="m")
    with pytest.raises(ValueError, match=r"refuses requests \(401"):
        writer.answers([prompt("forbidden")], seed=0)
    unreachable = ServerWriter(address="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(ConnectionError, match="cannot be reached .* resumes where it stopped"):
        unreachable.answers([prompt("dog")], seed=0)
    with pytest.raises(ValueError, match="address must begin with http"):
        ServerWriter(address="localhost", model="m")
    with pytest.raises(ValueError, match="retries and wait 0 or more, got 8, 600.0, 5 and -1"):
        ServerWriter(address="http://localhost", model="m", wait=-1)


@pytest.mark.parametrize(
    ("retry_after", "waits"),
    [("", (0.1, 0.2)), ("soon", (0.1, 0.2)), ("0", (0, 0)), ("1", (1, 1)), ("PAST", (0, 0))],
)
def test_a_busy_server_is_given_time(server, retry_after: str, waits: tuple[float, float]) -> None:
    retry_after = (
        format_datetime(datetime.now(UTC), usegmt=True) if retry_after == "PAST" else retry_after
    )
    writer = ServerWriter(address=address(server), model="m", retries=2, wait=0.1)
    (answer,) = writer.answers([prompt(f"busy {retry_after}".strip())], seed=0)
    assert answer.problem == FAILED
    between = [later - earlier for earlier, later in pairwise(server.times)]
    assert all(wait <= pause < wait + 0.6 for pause, wait in zip(between, waits, strict=True))


def test_answers_that_are_cut_or_refused_are_no_captions_and_lose_no_others() -> None:
    def answer(body: Body) -> object:
        if asked(body) == "odd":
            return 400, {}, {"error": {"message": "too odd"}}
        if asked(body) == "cut":
            return chat("A dog in a", ended="length")
        return "I'm sorry, but I can't." if asked(body) == "bad" else "<think>Hm.</think>**A dog.**"

    with served(answer) as there:
        writer = ServerWriter(address=there.address, model="m", wait=0)
        answers = writer.answers([prompt(text) for text in ("a", "odd", "cut", "bad")], seed=0)
    assert [one.problem for one in answers] == ["", FAILED, CUT, REFUSED]
    assert answers[0].text == "A dog."


def test_no_turn_is_of_the_system(server) -> None:
    writer = ServerWriter(address=address(server), model="m")
    alone = Prompt(instruction="Do.", examples=(), question="dog", names=("T", "S"))
    answers = writer.answers([prompt("dog"), alone], seed=0)
    assert answers[0].text == "A dog."
    assert answers[1].text == "A Do. Answer with it alone.\n\ndog."
    assert "Do. Answer with it alone.\n\na" in server.opened


def test_llama_cpp_gets_talks(tmp_path: Path, monkeypatch) -> None:
    class Llama:
        def __init__(self, **settings: object) -> None:
            self.settings = settings

        def create_chat_completion(self, messages: list, **sampling: object) -> dict:
            text = f"{messages[-1]['content']} {sampling['seed']}"
            return {"choices": [{"message": {"content": text}}]}

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    with pytest.raises(FileNotFoundError, match=r"must be a \.gguf file"):
        LlamaCppWriter(path=tmp_path)
    (tmp_path / "a.gguf").touch()
    writer = LlamaCppWriter(path=tmp_path)
    assert writer._model.settings["model_path"] == str(tmp_path / "a.gguf")
    answers = writer.answers([prompt("dog"), prompt("cat")], seed=5)
    assert [answer.text for answer in answers] == ["dog 5", "cat 6"]
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(ModuleNotFoundError, match="pip install llama-cpp-python"):
        LlamaCppWriter(path=tmp_path)
