"""Passwords in texts that are kept or shown: statements, messages, URLs.

Owns where one may stand. Called before a text reaches a file, a message or a values
file. A password may have any character, also those that a URL should not: what is in
quotes is looked at as a whole.
"""

from __future__ import annotations

import re

_LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
# What follows a colon in `host:8080/path@2` is no password.
_NO_PORT = r"(?!\d{1,5}(?:[/?#\s'\"]|$))"
_CALL = r"password\s*\(\s*(?=['\"])"  # MariaDB's
_KEY = (
    r"(?i:\b\w*(?:password|passwd|pwd|secret|secret_access_key)\b[\"']?\s*(?:=>?|:)\s*"
    rf"(?:{_CALL})?"
)
_STATED = (
    r"|\b(?:password|secret|identified\s+(?:with\s+\w+\s+)?(?:by|as))\s+(?=['\"])"
    rf"|=\s*{_CALL})"
)
# In a literal: up to its last @, to the next `key=` or sign between two of them.
_IN_LITERAL = (
    re.compile(rf"(://[^:/\n]*:){_NO_PORT}[^\n]*(?=@)"),
    re.compile(
        rf"({_KEY}{_STATED})(?:''(?:\\.|[^'])*''|'(?:\\.|[^'])*'|\"(?:\\.|[^\"])*\""
        r"|[^&;,)\n'\"]*?(?=\s+\w+\s*=|[&;,)\n'\"]|$))"
    ),
)
# Elsewhere blanks are the text's own.
_ANYWHERE = (
    re.compile(rf"(://[^:/\s'\"]*:){_NO_PORT}[^\s'\"]*(?=@)"),
    re.compile(rf"({_KEY}{_STATED})(?:'(?:[^']|'')*'|\"[^\"]*\"|[^\s&;,)'\"]+)"),
)


def without_secret(text: str) -> str:
    """Return a text in which nobody's password stands any more."""
    text = _LITERAL.sub(_of_literal, text)
    for pattern in _ANYWHERE:
        text = pattern.sub(r"\1***", text)
    return text


def _of_literal(found: re.Match[str]) -> str:
    quote, inner = found[0][0], found[0][1:-1]
    for pattern in _IN_LITERAL:
        inner = pattern.sub(r"\1***", inner)
    return quote + inner + quote
