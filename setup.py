"""What pyproject.toml cannot say: the top folder's configs are captioning/configs in a wheel.

So are the papers of docs, as captioning/published.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["captioning*", "curation*", "augmentation*"]),
        "captioning.configs",
        "captioning.published",
    ],
    package_dir={"captioning.configs": "configs", "captioning.published": "docs/papers"},
)
