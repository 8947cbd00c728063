"""The report page as text: whole by itself, well formed, nothing of the user's unescaped, every number where it belongs."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_args

import pytest

from tests.probe import sample_probed
from trl_lint.probe.comparison import Name, Series, Verdict
from trl_lint.probe.page import numbers, page
from trl_lint.probe.probed import Probed, Ran, Tried

EVERY = [sample_probed.probed, sample_probed.tuned, sample_probed.repaired, sample_probed.hostile, sample_probed.empty]
_VOID = frozenset({"meta", "circle", "line", "rect", "path", "polyline"})


class Document(HTMLParser):
    """Its elements as (name, attributes), its texts, and a complaint for each end that is not the last beginning's."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.complaints: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.complaints.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


@pytest.mark.parametrize("made", EVERY)
class TestEveryPage:
    def test_it_is_well_formed(self, made: type[Probed]) -> None:
        document = Document(page(made()))
        assert document.complaints == []
        assert document.open == []

    def test_it_needs_nothing_else_and_runs_nothing(self, made: type[Probed]) -> None:
        text = page(made())
        document = Document(text)
        assert not {"script", "link", "img", "iframe", "object", "a", "form"} & {name for name, _ in document.elements}
        assert not [name for _, attributes in document.elements for name in attributes if name.startswith("on")]
        assert not {"src", "href", "style"} & {name for _, attributes in document.elements for name in attributes}
        assert not re.search(r"url\(|@import|https?:", text)
        assert """content="default-src 'none'; style-src 'unsafe-inline'">""" in text

    def test_what_is_referred_to_is_there_once(self, made: type[Probed]) -> None:
        document = Document(page(made()))
        ids = document.attributes("id")
        assert len(ids) == len(set(ids))
        assert {name for names in document.attributes("aria-labelledby") for name in names.split()} <= set(ids)

    def test_every_chart_says_what_it_shows(self, made: type[Probed]) -> None:
        document = Document(page(made()))
        charts = [attributes for name, attributes in document.elements if name == "svg" and "role" in attributes]
        for chart in charts:
            assert len(chart["aria-labelledby"].split()) == 2
        assert [name for name, _ in document.elements].count("desc") == len(charts)

    def test_it_can_be_written(self, made: type[Probed]) -> None:
        assert page(made()).encode("utf-8").decode("utf-8") == page(made())


def test_all_sections_and_verdicts_are_there() -> None:
    document = Document(page(sample_probed.probed()))
    for section in ("tried", "gains", "time", "steps", "diffs", "failures", "machine", "notes", "reading"):
        assert section in document.attributes("id")
    for name in get_args(Name):
        assert name in document.text


def test_a_search_is_shown_trial_by_trial_with_what_mattered() -> None:
    text = page(sample_probed.tuned())
    document = Document(text)
    assert "trl-lint tune grpo.py" in document.text
    assert "The last 3 trials were no faster; 6 settings were run and 2 refused without a trial." in document.text
    assert "online-without-vllm, vllm-memory-share=0.7: 2487 tokens per second, 6.1x" in document.texts
    assert "1 of them did not train: torch.OutOfMemoryError" in document.text
    chart = text[text.index('<svg class="attempts"') :]
    chart = chart[: chart.index("</figure>")]
    assert chart.count("<circle") == 4
    assert chart.count(' end"') == 2  # one out of memory, one too slow
    assert "online-without-vllm 81%" in document.text
    assert "search" not in Document(page(sample_probed.probed())).attributes("id")


def test_the_outcome_stands_first() -> None:
    found = sample_probed.probed()
    text = Document(page(found)).text
    assert "5.0x as fast here (4.8 to 5.7), with 6.0x the memory: 2 fixes together" in text
    assert "40 trials of 6 steps in 47 min, 2026-11-30" in text
    assert (
        Document(page(replace(found, kept=None))).text.count("Nothing to keep: 3 confirmed, 2 no gain, 1 slower") == 2
    )


