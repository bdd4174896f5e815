"""Benchmark the packaged small diffusion model: its speed and how well images show their captions.

python benchmarks/bench_small_diffusion.py [--pictures 200] [--scenes 2500] [--steps 12]
    [--closeups] [--sheet docs/images/small_diffusion.jpg]

Speed is pictures per second of one core. To see how right they are, three linear classifiers are
trained on features (EfficientNet-Lite0, mean and maximum over the grid) of drawn scenes, of a seed
that nothing else uses: which place it is, which classes of things and which colours are in it. Then
they look at pictures of the first captions of validation scenes. A picture is right in a thing that
its caption names if the thing's class is among the three likeliest, likewise for colours that are
named, and the place must be the likeliest. Real scenes and close-ups of what the captions name are
the upper bounds, the captions of other scenes the lower one. With ``--closeups`` the classifiers
are trained on close-ups of what the first captions name, which the model is trained to draw.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.generator import Job
from augmentation.image_replacement.stable_diffusion import StableDiffusion
from augmentation.image_replacement.training.closeups import read_closeups
from captioning.miniworld.build import make_settings, render
from captioning.miniworld.captions import PLACE, Caption
from captioning.miniworld.dataset import read_miniworld
from captioning.miniworld.object_class import COLOURS
from captioning.miniworld.places import PLACES
from captioning.miniworld.scene import Scene
from captioning.miniworld.vocabulary import CLASSES
from captioning.runtime.files import write_atomically
from captioning.vision.backbones import build_backbone
from captioning.vision.photos import load_rgb
from tools.assets.diffusion import picture_sheet

PLACE_NAMES, CLASS_NAMES, COLOUR_NAMES = sorted(PLACES), sorted(CLASSES), sorted(COLOURS)
AMONG = {"place": 1, "class": 3, "colour": 3}
Drawn = tuple[Scene, tuple[Caption, ...], np.ndarray]


def scenes(split: str, number: int, seed: int) -> list[Drawn]:
    """Scenes with captions and pixels ``(128, 128, 3) uint8``."""
    settings = make_settings(split=split, num_scenes=number, seed=seed, size=128)
    rendered = (render(settings, index) for index in range(number))
    return [(scene, captions, np.asarray(drawn.image)) for scene, captions, drawn in rendered]


def features(pictures: Sequence[np.ndarray]) -> Tensor:
    """Mean and maximum of features over the grid, ``(N, 2 D)``."""
    backbone = build_backbone(name="efficientnet_lite0").for_inference("cpu")
    parts = []
    with torch.inference_mode():
        for start in range(0, len(pictures), 16):
            pixels = torch.from_numpy(np.stack(pictures[start : start + 16])).permute(0, 3, 1, 2)
            size = (backbone.image_size,) * 2
            large = nn.functional.interpolate(pixels.float(), size, mode="bilinear")
            grid = backbone.grid(backbone.normalise(large))
            parts.append(torch.cat([grid.mean(1), grid.amax(1)], dim=1))
    return torch.cat(parts)


def shown(scene: Scene) -> dict[str, list[int]]:
    """Place, classes and colours in a scene."""
    return {
        "place": [PLACE_NAMES.index(scene.place)],
        "class": [CLASS_NAMES.index(thing.key) for thing in scene.objects],
        "colour": [COLOUR_NAMES.index(thing.colour) for thing in scene.objects],
    }


def targets(labels: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Content of each image as ``(N, names) float32`` of 0 and 1."""
    names = {"place": PLACE_NAMES, "class": CLASS_NAMES, "colour": COLOUR_NAMES}
    tensors = {kind: torch.zeros(len(labels), len(among)) for kind, among in names.items()}
    for row, label in enumerate(labels):
        for kind, columns in label.items():
            tensors[kind][row, columns] = 1
    return tensors


def named(scene: Scene, caption: Caption) -> dict[str, list[int]]:
    """Parts of a scene that a caption mentions, by kind."""
    labels: dict[str, list[int]] = {"place": [], "class": [], "colour": []}
    for _, text, node in caption.mentions:
        if node == PLACE:
            labels["place"].append(PLACE_NAMES.index(scene.place))
        if node >= 0:
            thing = scene.objects[node]
            labels["class"].append(CLASS_NAMES.index(thing.key))
            if thing.colour in text.replace("grey", "gray").split():
                labels["colour"].append(COLOUR_NAMES.index(thing.colour))
    return labels


