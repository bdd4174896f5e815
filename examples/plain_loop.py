"""Fine-tune a captioner in a loop of your own, with curation.

python examples/plain_loop.py MODEL PHOTOS RUN   (a GIT; an image folder; a new folder)
Killed and started again, it resumes after its last epoch and ends with the same weights.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoProcessor

from captioning import Curation, per_sample_losses
from captioning.vision.photos import load_rgb
from curation import preset


def main(model_name: str, photos: str, run: str, num_epochs: int = 3, batch_size: int = 4) -> None:
    checkpoint = Path(run) / "checkpoint.pt"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(model_name).to(device).train()
    processor = AutoProcessor.from_pretrained(model_name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saved = torch.load(checkpoint, weights_only=True) if checkpoint.is_file() else None
    curation = Curation.open(
        run,
        samples=photos,  # or a list of {"image": path, "caption": text}
        policy=preset("remove", "curation.select.ratio=0.1"),
        first_epoch=0 if saved is None else saved["epoch"],
    )
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for epoch in range(curation.first_epoch, num_epochs):
        torch.manual_seed(epoch)
        samples = curation.samples()
        order = torch.randperm(len(samples)).tolist()
        for start in range(0, len(samples), batch_size):
            batch = [samples[place] for place in order[start : start + batch_size]]
            images = [load_rgb(sample.image_path) for sample in batch]
            texts = [sample.caption for sample in batch]
            inputs = processor(images=images, text=texts, padding=True, return_tensors="pt")
            inputs.to(device)
            labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
            losses = per_sample_losses(model(**inputs).logits, labels)
            curation.add(torch.tensor([sample.row for sample in batch]), losses)
            losses.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        outcome = curation.end_epoch()
        print(f"epoch {epoch}: {len(outcome.decision.edits)} edits")
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({"epoch": epoch + 1} | states, checkpoint.with_suffix(".part"))
        checkpoint.with_suffix(".part").replace(checkpoint)
    curation.finish()


if __name__ == "__main__":
    main(*sys.argv[1:4])
