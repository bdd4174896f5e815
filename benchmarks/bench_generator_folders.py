"""Plant faults in a folder for fine-tuning image generators, and compare what three tools find.

python benchmarks/bench_generator_folders.py PHOTOS TOKENS LIST \\
    --caption-audit PROGRAM --lora-audit PROGRAM [--seed 0] [--number 160]

PHOTOS, TOKENS and LIST are Flickr8k's folder of images, its token file and the list of a split. The
programs are those of caption-audit 1.3.0 and lora-audit 0.1.0, each from an environment of its own
(``python -m venv A; A/bin/pip install caption-audit==1.3.0``). Prints the machine, a table of
planted faults, what each tool finds of them, and whatever the two find that `check` does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from captioning.data.readers.generator_folders import DEFAULT
from curation.check import check
from curation.check.generator_folder import EMPTY_WORDS, NO_PHOTO, Purpose, words_in
from curation.check.result import CheckResult

TRIGGER, CLASS = "ohwx", "scene"
SIDE = 640
FOLDERS = ("img/10_ohwx scene", "img/5_ohwx street")
Found = Mapping[str, set[str]]  # names without suffix, or terms, by kind of fault
KINDS = {
    "no_text": "photo without text",
    "empty": "empty text",
    "encoding": "text that is not UTF-8, or with a byte order mark",
    "no_photo": "text without photo",
    "missing": "trigger missing",
    "misspelt": "trigger misspelt",
    "letters": "trigger in capitals",
    "place": "trigger not first",
    "class": "class word missing",
    "fused": "word in over 85% of captions",
    "strong": "word in 60 to 85%",
    "frequent": "word in 35 to 60%",
    "same": "same caption on two photos",
    "alike": "nearly the same caption",
    "length": "caption of odd length",
    "variety": "little variety of wording",
    "shared": "default caption alone",
    "small": "side below 512 pixels",
    "sizes": "photos of several sizes",
    "number": "over 150 photos",
    "ending": "ending of another format",
    "name": "name with spaces or signs",
    "junk": "files of an operating system",
    "list": "list of photos that are not there",
    "spread": "validation photos of one folder",
    "style": "tags among sentences",
    "tokens": "over 77 tokens of CLIP",
    "repeats": "repeats of kohya's folders",
    "second": "second tree of captions",
    "fit": "caption of another photo",
}


@dataclass
class Planted:
    """A folder with planted faults.

    Attributes:
        root: the folder.
        faults: names or terms by kind.
        texts: captions by name.
    """

    root: Path
    faults: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)

    def path(self, name: str, end: str = ".txt") -> Path:
        """Path of a photo file in the folder."""
        return self.root / self.folders[name] / f"{name}{end}"


def main() -> None:
    """Print all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    for name in ("photos", "tokens", "list"):
        add(name)
    add("--caption-audit", required=True)
    add("--lora-audit", required=True)
    add("--seed", type=int, default=0)
    add("--number", type=int, default=160)
    add("--keep", metavar="FOLDER", help="folder to keep the planted data in")
    options = parser.parse_args()
    head = f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}"
    print(f"commit {commit()}, {head}, {datetime.now(UTC):%Y-%m-%d}, seed {options.seed}")
    with tempfile.TemporaryDirectory() as name:
        planted = plant(options, Path(options.keep or name) / "set")
        tools = {
            "caption-audit": lambda: by_caption_audit(options.caption_audit, planted),
            "lora-audit": lambda: by_lora_audit(options.lora_audit, planted),
            "check": lambda: ours(check(planted.root, quiet=True, generator=PURPOSE)),
        }
        found = {name: timed(name, tool) for name, tool in tools.items()}
    report(planted, found)


PURPOSE = Purpose(trigger=TRIGGER, class_words=(CLASS,))


def timed(name: str, tool: Callable[[], Found]) -> Found:
    """Return a tool's findings; print its time, including start-up."""
    start = time.monotonic()
    found = tool()
    print(f"{name}: {time.monotonic() - start:.1f} s")
    return found


def commit() -> str:
    """Commit of this checkout."""
    git = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


