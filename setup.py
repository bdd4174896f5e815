"""What pyproject.toml cannot say: the top folder's configs are captioning/configs in a wheel.

So are the tables of papers/, as captioning/published, and the pages of docs/, as captioning/docs.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["captioning*", "curation*", "augmentation*"]),
        "captioning.configs",
        "captioning.published",
        "captioning.docs",
    ],
    package_dir={
        "captioning.configs": "configs",
        "captioning.published": "papers",
        "captioning.docs": "docs",
    },
)
