"""What pyproject.toml cannot say: the top folder's configs are captioning/configs in a wheel."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["captioning*", "curation*", "augmentation*"]),
        "captioning.configs",
    ],
    package_dir={"captioning.configs": "configs"},
)