# The planted folder


def plant(options: argparse.Namespace, root: Path) -> Planted:
    """Write Flickr8k as kohya folders with planted faults of each kind."""
    draw = random.Random(options.seed)
    names = sorted(set(Path(options.list).read_text().split()))
    captions = {}
    for line in Path(options.tokens).read_text().splitlines():
        key, _, caption = line.partition("\t")
        captions.setdefault(key.partition("#")[0], caption.strip(" .").lower())
    planted = Planted(root)
    chosen = draw.sample([name for name in names if name in captions], options.number)
    for number, name in enumerate(chosen):
        own = f"p{number:03d}"
        planted.folders[own] = FOLDERS[number % 3 == 2]
        planted.texts[own] = caption_of(captions[name], draw)
        path = planted.path(own, ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        enlarged(Path(options.photos) / name).save(path)
    left = draw.sample(sorted(planted.texts), len(planted.texts))
    taken = iter(left)
    change_captions(planted, lambda n: [next(taken) for _ in range(n)])
    for own, text in planted.texts.items():
        planted.path(own).write_text(text, encoding="utf-8")
    change_files(planted, lambda n: [next(taken) for _ in range(n)], draw)
    return planted


def enlarged(path: Path, side: int = SIDE) -> Image.Image:
    """Enlarge a photo to a given smaller side, because Flickr8k's are smaller than a bucket."""
    with Image.open(path) as photo:
        scale = side / min(photo.size)
        return photo.convert("RGB").resize([round(n * scale) for n in photo.size])


def caption_of(caption: str, draw: random.Random) -> str:
    """Caption with the trigger and words that more or fewer captions share."""
    shares = (("soft light", 0.92), ("film grain", 0.72), ("wide angle", 0.45))
    more = [words for words, share in shares if draw.random() < share]
    return ", ".join([f"{TRIGGER} {CLASS}", caption, *more])


def change_captions(planted: Planted, take: Callable[[int], list[str]]) -> None:
    """Plant faults in captions, at most one in each caption."""
    faults, texts = planted.faults, planted.texts
    faults |= {"fused": {"soft light"}, "strong": {"film grain"}, "frequent": {"wide angle"}}
    faults |= {"variety": {"set"}, "sizes": {"set"}, "number": {"set"}}
    swapped = take(8)
    for first, second in zip(swapped[::2], swapped[1::2], strict=True):
        texts[first], texts[second] = texts[second], texts[first]
    faults["fit"] = set(swapped)
    head = f"{TRIGGER} {CLASS}"
    for kind, news in (
        ("missing", [f"a {CLASS}"] * 3),
        ("misspelt", [f"{word} {CLASS}" for word in ("ohwxx", "ohxw", "ohw")]),
        ("letters", [f"OHWX {CLASS}"]),
        ("class", [TRIGGER] * 2),
    ):
        for own, new in zip(take(len(news)), news, strict=True):
            texts[own] = texts[own].replace(head, new, 1)
            faults[kind].add(own)
    for own in take(3):
        texts[own] = f"{texts[own].replace(f'{head}, ', '', 1)}, {head}"
        faults["place"].add(own)
    places = iter(["in the morning", "beside a row of houses", "under heavy grey clouds"])
    for count, kind in ((2, "same"), (1, "alike")):
        for _ in range(count):
            first, second = take(2)
            where = next(places)
            texts[first] = f"{head}, {LONG} {where}, soft light"
            texts[second] = texts[first] + (", wide angle" if kind == "alike" else "")
            faults[kind] |= {first, second}
            faults["fit"] |= {first, second}  # whatever the photos show
    for own in take(2):
        texts[own] += ", " + ", ".join(f"behind it {thing} in the sun" for thing in THINGS)
        faults["tokens"].add(own)
        faults["length"].add(own)
    for own in take(3):
        texts[own] = f"{head}, grass, sky, no humans, day, tree, soft light"
        texts[own] = texts[own].replace("tree", f"tree {len(faults['style'])}")
        faults["style"].add(own)
        faults["fit"].add(own)


LONG = (
    "an old fishing boat with peeling blue paint lies on its side near the stone pier at low tide"
)
THINGS = ["a fence", "two trees", "a wall", "a lamp", "three birds", "clouds", "a hill", "a road"]


def change_files(planted: Planted, take: Callable[[int], list[str]], draw: random.Random) -> None:
    """Plant faults in files, at most one in each file."""
    root, faults = planted.root, planted.faults
    for own in take(3):
        planted.path(own).unlink()
        faults["no_text"].add(own)
    for own in take(2):
        planted.path(own).write_text(" \n")
        faults["empty"].add(own)
    first, second, marked = take(3)
    for own in (first, second):
        planted.path(own).write_bytes(f"{planted.texts[own]}, caf\xe9".encode("latin-1"))
    planted.path(marked).write_text(planted.texts[marked], encoding="utf-8-sig")
    faults["encoding"] = {first, second, marked}
    for number in range(3):
        (root / FOLDERS[0] / f"gone{number}.txt").write_text(f"{TRIGGER} {CLASS}, a dog {number}")
        faults["no_photo"].add(f"gone{number}")
    for own in take(3):
        enlarged(planted.path(own, ".png"), draw.randint(200, 400)).save(planted.path(own, ".png"))
        faults["small"].add(own)
    for own in take(2):
        with Image.open(planted.path(own, ".png")) as photo:
            photo.load()
        photo.save(planted.path(own, ".png"), "JPEG")
        faults["ending"].add(own)
    for own, new in zip(take(2), ("a photo (1)", "stra\xdfe"), strict=True):
        for end in (".png", ".txt"):
            planted.path(own, end).rename(planted.path(own, end).with_stem(new))
        planted.folders[new] = planted.folders[own]
        faults["name"].add(new)
    for name in ("Thumbs.db", ".DS_Store"):
        (root / FOLDERS[1] / name).touch()
        faults["junk"].add(name)
    add_folders(planted)


def add_folders(planted: Planted) -> None:
    """Add lists, a folder with a default caption, and a second tree of captions."""
    root, faults = planted.root, planted.faults
    known = sorted(path.relative_to(root).as_posix() for path in (root / FOLDERS[0]).glob("p*.png"))
    (root / "train.txt").write_text("\n".join([*known[5:], "img/lost.png"]))
    (root / "val.txt").write_text("\n".join(known[:5]))
    faults |= {"list": {"img/lost.png"}, "spread": {"val.txt"}}
    near = root / "img" / "near"
    near.mkdir()
    (near / "default_caption.txt").write_text(f"{TRIGGER} {CLASS}, near")
    for number in range(3):
        shutil.copyfile(root / known[10 + number], near / f"near{number}.png")
        photo = Image.open(near / f"near{number}.png").rotate(90 * (number + 1), expand=True)
        photo.save(near / f"near{number}.png")
        faults["shared"].add(f"near{number}")
    second = root / "cap_other" / Path(FOLDERS[0]).name
    second.mkdir(parents=True)
    for name in known:
        (second / Path(name).with_suffix(".txt").name).write_text("another caption")
    faults |= {"second": {"cap_other"}, "repeats": {Path(name).name for name in FOLDERS}}


# What the tools find, by kind


def by_caption_audit(program: str, planted: Planted) -> Found:
    """Findings in caption-audit's JSON, without the second tree, which would hide faults."""
    command = [program, str(planted.root / "img"), "--recursive", "--trigger", TRIGGER]
    command += ["--class-word", CLASS, "--format", "json"]
    told = json.loads(output_of(command))
    pairing, trigger, words = told["pairing"], told["trigger"], told["df"]["rows"]
    found = {
        "no_text": {stem for stem, _ in pairing["images_without_caption"]},
        "no_photo": set(pairing["captions_without_image"]),
        "empty": set(pairing["empty_captions"]),
        "encoding": {stem for stem, _ in pairing["encoding_problems"]},
        "missing": set(trigger["missing_files"]),
        "misspelt": {stem for variant in trigger["variants"] for stem in variant["files"]},
        "class": {s for word in trigger["class_word_coverage"] for s in word["missing_files"]},
        "same": {s for group in told["redundancy"]["exact"] for s in group["files"]},
        "alike": {pair[key] for pair in told["redundancy"]["near"] for key in "ab"},
        "length": {one["file"] for one in told["distribution"]["outliers"]},
    }
    if told["distribution"]["type_token_ratio"] < 0.25:
        found["variety"] = {"set"}
    if len(trigger["positions"]) > 1:
        found["place"] = {f"word {place}" for place in trigger["positions"] if place != "0"}
    for kind, severity in (("fused", "CRITICAL"), ("strong", "WARNING"), ("frequent", "INFO")):
        own = [row for row in words if row["flagged"] and row["severity"] == severity]
        found[kind] = {row["term"] for row in own if not row["subsumed_by"]}
    return found


def output_of(command: list[str]) -> str:
    """Output of a tool; both tools exit with their own codes if they find something."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


RULES = {
    "E001": "no_text", "W001": "empty", "W002": "same", "W004": "shared", "W005": "name",
    "W006": "no_photo", "W007": "small", "W010": "junk", "W011": "list", "W013": "ending",
}  # fmt: skip


def by_lora_audit(program: str, planted: Planted) -> Found:
    """Findings in lora-audit's JSON."""
    with tempfile.TemporaryDirectory() as out:
        command = [program, "scan", str(planted.root), "--json", "-", "-o", out]
        told = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=False).stdout
        )
    found: dict[str, set[str]] = defaultdict(set)
    for finding in told["findings"]:
        rule, items = finding["id"], set(finding["items"])
        if rule in RULES:
            kept = rule in ("W010", "W011")
            found[RULES[rule]] |= {
                (Path(item).name if rule == "W010" else item) if kept else Path(item).stem
                for item in items
            }
        elif rule == "W003":
            found["drift"] = {Path(item).stem for item in items}
        elif rule in ("W008", "W009"):
            found["sizes" if rule == "W008" else "number"] = {"set"}
        elif rule == "W012":
            found["spread"] = {"val.txt"}
    layout = json.dumps([told["layout"], told["findings"]], ensure_ascii=False)
    if "cap_other" in layout:
        found["second"] = {"cap_other"}
    if "kohya" in layout:
        found["repeats"] = {Path(name).name for name in FOLDERS if Path(name).name in layout}
    return found


