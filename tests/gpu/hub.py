"""What `datasets.load_dataset` would bring from the hub, out of texts.py: the columns of the datasets that public scripts name."""

from __future__ import annotations

from datasets import Dataset
from texts import mixed, preferences, prompts


def _capybara() -> Dataset:
    """Conversations, most of several turns."""
    rows = []
    for text in mixed(800):
        third = len(text) // 3
        said = [text[:100], text[100:third] or "pass", text[third : third + 100], text[third + 100 :] or "pass"]
        turns = [{"role": role, "content": each} for role, each in zip(("user", "assistant") * 2, said, strict=True)]
        rows.append({"source": "torch", "messages": turns, "num_turns": 2})
    return Dataset.from_list(rows)


def _ultrafeedback() -> Dataset:
    """Pairs of conversations and their scores."""
    pairs = preferences(120)  # all of them are scored where the reference is asked once
    rows = []
    for prompt, chosen, rejected in zip(pairs["prompt"], pairs["chosen"], pairs["rejected"], strict=True):
        asked = {"role": "user", "content": prompt}
        rows.append(
            {
                "chosen": [asked, {"role": "assistant", "content": chosen}],
                "rejected": [asked, {"role": "assistant", "content": rejected}],
                "score_chosen": 8.0,
                "score_rejected": 4.0,
            }
        )
    return Dataset.from_list(rows)


def _tldr() -> Dataset:
    """Posts and what they come to."""
    return Dataset.from_list([{"prompt": text, "completion": text[:40]} for text in prompts(800)])


KNOWN = {"trl-lib/Capybara": _capybara, "trl-lib/ultrafeedback_binarized": _ultrafeedback, "trl-lib/tldr": _tldr}


def load_dataset(name: str, split: str) -> Dataset:
    """The dataset of that name, whatever its split."""
    return KNOWN[name]()
