"""Photos captioned by a served model: kept, resumed, checked, counted."""

from __future__ import annotations

import base64
import errno
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling
from captioning.served.answer_text import CUT, NO_CAPTION, REFUSED
from captioning.served.caption_writer import REQUEST, ServedCaptioner
from captioning.served.photo_answers import MAX_WITHOUT_ANSWER, data_url
from captioning.vision.line_store import LineStore
from tests.served_model import Answers, Body, asked, chat, photo_of, served

SIDE = 12  # of the photos of these tests; those of the check are larger


def picture(body: Body) -> Image.Image | None:
    url = photo_of(body)
    if not url:
        return None
    assert url.startswith("data:image/jpeg;base64,")
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def by_number(body: Body) -> Any:
    """The number that the brightness of a photo stands for."""
    photo = picture(body)
    if photo is None:
        return chat("Which photo?", tokens=5)
    number = round(photo.convert("L").tobytes()[0] / 5) if photo.width == SIDE else -1
    return chat(f"Photo {number}.", tokens=50)


def of_user(server: Answers) -> list[Body]:
    """Requests about photos that are not the check's."""
    return [b for b in server.bodies if (p := picture(b)) is not None and p.width == SIDE]


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = [folder / f"{number:02d}.png" for number in range(40)]
    for number, path in enumerate(paths):
        Image.new("RGB", (SIDE, SIDE), (number * 5,) * 3).save(path)
    return paths


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CAPTIONING_CACHE", str(tmp_path / "cache"))


def captioner(server: Answers, **settings: Any) -> ServedCaptioner:
    return ServedCaptioner(**{"name": f"{server.address}#m", "wait": 0.01, **settings})


def test_photos_are_captioned_in_order_and_asked_once(photos, tmp_path: Path) -> None:
    with served(by_number) as server:
        one = captioner(server, cache_folder=tmp_path / "kept", prompt="What?")
        written = one.write_captions(photos, keys=[p.name for p in photos])
        assert written == [[f"Photo {number}."] for number in range(40)]
        assert len(server.bodies) == 43  # with three of the check
        assert {asked(body) for body in server.bodies} == {"What?"}
        assert set(server.bodies[0]) == {"model", "messages", "max_tokens", "temperature"}
        again = captioner(server, cache_folder=tmp_path / "kept", prompt="What?")
        assert again.write_captions(photos, keys=[p.name for p in photos]) == written
        assert len(server.bodies) == 43
        for changed in (
            {"prompt": "Who?"},
            {"max_tokens": 9},
            {"search": Sampling.with_settings()},
        ):
            settings = {"prompt": "What?", **changed}
            captioner(server, cache_folder=tmp_path / "kept", **settings).write_captions(
                photos[:1], keys=["a"]
            )
        assert len(of_user(server)) == 44  # with one that looks whether the temperature is heeded
        assert again.identity == one.identity


@pytest.mark.parametrize("form", ["text", "csv", "json"])
def test_the_command_resumes_to_the_same_file(form: str, photos, tmp_path: Path, capsys) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    folder = str(photos[0].parent)
    options = ["--format", form, "--parallel", "3", "--prompt", "What?"]
    with served(by_number) as server:
        place = ["--model", f"{server.address}#m"]
        assert main(["caption", folder, *place, *options, "--out", str(whole)]) == 0
        for file in (tmp_path / "cache" / "served").iterdir():
            file.unlink()
        left, num_good = iter(range(20)), 0

        def dies(body: Body) -> Any:
            nonlocal num_good
            with server.lock:
                if next(left, None) is None:
                    return 401, {}, b"no"
                num_good += (photo := picture(body)) is not None and photo.width == SIDE
            return by_number(body)

        server.answer = dies
        assert main(["caption", folder, *place, *options, "--out", str(out)]) == 1
        said = capsys.readouterr().err
        assert "401: no" in said
        assert "cached in" in said
        assert not out.exists()
        server.answer, num = by_number, len(of_user(server))
        assert main(["caption", folder, *place, *options, "--out", str(out)]) == 0
        assert out.read_bytes() == whole.read_bytes()
        num_asked = len(of_user(server)) - num
        assert 40 - num_good <= num_asked <= 40 - num_good + 2  # those on their way
        assert "Photo 39." in out.read_text()