FLAGS = {
    "trigger_missing": ("missing",), "trigger_misspelt": ("misspelt", "letters"),
    "trigger_not_first": ("place",), "class_missing": ("class",), "mixed_style": ("style",),
    "repeated_caption": ("same",), "alike_caption": ("alike",), "shared_caption": ("shared",),
    "small_photo": ("small",), "long_for_clip": ("tokens",), "too_long": ("length",),
    "too_short": ("length",), "fit": ("fit",),
}  # fmt: skip
NOTES = {
    "odd_lengths": "length", "few_words": "variety", "wrong_endings": "ending", "names": "name",
    "system_files": "junk", "sizes": "sizes", "many_photos": "number", "repeats": "repeats",
    "fused_words": "fused", "constant_words": "fused", "strong_words": "strong",
    "frequent_words": "frequent", "byte_order_marks": "encoding",
}  # fmt: skip
OF_SET = ("variety", "sizes", "number")
RULES_OF_OURS = {
    "photo without caption": "no_text", "text is empty": "empty", NO_PHOTO: "no_photo",
}  # fmt: skip


def ours(result: CheckResult) -> Found:
    """Findings of ``captioning check``."""
    found: dict[str, set[str]] = defaultdict(set)
    samples = result.roster.samples
    for name, kinds in FLAGS.items():
        stems = {s.image_path.stem for s in samples if result.flags[name][s.row]}
        for kind in kinds:
            found[kind] |= stems
    for drop in result.roster.dropped:
        kind = "encoding" if "not UTF-8" in drop.rule else RULES_OF_OURS.get(drop.rule)
        found[kind or drop.rule].add(Path(drop.item).stem)
    for note in result.notes:
        items = {item for item, _ in note.items}
        if note.name == "lists":
            found["spread" if "val.txt" in items else "list"] |= items
        elif note.name == "second_captions":
            found["second"] |= {item.partition("/")[0] for item in items}
        elif note.name in NOTES:
            kind = NOTES[note.name]
            keep = kind in ("fused", "strong", "frequent", "repeats")
            names = {item if keep else Path(item).name for item in items}
            stems = names if keep or kind == "junk" else {Path(name).stem for name in names}
            found[kind] |= {"set"} if kind in OF_SET else stems
    return found


