"""Each check finds the fault that it is for, and leaves the others' captions alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from captioning.data.roster import build_roster
from captioning.types import Sample
from curation.check import check as run_check
from curation.check import photo_checks
from curation.check.checks import ALL_CHECKS, CHECKS, THRESHOLDS
from curation.check.evidence import Evidence, PhotoFacts
from curation.check.fit_checks import fit_mixture
from curation.check.photo_checks import measured

GOOD = [
    "A brown dog runs through the tall grass.",
    "Two children play on a wooden swing.",
    "A man in a red coat is riding a bicycle.",
    "The woman with the umbrella is crossing a street.",
    "A boy jumps into the water of a pool.",
    "Several people are sitting at the table.",
]


def evidence(captions: list[str], **options: object) -> Evidence:
    """A caption a photo; photos are good and differ, unless options say more."""
    samples = [
        Sample(
            row=row,
            sample_id=f"{row}#0",
            image_id=str(row),
            image_path=Path(f"photo_{row}.jpg"),
            caption=caption,
        )
        for row, caption in enumerate(captions)
    ]
    facts: Mapping[int, PhotoFacts] = options.pop("facts", {})  # type: ignore[assignment]
    photos = {
        sample.image_path: facts.get(sample.row, good_photo(sample.row)) for sample in samples
    }
    return Evidence(roster=build_roster("set", samples), photos=photos, **options)  # type: ignore[arg-type]


def good_photo(number: int) -> PhotoFacts:
    hash = int(np.random.default_rng(number).integers(1 << 63, dtype=np.int64))
    return PhotoFacts(size=(640, 480), contrast=50.0, hash=hash)


def flagged(name: str, seen: Evidence) -> list[int]:
    check = next(check for check in CHECKS if check.name == name)
    return np.flatnonzero(check.flags(check.score(seen).values, check.threshold)).tolist()


BAD = {
    "address": [
        "See more at https://example.com/dogs",
        "write to me@mail.example.org",
        "www.photos.example a dog",
        "buy prints on dogphotos.com",
    ],
    "file_name": [
        "IMG_2041", "DSC00123.JPG", "dscn4711", "OLYMPUS DIGITAL CAMERA", "P1010023",
        "Exif_JPEG_PICTURE", "20190412_153020", "image (3)", "a dog.png", "Canon EOS 5D",
    ],
    "code": [
        "<p>A dog runs.</p>", "A dog &amp; a cat", "dog: 0.93, cat: 0.02", '{"caption": "A dog"}',
        "A dog runs.<|endoftext|>", "[UNK] runs in the grass", "A dog\\nruns", "dog = 97%",
        "return caption;", "**A dog** runs",
    ],
    "mojibake": [
        "A dog by the man\x92s house.", "CafÃ© au lait", "The manâ€™s dog", "A dog\ufffds tail",
        "ä»Šå¤© dog", "собака".encode().decode("cp1251"),
    ],
    "refusal": [
        "I'm sorry, I can't help with identifying people.",
        "As an AI language model, I cannot see images.",
        "I\N{RIGHT SINGLE QUOTATION MARK}m unable to view the photo.",
        "Please provide the image so that I can describe it.",
        "Sure! Here is a caption: a dog runs.",
        "I cannot directly view the picture.",
        "Quality issues are too severe to recognize visual content.",
        "The image is too blurry to identify anything.", "too dark and blurry to make out",
        "It looks like your message is empty.", "Hello! How can I help you today?",
        "It seems you haven't uploaded an image yet.", "images are missing",
        "I don't see any image attached to your message.", "The photo could not be loaded.",
        "I cannot determine what is in this image.",
        "This image is too dark to see.", "The picture is unclear.", "Unrecognizable image.",
        "the image is blurry and cannot be recognized", "The image is completely black.",
        "It is not possible to describe this image.", "The user has not provided an image.",
        "It appears that the message you sent is blank.", "There is no image to describe.",
        "I'm here to help! What is it?", "There doesn't seem to be an image attached.",
        "Unable to determine the contents of the image due to low quality",
    ],
    "marker": [
        "<|im_start|>assistant A dog runs.<|im_end|>", "[INST] Describe it. [/INST] A dog runs.",
        "USER: What is it? ASSISTANT: A dog runs.", "Assistant: A dog runs.", "A dog runs.</s>",
        "startseq a dog runs endseq", "<start> a dog runs <end>", "a <unk> runs", "a UNK runs",
        "### Response: A dog runs.", "<start_of_turn>model A dog", "Caption: A dog runs.",
        "<image> A dog runs.", "Human: describe. A dog", "a do ##g runs", "<__dj__image> A dog",
        "\u2581a \u2581dog", "a run@@ ning dog", "[SOS] a dog", "You are a helpful assistant.",
        "Describe this image in detail.", "Write a caption for the photo.",
        "What is in the picture?",
    ],
    "template": [
        "A photo of a {subject}.", "A {{ color }} dog", "[insert caption here]", "A [color] dog",
        "[Your description]", "<insert name> runs", "A ${animal} runs", "a photo of %s", "TBD",
        "Lorem ipsum dolor sit amet", "A photo of {}.", "a %(animal)s runs", "Your caption here",
        "A picture of __subject__", "A picture of <subject>", "A ___ runs", "a photo of XXXX",
        "$subject runs", "%SUBJECT% runs", "Describe the image here",
    ],
    "no_caption": [
        "N/A", "n/a.", "None", "null", "NaN", "No caption", "no caption available.", "[blank]",
        "No description provided", "image description", "Not available", "Unknown", "caption here",
        "Keine Beschreibung", "无", "(no text)", "no caption was provided for this image",
        "Image not available", "image unavailable", "I don't know", "unanswerable", "not sure",
    ],
    "repetition": [
        "A dog runs. A dog runs.", "a dog a dog a dog", "dog dog dog dog",
        "A man on the beach on the beach.", "一只狗在跑一只狗在跑一只狗在跑",
        "A dog runs on the grass and a dog runs on the grass",
        "The cat sleeps. A boy eats. The cat sleeps!",
    ],
    "too_long": [" ".join(["A dog runs and"] * 20)],
    "too_short": ["Dog", "-"],
    "other_language": [
        "Ein Hund läuft durch das hohe Gras und bellt.",
        "Un homme est assis sur une chaise avec deux enfants.",
        "Собака бежит по траве.",
        "一只狗在草地上奔跑",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_check_of_texts_finds_its_faults_alone(name: str) -> None:
    bad = BAD[name]
    seen = evidence([*GOOD * 2, *bad])
    expected = list(range(2 * len(GOOD), 2 * len(GOOD) + len(bad)))
    assert flagged(name, seen) == expected


@pytest.mark.parametrize("name", BAD)
def test_good_captions_are_not_flagged(name: str) -> None:
    further = [
        "Two men die fish from the sea.",
        "A sign says 50% off, and the shoes cost $1.99.",
        "A café with a naïve painting.",
        "It\N{RIGHT SINGLE QUOTATION MARK}s £5 – “cheap”… ½ of the price, 20\N{DEGREE SIGN}C, Àé.",
        "A boy, aged 3.5, eats an ice cream.",
        "The 4x4 stands in image-perfect scenery.",
        "I am sorry for the old dog in the rain.",
        "A girl plays a video game while her image is displayed behind her.",
        "Two dogs, one brown and one brown and white, run in a yard.",
        "A man in a red shirt and a woman in a red dress stand side by side by side.",
        "A man in a black shirt and a man in a black hat; the man in the hat smiles.",
        "A very, very, very large dog, too large to see over.",
        "The model: a plane, too low to land.",
        "A user manual and a caption on a blank page that says no text.",
        "None of the people is in the picture.",
        "A picture of a dark, blurry dog.",
        "A man tries to describe what is in the picture.",
        "It is too far to see the house.",
        "A helpful assistant holds $20 and a 100% cotton shirt.",
        "What a picture of a dog!",
        "A photo that is not sure to please.",
        "A blank caption card, size XXL.",
        "A test of a bike. No data is on the screen.",
        "Children choose a place [of their own] and please the crowd.",
        "Nothing but sand.",
        "It looks like a dog. You can see it seems too dark to swim.",
        "An empty box is missing a lid.",
    ]
    assert flagged(name, evidence([*GOOD, *further])) == []


@pytest.mark.long
def test_captions_that_people_wrote_of_photos_hold_no_marks(shared_data: Path) -> None:
    lines = (shared_data / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines()
    seen = evidence([line.partition("\t")[2] for line in lines][::4])
    for name in ("marker", "template", "no_caption", "repetition", "refusal"):
        assert [seen.captions[row] for row in flagged(name, seen)] == []


def test_a_caption_that_is_its_files_name_is_found_if_it_looks_like_one() -> None:
    seen = evidence(["photo_0", *GOOD])
    assert flagged("file_name", seen) == [0]


def test_the_usual_language_is_the_sets() -> None:
    german = [
        "Ein Hund läuft durch das hohe Gras.",
        "Die Frau und der Mann sind mit dem Kind auf der Straße.",
    ]
    seen = evidence([*german * 3, "A dog is running through the tall grass."])
    assert flagged("other_language", seen) == [6]
    assert flagged("other_language", evidence(["Собака бежит."] * 3 + ["A dog runs."])) == [3]


def test_one_caption_on_many_photos() -> None:
    seen = evidence([*GOOD, *["Photo of the day!"] * 3, "photo of the DAY", "Photo of the day"])
    assert flagged("same_caption", seen) == [6, 7, 8, 9, 10]
    assert flagged("same_caption", evidence([*GOOD, *["Photo of the day!"] * 4])) == []


def test_photos_that_are_broken_tiny_or_blank() -> None:
    facts = {
        1: PhotoFacts(problem="photo is truncated"),
        2: PhotoFacts(size=(40, 300), contrast=40, hash=5),
        3: PhotoFacts(size=(400, 300), contrast=1.5, hash=0),
    }
    seen = evidence(GOOD, facts=facts)
    assert flagged("broken_photo", seen) == [1]
    assert flagged("tiny_photo", seen) == [2]
    assert flagged("blank_photo", seen) == [3]


def scene(size: tuple[int, int] = (320, 240), seed: int = 0) -> Image.Image:
    """Patches of all colours with sharp edges and some noise, as a photo has them."""
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (12, 16, 3), np.uint8)
    photo = np.asarray(Image.fromarray(patches).resize(size, Image.Resampling.NEAREST))
    noisy = photo + rng.normal(0, 6, photo.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def darkened(photo: Image.Image, light: float, lift: float = 0) -> Image.Image:
    return Image.fromarray((np.asarray(photo) * light + lift).clip(0, 255).astype(np.uint8))


LOOKS = {
    "dark_photo": lambda photo: darkened(photo, 0.25),
    "light_photo": lambda photo: ImageOps.expand(photo.resize((48, 36)), 140, "white"),
    "blurry_photo": lambda photo: photo.filter(ImageFilter.GaussianBlur(8)),
    "low_information": lambda photo: ImageOps.expand(
        Image.new("RGB", photo.size, (20, 20, 24)), 40, (255, 255, 235)
    ),
    "odd_aspect": lambda photo: photo.crop((0, 0, photo.width, photo.height // 3)),
    "grey_photo": lambda photo: photo.convert("L"),
}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["RGB", "JPEG"])
@pytest.mark.parametrize("name", LOOKS)
def test_a_look_is_found_in_a_file_and_told_alone(tmp_path: Path, name: str, mode: str) -> None:
    suffix = "jpg" if mode == "JPEG" else "png"
    for number in range(4):
        photo = scene(seed=number)
        if number == 2:
            photo = LOOKS[name](photo)
            photo = photo.convert("RGB") if mode == "RGB" else photo
        photo.save(tmp_path / f"{number}.{suffix}")
        (tmp_path / f"{number}.txt").write_text(GOOD[number])
    result = run_check(tmp_path, space="none", quiet=True)
    assert np.flatnonzero(result.flags[name]).tolist() == [2]
    others = {other for other in LOOKS if result.flags[other].any()} - {name}
    assert others <= ({"low_information"} if name in ("dark_photo", "light_photo") else set())
    assert result.issues[2]["issues"].split(";").count(name) == 1
    assert not result.flagged.any()
    assert not result.suspicion.any()
    assert f"{name:16}" in result.summary()
    assert f"(--remove {name})" in result.summary()
    removed = run_check(tmp_path, space="none", quiet=True, remove=[name])
    assert removed.issues[2]["flag"] is removed.flagged[2].item() is True
    assert [edit.sample_id for edit in removed.edits({}, {})] == [
        result.roster.samples[2].sample_id
    ]


def test_copies_across_splits_are_told_with_both_names(tmp_path: Path) -> None:
    pictures = [scene(seed=number) for number in range(6)]
    lines = ["file_name,text,split"]
    for number, split in enumerate(["train", "train", "train", "val", "test", "test"]):
        pictures[number].save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{GOOD[number]},{split}")
    copies = {"in_test": (0, "test"), "in_train": (1, "train"), "again": (2, "val")}
    for name, (number, split) in copies.items():
        pictures[number].save(tmp_path / f"{name}.jpg", quality=80)
        lines.append(f"{name}.jpg,A photo of patches.,{split}")
    pictures[2].resize((160, 120)).save(tmp_path / "small.png")
    lines.append("small.png,A small photo of patches.,val")
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    result = run_check(tmp_path, space="none", quiet=True)
    samples = result.roster.samples
    found = {
        samples[row].image_path.name: result.reason("split_copy", row)
        for row in np.flatnonzero(result.flags["split_copy"])
    }
    home = tmp_path.name
    assert found == {
        "in_test.jpg": f"{home}/in_test.jpg (test) is a copy of {home}/0.png (train)",
        "again.jpg": f"{home}/again.jpg (val) is a copy of {home}/2.png (train)",
        "small.png": f"{home}/small.png (val) is a copy of {home}/2.png (train)",
    }
    assert set(np.flatnonzero(result.flags["duplicate_photo"])) == {6, 7, 8, 9}
    lines = [line.rpartition(",")[0] for line in lines]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    assert not run_check(tmp_path, space="none", quiet=True).flags["split_copy"].any()


def test_a_look_is_that_of_the_photo_and_not_of_its_size_or_background() -> None:
    large, reduced = scene((1600, 1200)), scene((1600, 1200)).reduce(8)
    for name, least in (("dark_photo", 0.05), ("light_photo", 0.05), ("low_information", 0.5)):
        assert abs(measured(large)[name] - measured(reduced)[name]) < least
    sharp_part = scene().filter(ImageFilter.GaussianBlur(8))
    sharp_part.paste(scene().crop((80, 60, 240, 180)), (80, 60))
    assert measured(sharp_part)["blurry_photo"] < 0.35
    spot = scene().convert("L").convert("RGB")
    spot.paste((200, 30, 30), (100, 100, 112, 112))
    assert measured(spot)["grey_photo"] > 50
    grey = scene().convert("L")
    for photo in (grey.convert("RGB"), scene()):
        channels = 1 if photo.getpixel((0, 0)) == grey.convert("RGB").getpixel((0, 0)) else 3
        bits = (photo.convert("L") if channels == 1 else photo).entropy()
        assert measured(photo)["low_information"] == pytest.approx(bits, abs=0.1)


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (7, 7), (128, 128), (129, 1)])
def test_photos_of_any_size_are_measured(size: tuple[int, int]) -> None:
    for photo in (scene(size), Image.new("RGB", size, "red"), Image.new("RGB", size)):
        values = measured(photo)
        assert list(values) == [name for name in LOOKS if name != "odd_aspect"]
        assert all(np.isfinite(value) for value in values.values())


def test_copies_of_photos_are_found_and_the_first_stays() -> None:
    value = good_photo(0).hash
    facts = {
        2: PhotoFacts(size=(320, 240), contrast=50, hash=value),
        4: PhotoFacts(size=(320, 240), contrast=50, hash=value ^ 0b101),
        5: PhotoFacts(size=(320, 240), contrast=50, hash=value ^ 0xFFF00),
    }
    seen = evidence(GOOD, facts=facts)
    assert flagged("duplicate_photo", seen) == [2, 4]
    vectors = np.eye(len(GOOD), dtype=np.float32)
    vectors[4] = vectors[0]
    unlike = evidence(GOOD, facts=facts, photo_vectors=vectors)
    assert flagged("duplicate_photo", unlike) == [4]  # equal hashes of unlike photos are chance
    vectors[2] = vectors[5]
    vectors[3] = vectors[5]
    facts |= dict.fromkeys((3, 5), facts[2])
    unlike = evidence(GOOD, facts=facts, photo_vectors=vectors)
    assert flagged("duplicate_photo", unlike) == [3, 4, 5]
    found = photo_checks.duplicates(unlike)
    assert [found.reasons[row] for row in (3, 5)] == ["a copy of photo_2.jpg"] * 2


@pytest.mark.parametrize("embedded", [False, True])
def test_many_copies_of_a_placeholder_are_compared_with_the_first_alone(
    monkeypatch, embedded: bool
) -> None:
    placeholder = PhotoFacts(size=(320, 240), contrast=50, hash=good_photo(0).hash)
    facts = dict.fromkeys(range(200), placeholder)
    vectors = np.ones((200, 1), dtype=np.float32) if embedded else None
    seen = evidence([f"Caption {n}." for n in range(200)], facts=facts, photo_vectors=vectors)
    compared = []
    count = np.bitwise_count
    monkeypatch.setattr(np, "bitwise_count", lambda bits: compared.append(bits.size) or count(bits))
    found = photo_checks.duplicates(seen)
    assert found.values.tolist() == [0] + [1] * 199
    assert set(found.reasons.values()) == {"a copy of photo_0.jpg"}
    assert sum(compared) <= 200


def space(
    num_images: int, captions_each: int, *, noise: float = 0.6, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of photos, and of captions near them."""
    rng = np.random.default_rng(seed)
    photos = rng.normal(size=(num_images, 32))
    captions = np.repeat(photos, captions_each, 0)
    captions = captions + noise * rng.normal(size=captions.shape)
    photos = photos + 0.4 * rng.normal(size=photos.shape)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (photos, captions)]
    return unit[0].astype(np.float32), unit[1].astype(np.float32)


