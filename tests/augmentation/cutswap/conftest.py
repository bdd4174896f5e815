"""Lets the tests here import `small_set`, and gives them its table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_set import ROSTER, Letters

from augmentation.cutswap.clusters import Clusters, cluster_words
from augmentation.cutswap.embeddings import WordEmbeddings, by_texts, embed_words
from augmentation.cutswap.objects import ObjectTable, build_object_table


@pytest.fixture(scope="session")
def parses(parser):
    return parser.parse([sample.caption for sample in ROSTER.samples])


@pytest.fixture(scope="session")
def table(parses, object_words) -> ObjectTable:
    return build_object_table(ROSTER, parses, object_words=object_words, min_uses=2)


@pytest.fixture(scope="session")
def embeddings(table) -> WordEmbeddings:
    return embed_words(table.names, by_texts(Letters()))


@pytest.fixture(scope="session")
def one_cluster(embeddings) -> Clusters:
    return cluster_words(embeddings, num_clusters=1)