# The table


def report(planted: Planted, found: Mapping[str, Found]) -> None:
    """Print each tool's detected planted faults and its other findings."""
    print(f"\n| planted | | {' | '.join(found)} |\n|---|---:|{'---:|' * len(found)}")
    for kind, title in KINDS.items():
        faults = planted.faults[kind]
        if not faults:
            continue
        counts = [hits(kind, faults, tool) for tool in found.values()]
        print(f"| {title} | {len(faults)} | {' | '.join(counts)} |")
    own = found["check"]
    wrong = {k: len(own.get(k, set()) - planted.faults[k]) for k in ("fit", "missing", "style")}
    print(f"\ncheck flags beside what is planted: {wrong}")
    for name in ("caption-audit", "lora-audit"):
        lacking = not_in_ours(found[name], own, planted)
        if lacking.get("no_photo") == {DEFAULT}:
            print(f"{name}: takes {DEFAULT}.txt for a text without photo, which it is not")
            del lacking["no_photo"]
        total = sum(map(len, found[name].values()))
        print(f"{name}: {total} findings, {sum(map(len, lacking.values()))} of them not in check")
        for kind, items in lacking.items():
            print(f"  {kind}: {sorted(items)}")


def hits(kind: str, faults: set[str], tool: Found) -> str:
    """Number of planted faults that a tool finds."""
    told = tool.get(kind, set())
    if kind in ("missing", "misspelt", "letters", "place") and "drift" in tool:
        told = told | tool["drift"]  # one rule for all four
    if kind == "place" and any(item.startswith("word ") for item in told):
        return "counted"
    if kind in ("fused", "strong", "frequent"):
        told = set(map(plain, told))
    number = len(faults & told)
    return str(number) if number else "-"


