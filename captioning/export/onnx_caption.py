"""Caption photos with an ONNX captioner; needs only numpy, pillow and onnxruntime.

    python caption.py PHOTO ... [--beam 5]      (default: the captioner's own beam)

The folder of this file holds ``image.onnx`` (pixels of photos to the decoder's input),
``step.onnx`` (one more word of each hypothesis) and ``settings.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps


class OnnxCaptioner:
    """Captioner of an ONNX export.

    Args:
        folder: folder with both networks and the settings.
    """

    def __init__(self, folder: str | Path) -> None:
        import onnxruntime

        folder = Path(folder)
        self.settings: dict[str, Any] = json.loads((folder / "settings.json").read_text("utf-8"))
        self._image, self._step = (
            onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
            for name in ("image.onnx", "step.onnx")
        )

    def pixels(self, photo: Image.Image) -> np.ndarray:
        """Read a photo as ``(1, 3, H, W) uint8``, resized without keeping its proportions."""
        side = self.settings["image_size"]
        upright = ImageOps.exif_transpose(photo).convert("RGB")
        fitted = upright if upright.size == (side, side) else upright.resize((side, side), 3)
        return np.asarray(fitted, dtype=np.uint8).transpose(2, 0, 1)[None]

    def start(self, photo: Image.Image) -> list[Any]:
        """Decoder inputs for a photo, each with one row."""
        return list(self._image.run(None, {"pixels": self.pixels(photo)}))

    def step(self, tokens: Any, memory: list[Any], state: list[Any]) -> tuple[Any, list[Any]]:
        """Log-probabilities ``(K, V)`` of the next token of K hypotheses, and their new states.

        Args:
            tokens: ``(K, T) int64``, all tokens of each hypothesis.
            memory: memory of the photo, from `start`.
            state: state of each hypothesis, with K rows; empty for a decoder that reads all tokens
                at each step.
        """
        read = tokens if self.settings["reads"] == "prefix" else tokens[:, -1]
        repeated = [np.repeat(part, len(tokens), axis=0) for part in memory]
        names = [entry.name for entry in self._step.get_inputs()]
        values = dict(zip(names, [read, *repeated, *state], strict=True))
        log_probs, *after = self._step.run(None, values)
        return log_probs, after

    def caption(self, photo: Image.Image, *, beam: int | None = None) -> str:
        """Best caption by beam search; beam None: the captioner's own beam, 1: greedy search."""
        settings, memory = self.settings, self.start(photo)
        beam = int(settings.get("beam_size", 1) if beam is None else beam)
        tokens = np.array([settings["prefix"]], dtype=np.int64)
        state: list[Any] = [np.zeros((1, size), np.float32) for size in settings["state_sizes"]]
        scores, finished = np.zeros(1), []
        for length in range(1, settings["max_length"] + 1):
            log_probs, state = self.step(tokens, memory, state)
            log_probs[:, self._banned(length)] = -np.inf
            total = (scores[:, None] + log_probs).ravel()
            # The best 2 * beam always include as many unfinished hypotheses as are wanted.
            best = np.argsort(-total, kind="stable")[: 2 * beam]
            rows, words = np.divmod(best, log_probs.shape[1])
            ended = words == settings["eos"]
            first = best[:beam][ended[:beam]]
            finished += self._finished(total[first], tokens[first // log_probs.shape[1]], length)
            rows, words, scores = (part[~ended][:beam] for part in (rows, words, total[best]))
            tokens = np.concatenate([tokens[rows], words[:, None]], axis=1)
            state = [part[rows] for part in state]
            if len(finished) >= beam:
                break
        finished = finished or self._finished(scores, tokens, settings["max_length"])
        _, ids = max(finished, key=lambda entry: entry[0])
        return self.text(ids[len(settings["prefix"]) :])

    def _banned(self, length: int) -> list[int]:
        """Tokens that must not come next."""
        too_short = length < self.settings["min_length"]
        return [*self.settings["forbidden"], *[self.settings["eos"]] * too_short]

    def _finished(self, scores: Any, tokens: Any, length: int) -> list[tuple[float, list[int]]]:
        penalty = length ** self.settings["length_penalty"]
        return [(float(s) / penalty, t.tolist()) for s, t in zip(scores, tokens, strict=True)]

    def text(self, ids: list[int]) -> str:
        """Text of token ids, with parts of words joined, without begin token and padding."""
        said = [number for number in ids if number not in self.settings["silent"]]
        words = [self.settings["vocabulary"][number] for number in said]
        return " ".join(words).replace(" ##", "")


def main() -> None:
    """Caption the photos given on the command line."""
    parser = argparse.ArgumentParser(description="Caption photos.")
    parser.add_argument("photos", nargs="+", type=Path)
    parser.add_argument("--beam", type=int, help="1 is greedy; default: the captioner's own")
    options = parser.parse_args()
    captioner = OnnxCaptioner(Path(__file__).parent)
    for path in options.photos:
        with Image.open(path) as photo:
            print(f"{path}: {captioner.caption(photo, beam=options.beam)}")


if __name__ == "__main__":
    main()
