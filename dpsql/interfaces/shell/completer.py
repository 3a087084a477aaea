"""Completion in the shell: commands after a backslash, else SQL as `dpsql.interfaces.python.describe` has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from dpsql.interfaces.python.describe import Suggestion, Words, complete, offered
from dpsql.results.render import STYLES


class ShellCompleter(Completer):
    """prompt_toolkit's completer over a set of words, and the shell's commands after a backslash."""

    def __init__(self, words: Words, commands: Iterable[str]) -> None:
        self.words, self.commands = words, commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        text = document.text_before_cursor
        command = text.lstrip()[:1] in ("\\", ".")
        for word, typed, comment in self._commands(text.lstrip()) if command else complete(self.words, text):
            yield Completion(word, start_position=-typed, display_meta=comment)

    def _commands(self, line: str) -> Iterator[Suggestion]:
        word, space, argument = line[1:].partition(" ")
        if not space:
            yield from offered(word, dict.fromkeys(self.commands, ""))
        elif word in ("d", "dt"):
            yield from offered(argument, self.words.tables)
        elif word in ("format", "mode"):
            yield from offered(argument, dict.fromkeys(STYLES, ""))
