"""`ddh completion`: the script that lets a shell complete commands, options and files."""

import click
from click.shell_completion import get_completion_class

# How each shell loads it: a line in a start file, or for fish a file of its own.
INSTALL = {
    "bash": "echo 'eval \"$(ddh completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(ddh completion zsh)\"' >> ~/.zshrc    (after compinit)",
    "fish": "ddh completion fish > ~/.config/fish/completions/ddh.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete ddh's commands, options and files.

    \b
    eval "$(ddh completion bash)"                                   for this shell
    echo 'eval "$(ddh completion bash)"' >> ~/.bashrc               from now on
    echo 'eval "$(ddh completion zsh)"' >> ~/.zshrc
    ddh completion fish > ~/.config/fish/completions/ddh.fish
    """
    from ddh.cli import cli

    writer = get_completion_class(shell)
    assert writer is not None  # the choice above
    click.echo(f"# From now on: {INSTALL[shell]}")
    click.echo(writer(cli, {}, "ddh", "_DDH_COMPLETE").source())
