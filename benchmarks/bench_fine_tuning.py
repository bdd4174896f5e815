"""Benchmark LoRA fine-tuning of a VLM with TRL, transformers' Trainer and this framework.

python benchmarks/bench_fine_tuning.py [--forms smolvlm qwen3_vl llava_onevision]
    [--captions 1 5] [--words 10 150] [--ways ...] [--photos 16] [--batch 8] [--epochs 4]
    [--size small|full] [--device cpu|cuda] [--threads 1] [--seed 0] [--override key=value ...]
    [--record FILE.json]

Each way trains in a process of its own, from the same folder of random weights, on the same photos
and captions with as many captions per step, AdamW at one rate, in float32, rank 16 on all linear
layers of the language model. Epochs come in turns, so that a busy moment of the machine hits all;
while one way trains, the others wait. A time covers photos, loaders, forward, backward and update,
from the request for the epoch's loader to its last update. Captions a second are by the process's
own seconds of the processor, which other programs of the machine hardly change; the record has
those of the clock, too. They are medians of all epochs but the first, which is given beside them;
ours then checks the model, too. GiB: the most that a process held (`ru_maxrss`), and the part
above what it held before training. Loaders make batches in the training process.

    trl             SFTTrainer as a user sets it for speed: without gradient checkpointing
    trl-compact     the same, its head on caption tokens alone, as it is on a GPU; on a CPU TRL
                    scores every place
    trl-default     SFTTrainer's own defaults, which checkpoint every layer, in float32
    trainer         transformers' Trainer, labels on the caption, padded to the longest
    ours            captioning train experiment=vlm/low_rank
    ours-curated    the same with the losses of every caption recorded (curation=track)

``--size full`` has the models' own sizes, and ``--device cuda`` trains in bfloat16: captions a
second are then by the clock, and GiB are the GPU's (`torch.cuda.max_memory_allocated`), above what
it held before training.

Small forms have the layers' proportions of SmolVLM2-2.2B, Qwen3-VL-2B and LLaVA-OneVision-0.5B:
widths a quarter (the last: a half), layers a sixth. Their vocabularies are scaled as the layers
are, so that the head keeps its share of the work. Needs ``trl``, ``peft``, ``num2words``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

PROMPT = "Describe the image in one sentence."
WAYS = ("trl", "trl-compact", "trl-default", "trainer", "ours", "ours-curated")
FORMS = ("smolvlm", "qwen3_vl", "llava_onevision")
RANK, RATE = 16, 2e-4
# Of the language model, and of the image encoder: width, layers, heads (of keys, too), inner width.
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "smolvlm": {"text": (512, 4, 8, 8, 2048), "vision": (288, 5, 4, 1076), "vocabulary": 2053},
        "qwen3_vl": {"text": (512, 5, 4, 2, 1536), "vision": (256, 4, 4, 1024), "vocabulary": 6330},
        "llava_onevision": {
            "text": (448, 4, 7, 1, 2432),
            "vision": (576, 4, 8, 2152),
            "vocabulary": 12661,
        },
    },
    "full": {
        "smolvlm": {
            "text": (2048, 24, 32, 32, 8192),
            "vision": (1152, 27, 16, 4304),
            "vocabulary": 49280,
        },
        "qwen3_vl": {
            "text": (2048, 28, 16, 8, 6144),
            "vision": (1024, 24, 16, 4096),
            "vocabulary": 151936,
        },
        "llava_onevision": {
            "text": (896, 24, 14, 2, 4864),
            "vision": (1152, 26, 16, 4304),
            "vocabulary": 151936,
        },
    },
}
DEEPSTACK = {"small": [0, 1, 2], "full": [5, 11, 17]}
SIDE = {"small": 112, "full": 384}  # of LLaVA-OneVision's tiles, in pixels
# Of a photo in the data: width and height in pixels; the last: in tiles.
PHOTO = {"smolvlm": (384, 288), "qwen3_vl": (384, 320), "llava_onevision": (2, 1.5)}
GIB = 2**30


def words_of(rng: random.Random, number: int, vocabulary: list[str]) -> str:
    """Caption with half to one and a half times ``number`` words."""
    length = rng.randint(max(1, number // 2), number + number // 2)
    return " ".join(rng.choice(vocabulary) for _ in range(length)) + "."


def save_data(folder: Path, spec: dict[str, Any], vocabulary: list[str]) -> None:
    """Save noise photos and their captions as an image folder with splits."""
    import numpy as np
    from PIL import Image

    rng, draws = random.Random(spec["seed"]), np.random.default_rng(spec["seed"])
    width, height = PHOTO[spec["form"]]
    if spec["form"] == "llava_onevision":
        width, height = round(width * SIDE[spec["size"]]), round(height * SIDE[spec["size"]])
    for split, number in (("train", spec["photos"]), ("validation", 1), ("test", 1)):
        (folder / split).mkdir(parents=True)
        rows = []
        for photo in range(number):
            coarse = draws.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            name = f"{split}{photo}.jpg"
            Image.fromarray(coarse).resize((width, height)).save(folder / split / name)
            captions = spec["captions"] if split == "train" else 1
            for _ in range(captions):
                rows.append({"file_name": name, "text": words_of(rng, spec["words"], vocabulary)})
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / split / "metadata.jsonl").write_text(lines)


def vocabulary_of(number: int, seed: int) -> list[str]:
    """Words of one to three syllables, each one token."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < number:
        words["".join(rng.choice(syllables) for _ in range(rng.randint(1, 3)))] = None
    return list(words)


