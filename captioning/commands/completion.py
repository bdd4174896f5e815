"""``captioning completion bash``: print a script that completes commands and settings."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence

from captioning.commands.command import Command, HydraCommand, PlainCommand

_OF_HYDRA = ("--help", "--cfg", "--resolve", "--multirun", "--config-dir", "--info")
# The words are taken of the line, as bash makes three of KEY=VALUE.
_SCRIPT = r"""_captioning() {
    local line="${COMP_LINE:0:COMP_POINT}" name current previous prefix values
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    local last=$((${#words[@]} - 1))
    current="${words[last]}" previous="${words[last - 1]}" COMPREPLY=()
    if ((last < 2)); then
        COMPREPLY=($(compgen -W "$(_captioning_words "")" -- "$current"))
        return
    fi
    name="${words[1]}"
    if ((last == 2)) && [[ "$current" != -* && "$current" != *=* ]]; then
        COMPREPLY=($(compgen -W "$(_captioning_words "$name")" -- "$current"))
    elif ((last > 2)) && [[ " $(_captioning_words "$name") " == *" ${words[2]} "* ]]; then
        name="$name ${words[2]}"
    fi
    if [[ "$current" == *=* ]]; then
        prefix="${current%%=*}=" current="${current#*=}"
        values="$(_captioning_values "$name" "$prefix")"
        [[ "$COMP_WORDBREAKS" == *=* ]] && prefix=""
    elif values="$(_captioning_values "$name" "$previous")" && [[ -n "$values" ]]; then
        prefix=""
    else
        values="$(_captioning_settings "$name")" prefix=""
        COMPREPLY+=($(compgen -W "$values" -- "$current"))
        [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2> /dev/null
        values=""
    fi
    if [[ -n "$values" ]]; then
        COMPREPLY+=($(compgen -P "$prefix" -W "$values" -- "$current"))
    elif [[ "$current" != -* ]]; then
        ((${#COMPREPLY[@]})) || compopt -o filenames 2> /dev/null
        while IFS= read -r path; do COMPREPLY+=("$prefix$path"); done < <(compgen -f -- "$current")
    fi
}
complete -F _captioning captioning"""


def bash_script(commands: Mapping[str, Command]) -> str:
    """Build the bash script that completes these commands, their options, keys and choices.

    Args:
        commands: commands by their name of one or two words.
    """
    below: dict[str, list[str]] = {"": []}
    settings, values = {}, {}
    for name, command in commands.items():
        first, _, second = name.partition(" ")
        below[""] = [*dict.fromkeys([*below[""], first])]
        below.setdefault(first, []).extend([second] if second else [])
        found = _of_hydra(command) if isinstance(command, HydraCommand) else _of_parser(command)
        offered = dict(found)
        settings[name] = [*offered]
        values |= {f"{name} {key}": chosen for key, chosen in offered.items() if chosen}
    return "\n".join(
        [
            _function("_captioning_words", "$1", below),
            _function("_captioning_settings", "$1", settings),
            _function("_captioning_values", "$1 $2", values),
            _SCRIPT,
        ]
    )


def _function(name: str, subject: str, answers: Mapping[str, Sequence[str]]) -> str:
    cases = [
        f"    {shlex.quote(key)}) echo {shlex.quote(' '.join(words))} ;;"
        for key, words in answers.items()
        if words
    ]
    return "\n".join([f"{name}() {{", f'  case "{subject}" in', *cases, "  esac", "}"])


def _of_hydra(command: HydraCommand) -> Iterator[tuple[str, list[str]]]:
    """Completions of a Hydra command: keys and groups with ``=``, Hydra's options, and choices."""
    from captioning.commands.hydra_help import groups_and_keys

    groups, keys = groups_and_keys(command.config)
    typed = {key: name for name, key in command.typed.items()}
    for key, chosen in {**{key: [] for key in keys}, **groups}.items():
        yield f"{typed.get(key, key)}=", chosen
    yield from ((option, []) for option in _OF_HYDRA)


def _of_parser(command: PlainCommand) -> Iterator[tuple[str, list[str]]]:
    """Completions of a plain command: options with their choices, and positional choices."""
    parser = ArgumentParser()
    command.add_arguments(parser)
    parsers = [parser]
    for action in parser._actions:
        if isinstance(action.choices, Mapping):  # subcommands
            parsers += action.choices.values()
            yield from ((str(name), []) for name in action.choices)
    for action in (action for each in parsers for action in each._actions):
        chosen = [str(choice) for choice in action.choices or ()]
        is_word = not action.option_strings and not isinstance(action.choices, Mapping)
        yield from ((word, []) for word in chosen if is_word)
        yield from ((name, chosen) for name in action.option_strings if name.startswith("--"))


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash",), help="shell to print the script for")


def _call(options: Namespace) -> None:
    from captioning.commands.main import COMMANDS

    print(bash_script(COMMANDS))


COMPLETION = PlainCommand(
    name="completion",
    summary="Print a bash script that completes commands, options, keys and choices.",
    add_arguments=_arguments,
    call=_call,
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/captioning",
        "completion bash",
    ),
)
