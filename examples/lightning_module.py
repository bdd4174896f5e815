"""Fine-tune a captioner in a LightningModule of your own, with curation.

python examples/lightning_module.py MODEL PHOTOS RUN   (a GIT; an image folder; a new folder)
"""

import sys

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoProcessor

from captioning import CuratedDataset, Curation, LightningCuration, per_sample_losses
from captioning.vision.photos import load_rgb
from curation import preset


class Captioner(pl.LightningModule):
    def __init__(self, model_name: str):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(model_name).train()

    def on_train_batch_start(self, batch, batch_idx):
        torch.manual_seed(self.global_step)  # a resumed run ends with the same weights

    def training_step(self, batch, batch_idx):
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        rows = batch.pop("row")
        losses = per_sample_losses(self.model(**batch).logits, labels)
        return {"loss": losses.mean(), "losses": losses, "rows": rows}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def item_of(sample):
    return {"image": load_rgb(sample.image_path), "text": sample.caption}


def main(model_name: str, photos: str, run: str, num_epochs: int = 3, **options) -> None:
    processor = AutoProcessor.from_pretrained(model_name)
    policy = preset("remove", "curation.select.ratio=0.1")
    curation = Curation.open(run, samples=photos, policy=policy)

    def collate(items):
        images, texts = ([item[key] for item in items] for key in ("image", "text"))
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
        return {**batch, "row": torch.tensor([item["row"] for item in items])}

    data = CuratedDataset(item_of, curation, shuffle=True)  # by epoch; so the loader does not
    loader = DataLoader(data, batch_size=4, collate_fn=collate)
    saving = ModelCheckpoint(dirpath=run, save_last=True, save_on_train_epoch_end=True)
    callbacks = [LightningCuration(curation), saving]
    trainer = pl.Trainer(max_epochs=num_epochs, callbacks=callbacks, **options)
    trainer.fit(Captioner(model_name), loader, ckpt_path="last")  # resumes where it stopped


if __name__ == "__main__":
    main(*sys.argv[1:4])