def test_a_card_says_what_was_asked_and_no_key(photos, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    def answer(body: Body) -> Any:
        text = by_number(body)
        return "I'm sorry, I can't." if "Photo 7." in json.dumps(text) else text

    out = tmp_path / "out.csv"
    with served(answer) as server:
        place = ["--model", f"{server.address}#m", "--out", str(out), "--format", "csv"]
        assert main(["caption", *map(str, photos[:10]), *place]) == 1
        assert server.headers[-1]["Authorization"] == "Bearer sk-secret"
    card = json.loads((tmp_path / "out.csv.card.json").read_text())
    assert (card["model"], card["prompt"], card["sampling"]) == ("m", REQUEST, {"temperature": 0.0})
    assert (card["without"], card["share without"]) == ({REFUSED: 1}, 0.1)
    said = capsys.readouterr().err
    assert f"07.png: {REFUSED}" in said
    assert "1 of 10 photos left out" in said
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"sk-secret" in file.read_bytes()]
    assert len(out.read_text().splitlines()) == 10


def test_a_broken_photo_is_named_and_not_sent(photos, tmp_path: Path, capsys) -> None:
    photos[3].write_bytes(b"none")
    with served(by_number) as server:
        place = ["--model", f"{server.address}#m"]
        assert main(["caption", *map(str, photos[:5]), str(tmp_path / "no.jpg"), *place]) == 1
        assert len(of_user(server)) == 4
    said, err = capsys.readouterr()
    assert said.count("\n") == 4
    assert "03.png: photo is not an image" in err
    assert "no.jpg: no such photo" in err


def test_a_photo_that_the_server_fails_at_is_asked_for_again(photos, tmp_path: Path) -> None:
    def answer(body: Body) -> Any:
        said = by_number(body)
        return (500, {}, b"this photo") if "Photo 3." in json.dumps(said) else said

    with served(answer) as server:
        one = captioner(server, retries=1, cache_folder=tmp_path / "kept")
        written = one.write_captions(photos, keys=[p.name for p in photos])
        assert [n for n, texts in enumerate(written) if not texts] == [3]
        assert one.card()["without"] == {"the request failed": 1}
        server.answer, num = by_number, len(of_user(server))
        again = captioner(server, cache_folder=tmp_path / "kept")
        assert again.write_captions(photos, keys=["x"] * 40)[3] == ["Photo 3."]
        assert len(of_user(server)) == num + 1


def test_cut_captions_are_left_out(photos) -> None:
    def answer(body: Body) -> Any:
        said = by_number(body)
        return chat("Photo", ended="length", tokens=50) if "Photo 1." in json.dumps(said) else said

    with served(answer) as server:
        one = captioner(server)
        assert one.write_captions(photos[:3], keys=["a", "b", "c"])[1] == []
        assert one.card()["without"] == {CUT: 1}


def test_a_model_without_eyes_is_refused(photos) -> None:
    with (
        served(lambda _: chat("A nice photo.", tokens=5)) as server,
        pytest.raises(ValueError, match=r"m does not see photos \(a photo adds no tokens\)"),
    ):
        captioner(server).write_captions(photos, keys=["x"] * 40)
    assert len(server.bodies) == 3
    with (
        served(lambda _: chat("A nice photo.", tokens=0)) as server,
        pytest.raises(ValueError, match="two different photos get one answer"),
    ):
        captioner(server).write_captions(photos, keys=["x"] * 40)
    refusal = (400, {}, {"error": {"message": "m takes no images"}})
    with (
        served(lambda b: refusal if photo_of(b) else chat("Hm.")) as server,
        pytest.raises(ValueError, match=r"fails on questions .*takes no images.*server lists m"),
    ):
        captioner(server).write_captions(photos, keys=["x"] * 40)


def test_a_model_that_wants_a_photo_has_eyes(photos) -> None:
    with served(lambda b: by_number(b) if photo_of(b) else (500, {}, b"no photo")) as server:
        assert captioner(server).write_captions(photos[:1], keys=["a"]) == [["Photo 0."]]


def test_another_model_that_answers_is_named(photos, caplog) -> None:
    with served(lambda b: {**by_number(b), "model": "other"}) as server:
        captioner(server).write_captions(photos[:1], keys=["a"])
    assert "m: the server answers with another model: other" in caplog.text


def test_refusals_alone_end_the_run(photos) -> None:
    def answer(body: Body) -> Any:
        said = by_number(body)
        return said if "-1" in json.dumps(said) else chat("I cannot help with that.")

    with served(answer) as server:
        with pytest.raises(ValueError, match=f"none of {MAX_WITHOUT_ANSWER} .*{REFUSED}; change"):
            captioner(server, num_parallel=2).write_captions(photos, keys=["x"] * 40)
        assert len(of_user(server)) < MAX_WITHOUT_ANSWER + 6