def test_the_table_has_a_caption_and_headers_whatever_the_layout() -> None:
    """Laid out as blocks, a table is one only by its roles."""
    elements = Document(page(sample_probed.probed())).elements
    names = [name for name, _ in elements]
    assert names.count("caption") == 1
    assert [a["role"] for name, a in elements if name == "table"] == ["table"]
    assert {a["role"] for name, a in elements if name == "td"} == {"cell"}
    assert sum(a.get("scope") == "row" and a["role"] == "rowheader" for name, a in elements if name == "th") == 9
    assert sum(a.get("scope") == "col" for name, a in elements if name == "th") == 6


def test_before_and_after_stand_in_their_own_units() -> None:
    text = Document(page(sample_probed.probed())).text
    assert "as it is sample with vLLM on the training GPUs: as it is 0.326 steps/s 0.326 steps/s" in text
    assert "1.52 steps/s: 4.7x (4.6 to 5.4)" in text
    assert "48.2 GiB: +638%" in text


def test_a_verdict_from_a_record_has_no_trials_to_show() -> None:
    found = sample_probed.probed()
    known = next(tried for tried in found.tried if tried.known)
    text = Document(page(replace(found, tried=(known,), as_is=(), kept=None))).text
    assert "recorded on 2026-11-28, not measured again" in text
    assert "0.99x (0.99 to 1.01)" in text
    assert "Step by step" not in text
    assert "Where the time goes" not in text


def test_what_stopped_shows_its_last_lines_and_the_command() -> None:
    text = Document(page(sample_probed.probed())).text
    assert "use batches of 256 ✕ broken 2 trials: out of memory: torch.OutOfMemoryError: CUDA out of memory." in text
    assert "logits = self.model(**model_inputs).logits / self.temperature" in text
    assert sample_probed.REPRODUCE in text


def test_of_a_repaired_script_the_way_it_stops_as_it_is() -> None:
    text = Document(page(sample_probed.repaired())).text
    assert "It trains here: drop max_prompt_length" in text
    assert "The script as it is 2 trials: raised: TypeError: GRPOConfig.__init__() got an unexpected keyword" in text
    assert "- max_prompt_length=512," in text


def test_only_what_was_confirmed_is_shown_as_a_change_the_one_to_keep_first() -> None:
    text = page(sample_probed.probed())
    diffs = text[text.index('<section id="diffs"') : text.index('<section id="failures"')]
    assert re.findall(r"<h3>(.*?) <span", diffs) == [
        "2 fixes together",
        "sample with vLLM on the training GPUs",
        "drop gradient_checkpointing=False, use the fused AdamW",
    ]
    assert "<ins>+    use_vllm=True,</ins>" in diffs
    assert "<del>-    gradient_checkpointing=False,</del>" in diffs
    assert '<span class="file">+++ grpo.py</span>' in diffs


def test_nothing_of_the_users_is_markup_and_no_secret_is_left() -> None:
    text = page(sample_probed.hostile())
    assert "<script" not in text
    assert (
        "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot; &#x27;single&#x27; 𝄞🧪" in text
    )
    assert "hf_abcdefghijklmnopqrstuvwx" not in text
    assert not re.search(r"[\x00\x1b\u202e\ud800]", text)
    document = Document(text)
    for letter in "bcfghiklmnopqrstuvwxy":  # each place that hostile() fills, but for what the page does not show
        assert f"{letter}</script><script>" in document.text, letter


def test_secrets_that_only_the_line_before_tells_are_hidden_too() -> None:
    found = sample_probed.probed()
    diff = '+++ train.py\n+login(\n+    hub_token=(\n+        "not-of-any-known-form"\n'
    text = page(replace(found, tried=(replace(found.tried[0], diff=diff),)))
    assert "<ins>+    hub_token=(</ins>\n<ins>+        &quot;***&quot;</ins>" in text