def train_heads(
    values: Tensor, targets: dict[str, Tensor]
) -> Callable[[Tensor], dict[str, Tensor]]:
    """Train linear classifiers on standardised features, for all kinds at once."""
    mean, deviation = values.mean(0), values.std(0) + 1e-6
    kinds = list(targets)
    sizes = [targets[kind].shape[1] for kind in kinds]
    torch.manual_seed(0)
    heads = nn.Sequential(nn.Dropout(0.5), nn.Linear(values.shape[1], sum(sizes)))
    optimizer = torch.optim.AdamW(heads.parameters(), lr=0.001, weight_decay=0.1)
    inputs, outputs = (values - mean) / deviation, torch.cat(list(targets.values()), dim=1)
    for _ in range(60):
        for rows in torch.randperm(len(inputs)).split(128):
            logits = heads(inputs[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, outputs[rows])
            optimizer.zero_grad()
            (loss * 20).backward()
            optimizer.step()
    heads.eval()

    @torch.inference_mode()
    def likely(seen: Tensor) -> dict[str, Tensor]:
        split = heads((seen - mean) / deviation).split(sizes, dim=1)
        return dict(zip(kinds, split, strict=True))

    return likely


def agreement(logits: dict[str, Tensor], labels: Sequence[dict[str, list[int]]]) -> dict[str, str]:
    """Share of mentioned places, classes and colours that the classifiers find."""
    shares = {}
    for kind, among in AMONG.items():
        best = logits[kind].topk(among, dim=1).indices.tolist()
        hits = [index in best[row] for row, label in enumerate(labels) for index in label[kind]]
        shares[kind] = f"{sum(hits) / len(hits):.3f} of {len(hits)}"
    return shares


def measure_speed(model: str, steps: Sequence[int], guidance: float) -> None:
    """Print images per second for batches of eight."""
    for number in steps:
        generator = StableDiffusion(
            model=model, num_steps=number, guidance_scale=guidance, batch_size=8, device="cpu"
        )
        jobs = [Job(prompt="A red dog runs on the beach.", seed=seed) for seed in range(8)]
        generator.generate(jobs)
        start, busy = time.perf_counter(), time.process_time()
        generator.generate(jobs)
        wall, core = time.perf_counter() - start, time.process_time() - busy
        print(
            f"{number} steps: {8 / core:.2f} pictures a second of a core, {8 / wall:.2f} by clock"
        )


def decoded(autoencoder: PatchAutoencoder, pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Images after the autoencoder at its size, an upper bound for the diffusion model."""
    sides = (autoencoder.config.sample_size,) * 2
    small = [np.asarray(Image.fromarray(pixels).resize(sides)) for pixels in pictures]
    with torch.inference_mode():
        values = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 127.5 - 1
        output = autoencoder(values).clamp(-1, 1)
    return list(((output + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy())


def closeups(split: str, number: int, seed: int, side: int) -> list[np.ndarray]:
    """Training images: a close-up for the first caption of each scene."""
    with TemporaryDirectory() as folder:
        settings = {"split": split, "num_scenes": number, "seed": seed, "size": 128}
        roster = read_miniworld(name=split, folder=folder, **settings)
        close = read_closeups(name="close", roster=roster, folder=folder)
        firsts = [sample for sample in close.samples if "#0" in sample.sample_id]
        firsts.sort(key=lambda sample: sample.sample_id)
        pictures = [load_rgb(sample.image_path) for sample in firsts]
    return [np.asarray(picture.resize((side, side))) for picture in pictures]


def draw(generator: StableDiffusion, prompts: Sequence[str]) -> list[np.ndarray]:
    """Draw pixels ``(H, W, 3) uint8`` for each prompt, with its number as seed."""
    jobs = [Job(prompt=text, seed=number) for number, text in enumerate(prompts)]
    batches = [jobs[start : start + 8] for start in range(0, len(jobs), 8)]
    pictures = [picture for batch in batches for picture in generator.generate(batch)]
    return [(picture * 255).round().astype(np.uint8) for picture in pictures]


def train_classifiers(
    number: int, side: int | None
) -> Callable[[list[np.ndarray]], dict[str, Tensor]]:
    """Train classifiers of image content, on scenes or on close-ups of ``side`` pixels."""
    train = scenes("train", number, seed=9)
    if side is None:
        pictures, labels = [pixels for *_, pixels in train], [shown(scene) for scene, *_ in train]
    else:
        pictures = closeups("train", number, seed=9, side=side)
        labels = [
            # the place is to be seen even where the caption does not name it
            named(scene, captions[0]) | {"place": shown(scene)["place"]}
            for scene, captions, _ in train
        ]
    likely = train_heads(features(pictures), targets(labels))
    return lambda pictures: likely(features(pictures))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Speed and truth of the small diffusion model.")
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--scenes", type=int, default=2500)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--model", default="miniworld", help="packaged model or folder")
    parser.add_argument("--sheet", type=Path, help="file for the first 32 images")
    parser.add_argument("--closeups", action="store_true", help="train on close-ups")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure_speed(options.model, (8, 12, 20), options.guidance)
    generator = StableDiffusion(
        model=options.model, num_steps=options.steps, guidance_scale=options.guidance, device="cpu"
    )
    autoencoder = PatchAutoencoder.from_pretrained(generator.folder / "vae").float().eval()
    side = autoencoder.config.sample_size
    likely = train_classifiers(options.scenes, side if options.closeups else None)
    val = scenes("val", options.pictures, seed=0)
    labels = [named(scene, captions[0]) for scene, captions, _ in val]
    prompts = [captions[0].text for _, captions, _ in val]
    generated = draw(generator, prompts)
    if options.sheet:
        pictures = [Image.fromarray(pixels) for pixels in generated[:32]]
        write_atomically(options.sheet, picture_sheet(pictures, prompts[:32]).save)
    real = [pixels for *_, pixels in val]
    close = closeups("val", options.pictures, seed=0, side=side)
    for title, pictures in (("scenes", real), ("close-ups", close)):
        print(f"real {title}:", agreement(likely(pictures), labels))
        through = decoded(autoencoder, pictures)
        print(f"real {title}, encoded and decoded:", agreement(likely(through), labels))
    seen = likely(generated)
    print("pictures of their captions:", agreement(seen, labels))
    print("pictures of other captions:", agreement(seen, labels[1:] + labels[:1]))


if __name__ == "__main__":
    main()