def test_captions_are_not_continued() -> None:
    with pytest.raises(
        ValueError, match="m: served models cannot continue a given caption; use a local"
    ):
        ServedCaptioner(name="http://h/v1#m").write_captions(
            [Path("a.png")], keys=["a"], beginnings=["A dog."]
        )


def test_draws_are_asked_one_by_one(photos) -> None:
    with served(by_number) as server:
        search = Sampling.with_settings(num_captions=3, temperature=0.5, top_p=0.9, seed=4)
        (replies,) = captioner(server, search=search).in_order(photos[:1])
        assert [reply.text for reply in replies] == ["Photo 0."] * 3
        mine = [body for body in of_user(server) if "seed" in body]
        assert sorted(body["seed"] for body in mine) == [4, 5, 6]
        assert {(body["temperature"], body["top_p"]) for body in mine} == {(0.5, 0.9)}


def test_a_temperature_that_is_ignored_is_said_once(photos, caplog) -> None:
    search = Sampling.with_settings(num_captions=2, temperature=0.5, seed=4)

    def warns(answer: Any, **settings: Any) -> int:
        """Requests beside those for captions; checks the warning."""
        caplog.clear()
        with served(answer) as server:
            one = captioner(server, num_parallel=1, **settings)
            one.write_captions(photos[:8], keys=["x"] * 8)
            return len([body for body in of_user(server) if "seed" not in body])

    assert warns(by_number, search=search) == 2  # photos of four draws
    (said,) = caplog.messages
    assert "first 4 sampled answers equal those of m at temperature 0" in said

    def heeds(body: Body) -> Any:
        is_other = body["temperature"] and body.get("seed") == 5
        return chat("Another one.", tokens=50) if is_other else by_number(body)

    assert warns(heeds, search=search) == 1
    assert not caplog.messages
    warns(by_number)  # greedy
    assert not caplog.messages


def test_another_language_ends_the_run_with_what_was_kept(photos, tmp_path: Path) -> None:
    def german(body: Body) -> Any:
        return chat("Ein Hund und eine Katze auf dem Sofa.", tokens=50 if photo_of(body) else 5)

    kept = {"cache_folder": tmp_path / "kept", "num_parallel": 2}
    with served(german) as server:
        with pytest.raises(ValueError, match=r"first 12 .*'de'.* expected 'en'.*saved"):
            captioner(server, **kept).write_captions(photos, keys=["x"] * 40)
        num = len(of_user(server))
        assert 12 <= num < 20
        with pytest.raises(ValueError, match="language=de"):  # at once: the answers are there
            captioner(server, **kept).write_captions(photos, keys=["x"] * 40)
        assert len(of_user(server)) < num + 6
        for accepted in (
            {"language": "de"},
            {"language": "any"},
            {"prompt": "Was macht der Hund?"},
        ):
            one = captioner(server, **kept, **accepted)
            assert len(one.write_captions(photos, keys=["x"] * 40)) == 40
        with pytest.raises(ValueError, match=r"expected 'fr'"):
            captioner(server, language="fr").write_captions(photos, keys=["x"] * 40)


def test_refusals_in_small_calls_end_the_run_too(photos) -> None:
    def answer(body: Body) -> Any:
        said = by_number(body)
        return said if "-1" in json.dumps(said) else chat("I cannot help with that.")

    with served(answer) as server:
        one = captioner(server)
        for photo in photos[: MAX_WITHOUT_ANSWER - 1]:
            assert one.write_captions([photo], keys=["x"]) == [[]]
        with pytest.raises(ValueError, match=f"none of {MAX_WITHOUT_ANSWER}"):
            one.write_captions(photos[-1:], keys=["x"])


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (BeamSearch.with_settings(beam_size=3), "BeamSearch"),
        (Sampling.with_settings(top_k=5), "settings top_k"),
        (GreedySearch.with_settings(max_length=8), "settings max_length"),
        (GreedySearch.with_settings(repetition_penalty=1.2), "settings repetition_penalty"),
    ],
)
def test_searches_that_no_server_has_are_refused(search, said: str) -> None:
    with pytest.raises(ValueError, match=f"does not support {said}.*search=greedy"):
        ServedCaptioner(name="http://host/v1#m", search=search)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--beam", "3"], "--beam: not available for a model behind an address"),
        (["--n-best", "3"], "add --diverse"),
        (["--seed", "3"], "--seed: needs --diverse"),
        (["--must-include", "dog"], "--must-include: not"),
    ],
)
def test_options_that_no_server_has_are_refused(options, said: str, photos, capsys) -> None:
    place = ["--model", "http://127.0.0.1:9/v1#m"]
    assert main(["caption", str(photos[0]), *place, *options]) == 1
    assert said in capsys.readouterr().err


