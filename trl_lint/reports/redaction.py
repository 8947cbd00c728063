"""Text in, the same text without its secrets out: tokens, keys and credentials become `***`.

Too much rather than too little: a report is pasted into issues, kept as a CI artifact and uploaded to code scanning.
"""

from __future__ import annotations

import re
from functools import cache

HIDDEN = "***"

# Names whose values are secrets. In capitals all of W&B's variables count; in lower case only the key does, since
# recipes have innocent fields such as `wandb_project`.
_NAME = (
    r"(?:WANDB_[A-Z0-9_]+"
    r"|(?i:wandb_api_key|hf[_-]token|hub[_-]token|hugging_?face(?:_?hub)?(?:_api)?_token))"
)
_KEY = rf"{_NAME}\\*[\"']?\]?"  # also `"NAME":`, `environ["NAME"] =`, and both inside a notebook's JSON
_STR = r"(?:str|Optional\[str\]|str\s*\|\s*None|None\s*\|\s*str)"
_OPENING = r"[rbfuRBFU]{0,2}(?P<q>\\*(?:\"\"\"|'''|\"|'))"
_QUOTED = rf"{_OPENING}(?P<secret>(?:(?!(?P=q))(?:\\[^\r\n]|[^\r\n\\]))+)"
# A value without quotes is a shell word or a YAML scalar. References, types, calls and look-ups hide nothing.
_HARMLESS = (
    rf"\$|~(?!\S)|(?i:none|null|true|false)\b|{_STR}(?=[\s=,)]|\Z)|[A-Za-z_][\w.]*[\[(]|[rbfuRBFU]{{0,2}}\\*[\"']"
)
_BARE = rf"(?!{_HARMLESS})(?P<secret>[^\s\"'`,;()\[\]{{}}&|<>]+)"

_SECRETS = (
    rf"{_KEY}\s*(?::\s*{_STR}\s*=|[:=]=?)(?:[\s(]|\\\r?\n)*{_QUOTED}",
    rf"{_KEY}[ \t]*[:=]=?[ \t]*(?:[|>][-+\d]*[ \t]*\r?\n[ \t]+)?{_BARE}",
    rf"(?:\(\s*\\*[\"']|[\"']--){_NAME}\\*[\"']\s*,\s*{_QUOTED}",  # setdefault("HF_TOKEN", "x"), ["--hub_token", "x"]
    rf"(?:--|\bENV[ \t]+){_NAME}(?:[ \t]|\\\r?\n)+(?!-){_BARE}",
    rf"(?:--|\bENV[ \t]+){_NAME}(?:[ \t]|\\\r?\n)+{_QUOTED}",
    r"\bwandb[ .]login[^\n]{0,200}?\b(?P<secret>[0-9a-f]{40})\b",
    r"(?P<secret>wandb_v\d+_\w{16,})",
    r"(?P<secret>hf_(?:(?:oauth|jwt)_[\w.-]{16,}|[A-Za-z0-9]{16,}))",
    r"://(?P<secret>(?!git@)[^\s/\"'`<>]+)@",  # git@ is a user of every forge and no secret
    r"[?&][a-z_]*(?:token|api_?key|secret|password)=(?P<secret>[^&\s\"'`#]+)",
)


# Each pattern needs one of these, in some case. Most lines have none, and compiling the patterns takes 10 ms.
_HINTS = ("hf_", "token", "wandb", "://", "key=", "secret=", "password=")


def secrets(text: str) -> list[tuple[int, int]]:
    """The code-point ranges of `text` that must not be shown, in order and apart from one another."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return []
    found = sorted(match.span("secret") for pattern in _patterns() for match in pattern.finditer(text))
    apart: list[tuple[int, int]] = []
    for start, end in found:
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def redact(text: str) -> str:
    """`text` with each secret as `***`."""
    pieces, at = [], 0
    for start, end in secrets(text):
        pieces += [text[at:start], HIDDEN]
        at = end
    return "".join([*pieces, text[at:]])


def redact_all(value: object) -> object:
    """A JSON-like value with every string in it redacted; keys are names of ours and stay."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: redact_all(item) for key, item in value.items()}
        case list() | tuple():
            return [redact_all(item) for item in value]
        case _:
            return value


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Compiled when first needed, which for most runs is never."""
    return tuple(re.compile(pattern) for pattern in _SECRETS)