def captioned(photos: np.ndarray, captions: np.ndarray, each: int, image_of=None) -> Evidence:
    """Evidence of photos with ``each`` captions, which lie in the order of the photos."""
    samples = []
    for row in range(len(captions)):
        image = row // each if image_of is None else int(image_of[row])
        samples.append(
            Sample(
                row=row,
                sample_id=f"{image}#{row}",
                image_id=str(image),
                image_path=Path(f"{image}.jpg"),
                caption=f"caption {row}",
            )
        )
    facts = {sample.image_path: good_photo(int(sample.image_id)) for sample in samples}
    return Evidence(
        roster=build_roster("set", samples),
        photos=facts,
        photo_vectors=photos,
        caption_vectors=captions,
        sentence_vectors=captions,
        space="toy",
    )


@pytest.mark.long
@pytest.mark.parametrize("each", [1, 5])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_swapped_captions_are_found_and_their_chance_is_right(each: int, share: float) -> None:
    photos, captions = space(400, each)
    rng = np.random.default_rng(1)
    bad = rng.permutation(len(captions))[: int(share * len(captions))]
    captions[bad] = captions[np.roll(bad, 1)]
    seen = captioned(photos, captions, each)
    check = next(check for check in CHECKS if check.name == "fit")
    chances = check.score(seen).values
    found = check.flags(chances, check.threshold)
    truth = np.isin(np.arange(len(captions)), bad)
    assert found[truth].mean() > 0.85 if share else found.mean() < 0.005
    if share:
        assert found[~truth].mean() < 0.01
    assert abs(float(chances.mean()) - share) < 0.02
    assert abs(float(chances[found].sum()) - truth[found].sum()) < 0.05 * len(captions) * share + 3


