"""Fine-tune a captioner by TRL's SFTTrainer, with curation.

python examples/trl_sft.py MODEL PHOTOS RUN   (a GIT; an image folder; a new folder)
"""

import sys
from pathlib import Path

from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoProcessor
from trl import SFTConfig, SFTTrainer

from captioning import CuratedDataset, Curation, TrainerCuration
from captioning.vision.photos import load_rgb
from curation import preset, with_rows


def item_of(sample):
    return {"image": load_rgb(sample.image_path), "text": sample.caption}


def main(model_name: str, photos: str, run: str, num_epochs: int = 3, **options) -> None:
    processor = AutoProcessor.from_pretrained(model_name)
    model = AutoModelForCausalLM.from_pretrained(model_name)
    sizes = model.config.vision_config
    num_places = (sizes.image_size // sizes.patch_size) ** 2 + 1  # of GIT's image, before its text
    policy = preset("remove", "curation.select.ratio=0.1")
    curation = Curation.open(run, samples=photos, policy=policy)

    def collate(items):
        images, texts = [item["image"] for item in items], [item["text"] for item in items]
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        labels[:, 0] = -100  # where the caption begins is not learnt
        return {**batch, "labels": functional.pad(labels, (num_places, 0), value=-100)}

    arguments = SFTConfig(
        output_dir=run,
        num_train_epochs=num_epochs,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        remove_unused_columns=False,  # it would drop the rows
        activation_checkpointing=False,  # GIT has none
        dataset_kwargs={"skip_prepare_dataset": True},
        save_strategy="epoch",
        **options,
    )
    trainer = SFTTrainer(
        model,
        arguments,
        train_dataset=CuratedDataset(item_of, curation).as_table(),
        data_collator=with_rows(collate),
        processing_class=processor,
        callbacks=[TrainerCuration(curation)],
    )
    trainer.train(resume_from_checkpoint=any(Path(run).glob("checkpoint-*")))


if __name__ == "__main__":
    main(*sys.argv[1:4])
