"""Fine-tune a captioner by transformers' Trainer, with curation.

python examples/transformers_trainer.py MODEL PHOTOS RUN   (a GIT; an image folder; a new folder)
"""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoProcessor, Trainer, TrainingArguments

from captioning import CuratedDataset, Curation, TrainerCuration
from captioning.vision.photos import load_rgb
from curation import preset, with_rows


def item_of(sample):
    return {"image": load_rgb(sample.image_path), "text": sample.caption}


def main(model_name: str, photos: str, run: str, num_epochs: int = 3, **options) -> None:
    processor = AutoProcessor.from_pretrained(model_name)
    policy = preset("remove", "curation.select.ratio=0.1")
    curation = Curation.open(run, samples=photos, policy=policy)
    data = CuratedDataset(item_of, curation)

    def collate(items):
        images, texts = [item["image"] for item in items], [item["text"] for item in items]
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return batch

    arguments = TrainingArguments(
        output_dir=run,
        num_train_epochs=num_epochs,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        remove_unused_columns=False,  # it would drop the rows
        save_strategy="epoch",
        **options,
    )
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(model_name),
        args=arguments,
        train_dataset=data,
        data_collator=with_rows(collate),
        callbacks=[TrainerCuration(curation)],
    )
    trainer.train(resume_from_checkpoint=any(Path(run).glob("checkpoint-*")))


if __name__ == "__main__":
    main(*sys.argv[1:4])