def save_model(folder: Path, spec: dict[str, Any], vocabulary: list[str]) -> None:
    """Save network, tokenizer and processor with random weights in the hub's format."""
    import torch
    import transformers

    torch.manual_seed(spec["seed"])
    makers = {"smolvlm": smolvlm, "qwen3_vl": qwen3_vl, "llava_onevision": llava_onevision}
    with torch.device(spec["device"]):
        network, processor = makers[spec["form"]](vocabulary, spec["size"])
    network = network.to(torch.bfloat16 if spec["device"] == "cuda" else torch.float32)
    network.generation_config = transformers.GenerationConfig(**IDS)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)


IDS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


def chat(photo: str) -> str:
    """ChatML chat template with the photo before the question."""
    return (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
        "{% if c['type']=='image' %}" + photo + "{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def tokenizer_of(vocabulary: list[str], marks: list[str], **known: str) -> Any:
    """Byte-pair tokenizer in which each word with its leading space is one token."""
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as Decoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks]
    backend = Tokenizer(BPE())
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), Decoder()
    trainer = BpeTrainer(
        vocab_size=8 * len(vocabulary),
        special_tokens=special,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([f" {word}" for word in vocabulary] * 2, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **NAMES, extra_special_tokens=known
    )


def text_sizes(size: str, form: str) -> dict[str, Any]:
    """Sizes of a language model for its config."""
    hidden, layers, heads, keys, inner = SIZES[size][form]["text"]
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "intermediate_size": inner,
        "max_position_embeddings": 8192,
        **IDS,
    }