def test_photos_that_none_of_their_captions_fit_are_found() -> None:
    photos, captions = space(300, 5)
    photos[:6] = photos[[5, 0, 1, 2, 3, 4]]
    seen = captioned(photos, captions, 5)
    found = flagged("wrong_photo", seen)
    assert set(range(30)) <= set(found)
    assert len(found) <= 35


@pytest.mark.parametrize("step", [1, -1])
def test_a_run_of_captions_of_the_neighbour_is_found(step: int) -> None:
    photos, captions = space(300, 2)
    bad = np.arange(100, 110)
    moved = captions.copy()
    for image in bad:
        moved[2 * image : 2 * image + 2] = captions[2 * (image + step) : 2 * (image + step) + 2]
    seen = captioned(photos, moved, 2)
    found = flagged("shifted", seen)
    assert {2 * image for image in bad} <= set(found)
    assert len(found) <= 2 * len(bad) + 4
    assert flagged("shifted", captioned(photos, captions, 2)) == []


def test_a_space_that_knows_nothing_of_the_photos_flags_none() -> None:
    _, captions = space(200, 1)
    photos, _ = space(200, 1, seed=5)
    seen = captioned(photos, captions, 1)
    check = next(check for check in CHECKS if check.name == "fit")
    scores = check.score(seen)
    assert np.isnan(scores.values).all()
    assert "choose a better embedding space" in scores.note


def test_too_few_photos_are_not_judged_by_a_space() -> None:
    photos, captions = space(10, 1)
    check = next(check for check in CHECKS if check.name == "fit")
    scores = check.score(captioned(photos, captions, 1))
    assert np.isnan(scores.values).all()
    assert "at least 20 photos" in scores.note


def test_the_share_of_wrong_pairs_is_estimated() -> None:
    rng = np.random.default_rng(0)
    random = rng.normal(size=(4000, 1))
    given = np.concatenate([rng.normal(size=(250, 1)), 3 + rng.normal(size=(750, 1))])
    mixture = fit_mixture(given, random)
    assert mixture.share == pytest.approx(0.25, abs=0.03)
    assert mixture.chance_wrong(np.array([[-1.0], [4.0]])).round().tolist() == [1, 0]


def test_names_are_unique_and_every_check_has_a_threshold() -> None:
    assert len(THRESHOLDS) == len(ALL_CHECKS) == len(CHECKS) + 11
