"""Names of the layouts that folders of photos with captions may have."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal[
    "concepts", "imagefolder", "token_file", "karpathy", "coco", "jsonl", "table", "arrow",
    "webdataset", "line_pairs", "text_files", "file_names",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
LAYOUTS = (
    "photos beside metadata.csv or metadata.jsonl, COCO's captions JSON, a table (CSV, TSV) or "
    "JSON Lines of files and captions, Parquet or Arrow files, tar shards, or a .txt beside each "
    "photo (docs/tutorials/own_photos.md)"
)
NAMES: dict[Kind, str] = {
    "concepts": "OneTrainer's concepts",
    "imagefolder": "an image folder with metadata",
    "token_file": "a token file as Flickr8k's",
    "karpathy": "Karpathy's JSON",
    "coco": "COCO captions",
    "jsonl": "JSON Lines",
    "table": "a table",
    "arrow": "Arrow or Parquet files",
    "webdataset": "tar shards (webdataset)",
    "line_pairs": "texts with a list of photos",
    "text_files": "photos with text files beside them",
    "file_names": "photos whose names are their captions",
}
