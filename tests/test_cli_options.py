"""The options of all commands together: one name, one meaning."""

from collections import defaultdict

import typer
from typer.testing import CliRunner

from lzero.cli import app

OWN = {"--out", "--overwrite", "--resume", "--round-to", "--seeds"}  # a file or a folder, one number or several


def commands(group):
    for command in group.commands.values():
        yield from commands(command) if isinstance(command, typer.core.TyperGroup) else [command]


def test_options_of_several_commands_are_worded_alike():
    words = defaultdict(set)
    for command in commands(typer.main.get_command(app)):
        for each in command.params:
            name = each.opts[0] if each.opts[0].startswith("-") else each.metavar
            words[name].add(each.help)
    assert words["--budget"]
    assert "--target" not in words
    assert {name for name, said in words.items() if len(said) > 1} <= OWN | {"NAME"}


def test_a_budget_is_called_so_wherever_it_is_given():
    for command in ("compact", "bench"):
        shown = CliRunner().invoke(app, [command, "--help"]).output
        assert "--budget BUDGET" in shown
        assert "--cost l0|gates|params|macs" in shown