def test_config_fields_that_are_secrets_by_name_are_hidden() -> None:
    found = sample_probed.probed()
    conditions = replace(found.conditions, fields={"hub_token": "of-no-known-form", "learning_rate": 1e-6})
    text = page(replace(found, conditions=conditions))
    assert "of-no-known-form" not in text
    assert "<dt>learning_rate</dt><dd>1e-06</dd>" in text


# Trials of every kind ------------------------------------------------------------------------------------------------


def one(a: Series, b: Series, verdict: Verdict | None = None) -> Probed:
    found = sample_probed.probed()
    verdict = verdict or Verdict("cannot tell", reason="1 of the 5 pairs that a verdict takes")
    tried = Tried("rule", "a fix", "same", ("rule",), "", verdict, (Ran(0, b, 30.0),))
    return replace(found, as_is=(Ran(0, a, 30.0),), tried=(tried,), kept=None)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Series(), Series()),
        (Series((1.0,), startup=3.0), Series((2.0,))),
        (Series((1.0, math.nan, math.inf)), Series((0.0, 0.0, 0.0))),
        (Series((1.0,) * 500, startup=3.0), Series((60.0, *(0.5,) * 499), startup=90.0)),
        (Series((1.0,) * 4), Series((1.0, 1.0), outcome="hung", error="no step")),
        (Series((1.0,) * 4, generation=(0.9, None, 0.9, 0.9)), Series((1.0,) * 4, generation=(0.0,) * 4)),
    ],
)
def test_trials_of_any_length_can_be_drawn(a: Series, b: Series) -> None:
    assert Document(page(one(a, b))).complaints == []


def test_a_slow_first_step_does_not_press_the_others_flat() -> None:
    text = page(one(Series((60.0, *(1.0,) * 7)), Series((1.0,) * 8)))
    assert "0 to 1.73 s, 8 steps" in text
    assert text.count('class="beyond"') == 1


def test_warm_up_is_marked_and_said() -> None:
    text = page(one(Series((1.5, *(1.0,) * 7)), Series((1.0,) * 8)))
    assert '<rect class="warming" x="0" y="0" height="100%" width="25.00%"/>' in text
    assert "As it is: 2 steps left out; 1.50 s, 1.00 s" in text
    assert text.count('class="as-is dropped"') == 2


def test_generation_is_a_part_only_where_it_was_measured() -> None:
    a = Series((2.0,) * 6, generation=(1.5,) * 6, startup=10.0)
    text = Document(page(one(a, a))).text
    assert "1.50 s generation, 0.500 s the rest of the step" in text
    assert "10.0 s start-up, 12.0 s steps, 8.00 s between steps and at the end" in text
    text = Document(page(one(Series((2.0,) * 6), Series((2.0,) * 6)))).text
    assert "A step once it runs steadily; time in generation was not measured." in text


# Numbers -------------------------------------------------------------------------------------------------------------


def test_absolute_numbers_are_those_that_the_verdict_compared() -> None:
    found = sample_probed.probed()
    for tried in found.tried:
        verdict = tried.verdict
        if verdict.ratio is None or tried.known:
            continue
        before, after = numbers.speeds(found.pairs(tried), verdict) or (0.0, 0.0)
        assert after / before == pytest.approx(verdict.ratio, rel=0.02)
        before, after = numbers.peaks(found.pairs(tried), verdict) or (0.0, 0.0)
        assert after / before == pytest.approx(verdict.memory_ratio, rel=0.01)


def test_a_batch_that_serves_several_steps_counts_in_each() -> None:
    a = Series((3.0, 1.0) * 4, generation=(2.0, 0.0) * 4)
    before, after = numbers.parts([(a, a)]) or (None, None)
    assert before == after == numbers.Parts(2.0, 1.0)


def test_linting_reads_no_page() -> None:
    """Nor does a page need what trains, or what draws."""
    code = (
        "import sys; from tests.probe import sample_probed; from trl_lint.probe.page import page; page(sample_probed.probed());"
        "print(sorted({'torch', 'trl', 'matplotlib', 'rich', 'jinja2', 'playwright'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
