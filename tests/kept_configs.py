"""Hydra as always, but faster: the tests compose hundreds of configs.

Each of the project's config files, of Hydra's own, each override, and each text with `${}` is
parsed once a process, by libyaml. The same choices of groups are looked up once, the same files are
merged once, as plain mappings, and what Hydra would throw away is not made.
`test_kept_configs` compares with Hydra as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omegaconf._utils
import omegaconf.base
import omegaconf.basecontainer
import pytest
import yaml
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import MISSING, DictConfig, OmegaConf

HYDRAS_OWN = "hydra.conf"
# What is replaced, as it was.
AS_IT_IS = (
    (ConfigRepository, "load_config", ConfigRepository.load_config),
    (
        ConfigLoaderImpl,
        "_compose_config_from_defaults_list",
        ConfigLoaderImpl._compose_config_from_defaults_list,
    ),
    (ConfigLoaderImpl, "_embed_result_config", staticmethod(ConfigLoaderImpl._embed_result_config)),
    (config_loader_impl, "create_defaults_list", config_loader_impl.create_defaults_list),
    (defaults_list, "_create_interpolation_map", defaults_list._create_interpolation_map),
    (OverridesParser, "parse_rule", OverridesParser.parse_rule),
    (omegaconf.base, "parse", omegaconf.base.parse),
    (omegaconf._utils, "parse", omegaconf._utils.parse),
    (omegaconf._utils, "get_yaml_loader", omegaconf._utils.get_yaml_loader),
    (omegaconf.basecontainer, "get_yaml_loader", omegaconf.basecontainer.get_yaml_loader),
)


def fast_loader(slow: type[yaml.SafeLoader]) -> type[yaml.SafeLoader]:
    """Reads YAML by libyaml; what that refuses is refused in the words of ``slow``."""

    class FastLoader(yaml.CSafeLoader, slow):  # type: ignore[misc, valid-type]
        def __init__(self, stream: Any) -> None:
            self.text = stream if isinstance(stream, str | bytes) else stream.read()
            self.path = getattr(stream, "name", None)
            super().__init__(self.text)

        def get_single_data(self) -> Any:
            try:
                return super().get_single_data()
            except yaml.YAMLError:
                if self.path is None:
                    return slow(self.text).get_single_data()
                stream = io.StringIO(self.text)
                stream.name = self.path  # type: ignore[attr-defined]
                return slow(stream).get_single_data()

    return FastLoader


class NotPlainError(Exception):
    """A merge that OmegaConf alone knows."""


def update(target: dict[str, Any], source: dict[str, Any]) -> None:
    """Merge as OmegaConf does: mappings by key; lists and values are replaced, but not by ???."""
    for key, value in source.items():
        before = target.get(key)
        if isinstance(before, str) and "${" in before and isinstance(value, dict):
            raise NotPlainError  # into what the text stands for
        if isinstance(before, dict) and isinstance(value, dict):
            update(before, value)
        elif {type(before), type(value)} == {dict, list}:
            raise NotPlainError  # an error
        elif key not in target or value != MISSING:
            target[key] = copy.deepcopy(value)


@contextmanager
def kept_configs(folder: Path) -> Iterator[None]:
    """Configs of the folder and of Hydra are read once; files of other folders as always."""
    originals = (original for _, _, original in AS_IT_IS)
    load, merge, embed, look_up, choices, parse_rule, parse, _, slow, _ = originals
    kept: dict[tuple[str, str, str], ConfigResult] = {}
    merged: dict[tuple[Any, ...], bytes] = {}  # copies take a sixth, and little memory
    plain: dict[tuple[Any, ...], dict[str, Any]] = {}
    found: dict[tuple[Any, ...], DefaultsList] = {}
    overrides: dict[str, Override] = {}

    def is_known(repo: IConfigRepository) -> bool:
        """Whether configs come from Hydra and the folder alone."""
        return [source.path for source in repo.get_sources()] == [HYDRAS_OWN, str(folder), ""]

    def load_config(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.path not in (str(folder), HYDRAS_OWN):
            return load(repository, config_path)
        key = (source.path, source.provider, config_path)
        if key not in kept:
            kept[key] = load(repository, config_path)
        return copy.copy(kept[key])

    def merge_files(
        loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        if not is_known(repo):
            return merge(loader, defaults, repo)
        key = tuple((file.config_path, file.package, file.primary) for file in defaults)
        if key not in merged:
            try:
                whole = merge_plainly(loader, defaults, key, repo)
            except NotPlainError:
                whole = merge(loader, defaults, repo)
            merged[key] = pickle.dumps(whole)
        return pickle.loads(merged[key])  # noqa: S301

    def merge_plainly(
        loader: ConfigLoaderImpl,
        defaults: list[ResultDefault],
        key: tuple[tuple[Any, ...], ...],
        repo: IConfigRepository,
    ) -> DictConfig:
        """Files of Hydra, which come first and have types, by OmegaConf; the others by `update`."""
        number = sum(str(path).startswith("hydra/") for path, *_ in key)
        first = key[:number]
        if not all(str(path).startswith("hydra/") for path, *_ in first):
            raise NotPlainError
        if first not in merged:
            merged[first] = pickle.dumps(merge(loader, defaults[:number], repo))
        rest: dict[str, Any] = {}
        for file, name in zip(defaults[number:], key[number:], strict=True):
            if name not in plain:
                config = merge(loader, [file], repo)
                plain[name] = OmegaConf.to_container(config)  # type: ignore[assignment]
            update(rest, plain[name])
        whole = pickle.loads(merged[first])  # noqa: S301
        whole.merge_with(OmegaConf.create(rest))
        return whole

    def create_defaults_list(repo: IConfigRepository, **settings: Any) -> DefaultsList:
        """The files of a choice of groups, and the values of other keys that are overridden."""
        if not is_known(repo):
            return look_up(repo, **settings)
        own = Overrides(repo, settings["overrides_list"])
        values = {id(override) for override in own.config_overrides}
        groups = [entry for entry in settings["overrides_list"] if id(entry) not in values]
        others = (settings[name] for name in ("config_name", "prepend_hydra", "skip_missing"))
        # of plugins, which register theirs when they are first looked for
        launchers = ConfigStore.instance().repo["hydra"].get("launcher", {})
        key = (*others, *launchers, *(entry.input_line for entry in groups))
        if key not in found:
            found[key] = look_up(repo, **settings)
        return dataclasses.replace(found[key], config_overrides=own.config_overrides)

    def embed_result_config(result: ConfigResult, package: str | None) -> ConfigResult:
        """What is put into a package is copied by Hydra; what is not would be edited."""
        embedded = embed(result, package)
        if embedded is result and any(result.config is other.config for other in kept.values()):
            embedded.config = copy.deepcopy(result.config)
        return embedded

    def create_interpolation_map(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        """Made for every file, though few choose by `${}`."""
        if any(default.is_interpolation() for default in defaults):
            return choices(overrides, defaults, self_added)
        return None

    def parse_override(parser: OverridesParser, text: str, rule: str) -> Any:
        """Copies, as each is told its loader; a sweep's value may be an iterator."""
        if rule != "override":
            return parse_rule(parser, text, rule)
        if text not in overrides:
            parsed = parse_rule(parser, text, rule)
            if parsed.is_sweep_override():
                return parsed
            overrides[text] = parsed
        return copy.copy(overrides[text])

    kept_parse = functools.cache(parse)  # its trees are only read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigRepository, "load_config", load_config)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge_files)
        patch.setattr(ConfigLoaderImpl, "_embed_result_config", staticmethod(embed_result_config))
        patch.setattr(config_loader_impl, "create_defaults_list", create_defaults_list)
        patch.setattr(defaults_list, "_create_interpolation_map", create_interpolation_map)
        patch.setattr(OverridesParser, "parse_rule", parse_override)
        for module in (omegaconf.base, omegaconf._utils):
            patch.setattr(module, "parse", kept_parse)
        if yaml.__with_libyaml__:
            loader = fast_loader(slow())
            for module in (omegaconf.basecontainer, omegaconf._utils):
                patch.setattr(module, "get_yaml_loader", lambda: loader)
        yield