def smolvlm(vocabulary: list[str], size: str) -> Any:
    """SmolVLM2-2.2B: 24 layers of 2048, 27 of 1152, 81 tokens for a photo of 384 pixels."""
    import transformers

    sizes = SIZES[size]["smolvlm"]
    width, layers, heads, inner = sizes["vision"]
    marks = ["<image>", "<fake_token_around_image>", "<global-img>"]
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    known = {
        "image_token": marks[0],
        "fake_image_token": marks[1],
        "global_image_token": marks[2],
        "end_of_utterance_token": "<|im_end|>",
    }
    words = tokenizer_of(vocabulary, [*marks, *tiles], **known)
    edge: Any = {"longest_edge": 384}
    processor = transformers.SmolVLMProcessor(
        transformers.SmolVLMImageProcessor(
            size=edge, max_image_size=edge, do_image_splitting=False
        ),
        words,
        image_seq_len=81,
        chat_template=chat("<image>"),
        video_processor=transformers.SmolVLMVideoProcessor(),
    )
    config = transformers.SmolVLMConfig(
        vision_config={
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "image_size": 384,
            "patch_size": 14,
        },
        text_config={
            "model_type": "llama",
            "vocab_size": max(sizes["vocabulary"], len(words)),
            **text_sizes(size, "smolvlm"),
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=3,
        tie_word_embeddings=False,
        **IDS,
    )
    return transformers.SmolVLMForConditionalGeneration(config), processor


def qwen3_vl(vocabulary: list[str], size: str) -> Any:
    """Qwen3-VL-2B: 28 layers of 2048, 24 of 1024, one token for four patches."""
    import transformers

    sizes = SIZES[size]["qwen3_vl"]
    width, layers, heads, inner = sizes["vision"]
    marks = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    known = {
        "image_token": marks[2],
        "video_token": marks[3],
        "vision_start_token": marks[0],
        "vision_end_token": marks[1],
    }
    words = tokenizer_of(vocabulary, marks, **known)
    patches: Any = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    edges = {"shortest_edge": 65536, "longest_edge": 16777216}
    processor = transformers.Qwen3VLProcessor(
        transformers.Qwen2VLImageProcessor(size=edges, **patches),
        words,
        transformers.Qwen3VLVideoProcessor(**patches),
        chat_template=chat("<|vision_start|><|image_pad|><|vision_end|>"),
    )
    rope = {"rope_type": "default", "mrope_section": [24, 20, 20], "rope_theta": 5e6}
    config = transformers.Qwen3VLConfig(
        text_config={
            **text_sizes(size, "qwen3_vl"),
            "head_dim": 128,
            "vocab_size": max(sizes["vocabulary"], len(words)),
            "rope_parameters": {**rope, "mrope_interleaved": True},
        },
        vision_config={
            "depth": layers,
            "hidden_size": width,
            "num_heads": heads,
            "intermediate_size": inner,
            "out_hidden_size": sizes["text"][0],
            "deepstack_visual_indexes": DEEPSTACK[size],
            "num_position_embeddings": 2304,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        vision_start_token_id=words.convert_tokens_to_ids(marks[0]),
        vision_end_token_id=words.convert_tokens_to_ids(marks[1]),
        image_token_id=words.convert_tokens_to_ids(marks[2]),
        video_token_id=words.convert_tokens_to_ids(marks[3]),
        tie_word_embeddings=True,
    )
    return transformers.Qwen3VLForConditionalGeneration(config), processor


def llava_onevision(vocabulary: list[str], size: str) -> Any:
    """LLaVA-OneVision-0.5B: 24 layers of 896, 26 of 1152, five smaller tiles per photo."""
    import transformers

    sizes = SIZES[size]["llava_onevision"]
    width, layers, heads, inner = sizes["vision"]
    words = tokenizer_of(
        vocabulary, ["<image>", "<video>"], image_token="<image>", video_token="<video>"
    )
    edge = SIDE[size]
    grid = [[tall, wide] for tall in (edge, 2 * edge) for wide in (edge, 2 * edge)]
    side = {"height": edge, "width": edge}
    processor = transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessor(size=side, image_grid_pinpoints=grid),
        words,
        transformers.LlavaOnevisionVideoProcessor(size=side),
        num_image_tokens=(edge // 14) ** 2,
        vision_feature_select_strategy="full",
        chat_template=chat("<image>"),
    )
    config = transformers.LlavaOnevisionConfig(
        vision_config={
            "model_type": "siglip_vision_model",
            "vision_use_head": False,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "image_size": edge,
            "patch_size": 14,
        },
        text_config={
            "model_type": "qwen2",
            "vocab_size": max(sizes["vocabulary"], len(words)),
            **text_sizes(size, "llava_onevision"),
        },
        image_token_index=words.convert_tokens_to_ids("<image>"),
        video_token_index=words.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=grid,
        tie_word_embeddings=True,
    )
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor


class Turns:
    """Side of the child process: waits for its turn, and reports the turn's measurements."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print is no answer
        self._began = self._cpu = 0.0
        self.is_open = False
        self.before = 0.0

    def loaded(self) -> None:
        """Record the memory of the process before training."""
        self.before = self._peak_gib()

    def _peak_gib(self) -> float:
        """Peak memory on the device for this process in GiB; on a CPU, of the process."""
        import torch

        if self._device == "cuda":
            return torch.cuda.max_memory_allocated() / GIB
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB

    def _wait(self) -> None:
        import torch

        if self._device == "cuda":
            torch.cuda.synchronize()

    def begin(self) -> None:
        """Wait until the parent starts the turn."""
        self.say(ready=True)
        if sys.stdin.readline().strip() != "go":
            raise SystemExit("the parent has gone")
        self._began, self._cpu, self.is_open = time.perf_counter(), time.process_time(), True

    def end(self) -> None:
        """Report the duration of the turn to the parent."""
        if not self.is_open:
            return
        self.is_open = False
        self._wait()
        self.say(seconds=time.perf_counter() - self._began, cpu=time.process_time() - self._cpu)

    def done(self, losses: list[float]) -> None:
        """Report the peak memory and the losses of the training to the parent."""
        self.say(gib=self._peak_gib(), gib_before=self.before, losses=losses)

    def say(self, **answer: Any) -> None:
        """Send one line to the parent."""
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


def layers_of(network: Any) -> list[str]:
    """Full names of the language model's linear layers without its head."""
    from captioning.models.layers.image_text_parts import ImageTextParts

    return ImageTextParts(network).language_layers(network)


def callback_of(turns: Turns) -> Any:
    """Callback for transformers' Trainer that runs one epoch per turn."""
    import transformers

    class Clock(transformers.TrainerCallback):
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            turns.begin()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            turns.end()

    return Clock()


def arguments(spec: dict[str, Any], folder: str) -> dict[str, Any]:
    """Training arguments for both Hugging Face trainers."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": spec["batch"],
        "num_train_epochs": spec["epochs"],
        "learning_rate": RATE,
        "save_strategy": "no",
        "report_to": [],
        "logging_steps": 1,
        "bf16": spec["device"] == "cuda",
        "use_cpu": spec["device"] == "cpu",
        "seed": spec["seed"],
        "max_grad_norm": 5.0,
        "weight_decay": 0.0,
        "disable_tqdm": True,
    }


def rows_of(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Path and caption of each training sample."""
    folder = Path(spec["folder"]) / "data/train"
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    return [(str(folder / row["file_name"]), row["text"]) for row in rows]


def question() -> list[dict[str, Any]]:
    """Question that all trainers use."""
    content = [{"type": "image"}, {"type": "text", "text": PROMPT}]
    return [{"role": "user", "content": content}]


def lora(network: Any) -> Any:
    """LoRA settings as in ``experiment=vlm/low_rank``, without dropout."""
    import peft

    return peft.LoraConfig(
        r=RANK, lora_alpha=32, lora_dropout=0.0, target_modules=layers_of(network)
    )


def with_trl(spec: dict[str, Any], turns: Turns) -> None:
    """Train with TRL's SFTTrainer on prompt and completion."""
    import importlib

    import datasets
    from transformers import AutoModelForImageTextToText, AutoProcessor

    trl: Any = importlib.import_module("trl")
    if spec["way"] == "trl-compact":
        utils: Any = importlib.import_module("trl.trainer.utils")
        utils._use_triton = lambda device: True
    model = f"{spec['folder']}/model"
    network = AutoModelForImageTextToText.from_pretrained(model)
    samples = rows_of(spec)
    ask = [{"role": "user", "content": PROMPT}]
    data = datasets.Dataset.from_dict(
        {
            "prompt": [ask] * len(samples),
            "completion": [[{"role": "assistant", "content": text}] for _, text in samples],
            "image": [path for path, _ in samples],
        }
    ).cast_column("image", datasets.Image())
    with tempfile.TemporaryDirectory() as folder:
        options = arguments(spec, folder)
        checkpoints = spec["way"] == "trl-default"
        trainer = trl.SFTTrainer(
            network,
            trl.SFTConfig(**options, max_length=None, gradient_checkpointing=checkpoints),
            train_dataset=data,
            processing_class=AutoProcessor.from_pretrained(model),
            peft_config=lora(network),
            callbacks=[callback_of(turns)],
        )
        turns.loaded()
        trainer.train()
    turns.done([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def with_trainer(spec: dict[str, Any], turns: Turns) -> None:
    """Train with transformers' Trainer, as its documentation shows for image-to-text models."""
    import peft
    import transformers
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = f"{spec['folder']}/model"
    network = AutoModelForImageTextToText.from_pretrained(model)
    processor = AutoProcessor.from_pretrained(model)
    asked = processor.apply_chat_template(question(), add_generation_prompt=True)
    # Trained and searched up to what a template writes after an answer, as ours.
    collated: Callable[[list[Any]], Any] = _Collate(processor, asked, Image)
    samples: Any = rows_of(spec)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            peft.get_peft_model(network, lora(network)),
            transformers.TrainingArguments(**arguments(spec, folder), remove_unused_columns=False),
            train_dataset=samples,
            data_collator=collated,
            callbacks=[callback_of(turns)],
        )
        turns.loaded()
        trainer.train()
    turns.done([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


class _Collate:
    """Collates photos, prompts and captions to network inputs, with labels on captions only."""

    def __init__(self, processor: Any, asked: str, images: Any) -> None:
        self.processor, self.asked, self.images = processor, asked, images

    def __call__(self, samples: list[tuple[str, str]]) -> Any:
        photos = [[self.images.open(path).convert("RGB")] for path, _ in samples]
        texts = [f"{self.asked}{text}<|im_end|>" for _, text in samples]
        words = {"return_tensors": "pt", "padding": True, "padding_side": "right"}
        inputs = self.processor(images=photos, text=texts, **words)
        labels = inputs["input_ids"].clone()
        labels[inputs["attention_mask"] == 0] = -100
        answer = self.processor.tokenizer.convert_tokens_to_ids("<|im_start|>")
        for row, ids in enumerate(inputs["input_ids"]):
            begin = int((ids == answer).nonzero()[-1])
            labels[row, : begin + self.answer_after] = -100
        return {**inputs, "labels": labels}

    @property
    def answer_after(self) -> int:
        """Number of tokens that open an answer."""
        tokenizer = self.processor.tokenizer
        return len(tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"])


def with_ours(spec: dict[str, Any], turns: Turns) -> None:
    """Train with ``captioning train``; its data module is asked for each epoch's loader in turn."""
    import pytorch_lightning as pl

    from captioning.config.compose import compose_config
    from captioning.results.run_folder import RunFolder
    from captioning.training import run
    from captioning.training.preflight import check_run, settings_of
    from captioning.training.signals import StopSignals

    captions = spec["captions"]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            "experiment=vlm/low_rank",
            f"model.pretrained={spec['folder']}/model",
            f"model.prompt='{PROMPT}'",
            "model.lora.dropout=0.0",
            "data=own",
            f"data.root={spec['folder']}/data",
            f"paths.cache={folder}/cache",
            f"run_dir={folder}/run",
            f"loader.batch_size={spec['batch']}",
            f"loader.captions_per_image={captions}",
            "loader.num_workers=0",
            "tokenizer.max_tokens=400",
            f"num_epochs={spec['epochs']}",
            f"seed={spec['seed']}",
            "logger=none",
            "report=false",
            "start_score=false",
            "monitor=last",
            f"trainer.precision={'bf16-mixed' if spec['device'] == 'cuda' else '32-true'}",
            f"model.weights={'bfloat16' if spec['device'] == 'cuda' else 'float32'}",
            f"trainer.accelerator={'gpu' if spec['device'] == 'cuda' else 'cpu'}",
            "trainer.enable_progress_bar=false",
            "+trainer.limit_val_batches=0",
            f"curation={'track' if spec['way'] == 'ours-curated' else 'none'}",
            f"threads={spec['threads']}",
            *spec["overrides"],
        ]
        settings = settings_of(compose_config("train", overrides))
        check_run(settings)
        run.set_up(settings)
        losses: list[float] = []

        class Clock(pl.Callback):
            def on_train_batch_end(
                self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
            ) -> None:
                losses.append(float(outputs["update_loss"]))
                if trainer.is_last_batch:
                    turns.end()

        with StopSignals() as signals:
            experiment = run.build(settings, RunFolder(Path(settings.run_dir)), signals)
            trainer: Any = experiment.trainer
            datamodule = experiment.datamodule
            make = datamodule.train_dataloader

            def train_dataloader() -> Any:
                turns.begin()
                return make()

            datamodule.train_dataloader = train_dataloader
            trainer.callbacks.append(Clock())
            turns.loaded()
            run.fit(
                trainer,
                experiment.model,
                datamodule,
                checkpoint=None,
                signals=signals,
            )
    turns.done(losses)


def child(spec: dict[str, Any]) -> None:
    """Train with one trainer."""
    import torch

    turns = Turns(spec["device"])
    torch.set_num_threads(spec["threads"])
    if spec["way"].startswith("trl"):
        with_trl(spec, turns)
    elif spec["way"] == "trainer":
        with_trainer(spec, turns)
    else:
        with_ours(spec, turns)


class Child:
    """Parent's handle for a child process that trains."""

    def __init__(self, spec: dict[str, Any], log: Path) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(spec["threads"]),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.way, self._log = spec["way"], log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--child", json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment,
            )
        self._requests: Any = self._process.stdin
        self._answers: Any = self._process.stdout
        self.answer("ready")

    def answer(self, name: str) -> dict[str, Any]:
        """Read the child's next answer, which must contain a given name."""
        line = self._answers.readline()
        if not line:
            tail = "\n".join(self._log.read_text().splitlines()[-15:])
            raise SystemExit(f"{self.way} ended early:\n{tail}")
        answer = json.loads(line)
        if name not in answer:
            raise SystemExit(f"{self.way} answered {answer} where {name} was wanted")
        return answer

    def epoch(self, *, is_last: bool) -> dict[str, Any]:
        """Let the child train one epoch."""
        self._requests.write("go\n")
        self._requests.flush()
        answer = self.answer("seconds")
        if not is_last:
            self.answer("ready")
        return answer

    def end(self) -> dict[str, Any]:
        """Wait for the child's end and return its memory and losses."""
        answer = self.answer("gib")
        self._process.wait()
        return answer


def measured(
    form: str, captions: int, words: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """One line of measurements for each trainer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = options.photos if captions == 1 else max(options.photos // 4, 2)
        spec = {
            "folder": name,
            "form": form,
            "size": options.size,
            "device": options.device,
            "captions": captions,
            "words": words,
            "photos": photos,
            "batch": options.batch if captions == 1 else 2 * captions,
            "epochs": options.epochs,
            "threads": options.threads,
            "seed": options.seed,
            "overrides": options.override,
        }
        vocabulary = vocabulary_of(1000, options.seed)
        save_data(folder / "data", spec, vocabulary)
        save_model(folder / "model", spec, vocabulary)
        children = [Child({**spec, "way": way}, folder / f"{way}.log") for way in options.ways]
        wall: dict[str, list[float]] = {way: [] for way in options.ways}
        seconds: dict[str, list[float]] = {way: [] for way in options.ways}
        for number in range(options.epochs):
            for one in children:
                answer = one.epoch(is_last=number == options.epochs - 1)
                wall[one.way].append(answer["seconds"])
                seconds[one.way].append(answer["cpu"])
        ends = {one.way: one.end() for one in children}
    total = photos * captions
    told = wall if options.device == "cuda" else seconds
    return [
        {
            "form": form,
            "captions": captions,
            "words": words,
            "photos": photos,
            "batch": spec["batch"],
            "way": way,
            "captions_per_s": round(total / median(told[way][1:]), 2),
            "first_epoch": round(total / told[way][0], 2),
            "cpu_seconds": [round(value, 3) for value in seconds[way]],
            "wall_seconds": [round(value, 3) for value in wall[way]],
            "gib": round(ends[way]["gib"], 3),
            "gib_above_start": round(ends[way]["gib"] - ends[way]["gib_before"], 3),
            "losses": [round(loss, 4) for loss in ends[way]["losses"][:2]],
        }
        for way in options.ways
    ]


def shown(lines: list[dict[str, Any]]) -> None:
    """One table row for each trainer, relative to the fastest other trainer."""
    others = [line for line in lines if not line["way"].startswith("ours")]
    best = max(others, key=lambda line: line["captions_per_s"]) if others else None
    for line in lines:
        ratios = ""
        if best is not None:
            speed = line["captions_per_s"] / best["captions_per_s"]
            first = line["first_epoch"] / best["first_epoch"]
            whole = line["gib"] / best["gib"]
            above = line["gib_above_start"] / max(best["gib_above_start"], 1e-3)
            ratios = f" {speed:6.2f} {first:6.2f} {whole:6.2f} {above:6.2f}"
        print(
            f"{line['form']:16} {line['captions']:2} {line['words']:4} {line['way']:13}"
            f" {line['captions_per_s']:8.2f} {line['first_epoch']:8.2f}"
            f" {line['gib']:6.2f} {line['gib_above_start']:6.2f}{ratios}",
            flush=True,
        )


def main() -> None:
    """Measure each model with each number of captions and words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--captions", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--words", nargs="+", type=int, default=[10, 150])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--photos", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--override", nargs="*", default=[])
    parser.add_argument("--record", type=Path, default=None)
    parser.add_argument("--child", type=json.loads, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    from importlib.metadata import version

    from captioning.results.versions import versions

    libraries = {name: version(name) for name in ("trl", "peft", "accelerate")}
    settings = {name: value for name, value in vars(options).items() if name != "child"}
    head = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "settings": {**settings, "record": None},
        **versions(),
        **libraries,
    }
    print(json.dumps(head), flush=True)
    print(
        f"{'form':16} {'cs':>2} {'ws':>4} {'way':13} {'caps/s':>8} {'first':>8} {'GiB':>6} "
        f"{'above':>6} {'speed':>6} {'first':>6} {'GiB':>6} {'above':>6}  against the fastest other"
    )
    results: list[dict[str, Any]] = []
    for form in options.forms:
        for captions in options.captions:
            for words in options.words:
                lines = measured(form, captions, words, options)
                shown(lines)
                results += lines
                if options.record is not None:
                    record = {**head, "results": results}
                    options.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
