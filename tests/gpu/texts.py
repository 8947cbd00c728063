"""Texts to train on, out of the Python files of torch: they are wherever torch is, so that no hub is needed."""

from __future__ import annotations

import glob
import os
import random
from pathlib import Path

import torch

_FILES = sorted(glob.glob(f"{os.path.dirname(torch.__file__)}/**/*.py", recursive=True))[300:340]
LONGEST = int(os.environ.get("PROBE_LETTERS", "5000"))  # of a sample, less where there is no GPU
TEXT = "".join(Path(file).read_text(errors="ignore") for file in _FILES)


def mixed(count: int) -> list[str]:
    """Samples of very different lengths, as they are in chats: most short, some just below 2048 tokens."""
    choice = random.Random(0)
    return [TEXT[i * 1500 : i * 1500 + min(choice.choice([300, 800, 2000, 5000]), LONGEST)] for i in range(count)]


def prompts(count: int) -> list[str]:
    """Prompts of about a hundred tokens."""
    return [TEXT[i * 400 : i * 400 + min(400, LONGEST)] for i in range(count)]


def preferences(count: int) -> dict[str, list[str]]:
    """The columns of a preference dataset, about 500 tokens a completion."""
    starts = [i * 900 for i in range(count)]
    return {
        "prompt": [TEXT[start : start + 300] for start in starts],
        "chosen": [TEXT[start + 300 : start + 300 + min(2400, LONGEST)] for start in starts],
        "rejected": [TEXT[start + 900 : start + 900 + min(1800, LONGEST)] for start in starts],
    }