def plain(term: str) -> str:
    """Phrase without function words at its ends."""
    words = words_in(term)
    while words and words[0] in EMPTY_WORDS:
        words = words[1:]
    while words and words[-1] in EMPTY_WORDS:
        words = words[:-1]
    return " ".join(words)


# What is the same under another name: the trigger is missing where it is misspelt, too.
ALSO: dict[str, tuple[str, ...]] = {
    "missing": ("misspelt", "empty", "no_photo", "encoding"),
    "class": ("empty", "no_photo", "encoding"),
    "drift": ("missing", "misspelt", "place", "letters", "encoding"),
    "misspelt": ("missing",),
    "length": ("no_photo", "encoding", "shared", "tokens"),
    "same": ("shared",),
    "no_text": ("shared",),
    "fused": ("strong",), "strong": ("fused", "frequent"), "frequent": ("strong",),
}  # fmt: skip


def not_in_ours(theirs: Found, own: Found, planted: Planted) -> dict[str, set[str]]:
    """Findings of another tool that ``captioning check`` lacks."""
    lacking: dict[str, set[str]] = {}
    for kind, items in theirs.items():
        told = set().union(*(own.get(name, set()) for name in (kind, *ALSO.get(kind, ()))))
        if kind in ("fused", "strong", "frequent"):
            told |= {part for term in told for part in parts(term)}
            items = {term for term in items if plain(term)}
            gone = {term for term in items if plain(term) not in told}
        elif kind == "place":
            gone = set() if told >= planted.faults["place"] else items
        else:
            gone = items - told
        if gone:
            lacking[kind] = gone
    return lacking


def parts(term: str) -> Iterable[str]:
    """All phrases inside a phrase."""
    words = term.split()
    return (" ".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1))


if __name__ == "__main__":
    main()