def test_a_wrong_address_is_said_in_a_line(photos, capsys) -> None:
    begun = time.monotonic()
    assert main(["caption", str(photos[0]), "--model", "http://127.0.0.1:9/v1#m"]) == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert main(["caption", str(photos[0]), "--model", "http://127.0.0.1:9/v1"]) == 1
    assert "names no model" in capsys.readouterr().err
    assert main(["caption", str(photos[0]), "--parallel", "2"]) == 1
    assert "--parallel: for --model http" in capsys.readouterr().err
    assert time.monotonic() - begun < 10


def test_data_without_a_caption_is_left_out(photos) -> None:
    said = {0: '{"caption": "A dog."}', 1: '```json\n{"objects": ["dog", "cat"]}\n```'}

    def answer(body: Body) -> Any:
        shown = by_number(body)["choices"][0]["message"]["content"]
        number = int(shown[6:-1]) if shown.startswith("Photo ") else -1
        return chat(said.get(number, f"Photo {number}."), tokens=50 if photo_of(body) else 5)

    with served(answer) as server:
        one = captioner(server)
        assert one.write_captions(photos[:3], keys=["0", "1", "2"]) == [
            ["A dog."],
            [],
            ["Photo 2."],
        ]
        assert one.card()["without"] == {NO_CAPTION: 1}


def test_a_folder_for_out_is_made(photos, tmp_path: Path) -> None:
    out = tmp_path / "none" / "out.csv"
    with served(by_number) as server:
        place = ["--model", f"{server.address}#m", "--out", str(out)]
        assert main(["caption", str(photos[0]), *place]) == 0
    assert "Photo 0." in out.read_text()


def test_a_folder_without_photos_costs_no_request(tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    with served(by_number) as server:
        place = ["--model", f"{server.address}#m"]
        assert main(["caption", str(tmp_path / "empty"), *place]) == 1
        said = capsys.readouterr().err
        assert "no photos here or below" in said
        assert not server.bodies


def test_a_full_disk_is_said_in_a_line_and_answers_stay(
    photos, tmp_path, monkeypatch, capsys
) -> None:
    put, calls = LineStore.put, []

    def full(store: LineStore, values: Any) -> None:
        calls.append(values)
        if len(calls) == 10:
            raise OSError(errno.ENOSPC, "No space left on device", "served")
        put(store, values)

    with served(by_number) as server:
        place = ["--model", f"{server.address}#m", "--out", str(tmp_path / "out.csv")]
        monkeypatch.setattr(LineStore, "put", full)
        assert main(["caption", str(photos[0].parent), *place]) == 1
        said = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
        assert any("No space left" in line for line in said)
        assert not any("Traceback" in line for line in said)
        assert not (tmp_path / "out.csv").exists()
        monkeypatch.setattr(LineStore, "put", put)
        before = len(of_user(server))
        assert main(["caption", str(photos[0].parent), *place]) == 0
        assert len(of_user(server)) - before <= len(photos) - 9
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(photos)


def test_two_processes_of_one_folder_write_the_same(photos, tmp_path: Path) -> None:
    with served(by_number) as server:
        command = [sys.executable, "-m", "captioning", "caption", str(photos[0].parent)]
        command += ["--model", f"{server.address}#m", "--format", "csv", "--out"]
        outs = [tmp_path / "shared.csv", tmp_path / "shared.csv", tmp_path / "other.csv"]
        running = [subprocess.Popen([*command, str(out)]) for out in outs]
        assert [one.wait(120) for one in running] == [0, 0, 0]
        before = len(server.bodies)
        assert subprocess.run([*command, str(tmp_path / "third.csv")], check=False).returncode == 0
        assert len(server.bodies) == before  # all that they kept can be read
    texts = {(tmp_path / f"{name}.csv").read_text() for name in ("shared", "other", "third")}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) == len(photos) + 1


def test_photos_are_sent_upright_flat_and_small() -> None:
    photo = Image.new("RGBA", (3000, 1500), (0, 0, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    file = io.BytesIO()
    photo.save(file, "PNG", exif=exif)
    url = data_url("a.png", file.getvalue())
    sent = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert (sent.size, sent.mode, sent.format) == ((512, 1024), "RGB", "JPEG")
    assert min(sent.tobytes()) > 250
    assert not sent.getexif()
