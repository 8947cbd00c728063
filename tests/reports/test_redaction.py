"""No secret leaves in any format, and what only looks like one stays readable."""

import json

import pytest

from trl_lint.model import Edit, Ledger, Related, RunSummary, Skip
from trl_lint.reports import FORMATS, redact

from .building import finding, fix, report, span_of, written

TOKEN = "hf_abcdefghijklmnop"
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"login('{TOKEN}')", "login('***')"),
        ("export HF_TOKEN=s3cret; run", "export HF_TOKEN=***; run"),
        ("HF_TOKEN=s3cret WANDB_API_KEY=k3y python t.py", "HF_TOKEN=*** WANDB_API_KEY=*** python t.py"),
        ("HF_TOKEN='two words' x", "HF_TOKEN='***' x"),
        ("HF_TOKEN=abcd==", "HF_TOKEN=***"),
        ("ENV HF_TOKEN s3cret", "ENV HF_TOKEN ***"),
        ("HUGGING_FACE_HUB_TOKEN=s3cret", "HUGGING_FACE_HUB_TOKEN=***"),
        ("WANDB_ENTITY=my-team", "WANDB_ENTITY=***"),
        ("GRPOConfig(hub_token='s3cret', a=1)", "GRPOConfig(hub_token='***', a=1)"),
        ('GRPOConfig(hub_token=r"s3\\"cret", a=1)', 'GRPOConfig(hub_token=r"***", a=1)'),
        ('hub_token: str | None = "s3cret"', 'hub_token: str | None = "***"'),
        ('hub_token = """s3cret"""', 'hub_token = """***"""'),
        ('hub_token="s3cret', 'hub_token="***'),
        ('hub_token="s3cret\r\nnext', 'hub_token="***\r\nnext'),
        ('{"hub_token": "s3cret", "a": 1}', '{"hub_token": "***", "a": 1}'),
        ('"os.environ[\\"HF_TOKEN\\"] = \\"s3cret\\"\\n",', '"os.environ[\\"HF_TOKEN\\"] = \\"***\\"\\n",'),
        ('os.environ["HF_TOKEN"] = "s3cret"', 'os.environ["HF_TOKEN"] = "***"'),
        ('os.environ["HF_TOKEN"] = (\n  "s3cret")', 'os.environ["HF_TOKEN"] = (\n  "***")'),
        ('os.environ.setdefault("HF_TOKEN", "s3cret")', 'os.environ.setdefault("HF_TOKEN", "***")'),
        ("hub_token: s3cret  # mine", "hub_token: ***  # mine"),
        ("hub_token: >-\n  s3cret\na: 1", "hub_token: >-\n  ***\na: 1"),
        ("trl grpo --hub_token s3cret --a 1", "trl grpo --hub_token *** --a 1"),
        ("trl grpo --hub-token=s3cret", "trl grpo --hub-token=***"),
        ("trl grpo --hub_token \\\n  s3cret", "trl grpo --hub_token \\\n  ***"),
        ('["--hub_token", "s3cret"]', '["--hub_token", "***"]'),
        (f"wandb login --relogin {KEY}", "wandb login --relogin ***"),
        (f'wandb.login(key="{KEY}")', 'wandb.login(key="***")'),
        ("pip install git+https://me:s3cret@github.com/a/b", "pip install git+https://***@github.com/a/b"),
        ("https://s3cret@huggingface.co/a", "https://***@huggingface.co/a"),
        ("https://h/a?token=s3cret&b=1", "https://h/a?token=***&b=1"),
    ],
)
def test_hidden(text: str, redacted: str) -> None:
    assert redact(text) == redacted
    assert redact(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        'hub_token=os.environ["HF_TOKEN"]',
        'token = os.environ.get("HF_TOKEN")',
        "hub_token=None, a=1",
        "hub_token: null",
        "hub_token:\npush_to_hub: true",
        'export HF_TOKEN="" A=1',
        "HF_TOKEN=$HF_TOKEN python t.py",
        "HF_TOKEN=$(cat token)",
        "WANDB_DISABLED=true",
        "wandb_project: open-r1",
        "wandb==0.17.0",
        "from huggingface_hub import hf_hub_download, hf_transfer_is_fast_enough",
        f"revision='{KEY}'",
        "git+ssh://git@github.com/huggingface/trl",
        "https://huggingface.co/docs?a=1",
        "ignore_keys=['hub_token', 'learning_rate']",
        "trl grpo --hub_token --a 1",
    ],
)
def test_shown(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("secret", [TOKEN, "s3cret-of-mine"])
def test_no_format_leaks(format: str, secret: str) -> None:
    line = f"HF_TOKEN={secret}"
    source = f"{line} trl grpo\n".encode()
    span = span_of(source, line, path="run.sh")
    leaking = finding(
        span,
        message=f"{line} is set",
        related=(Related(span, f"here: {line}"),),
        fix=fix(title=f"drop {line}", edits=(Edit("run.sh", 0, 0, line),)),
        alternatives=(line,),
        assumed=line,
        undecided=line,
        held_back=line,
    )
    text = written(
        report(
            leaking,
            sources={"run.sh": source},
            runs=(RunSummary("r1", None, (), {"trl": {"value": "1.16.0", "origin": line}}),),
            skipped=(Skip("x.py", line),),
            notes=(line,),
            ledger=Ledger((), ((leaking, line),), ((leaking, line),)),
        ),
        format,
    )
    assert secret not in text
    assert "HF_TOKEN=***" in text


@pytest.mark.parametrize("format", ["json", "sarif"])
def test_an_edit_with_a_secret_is_not_handed_out_broken(format: str) -> None:
    secretive = finding(span_of(b"abcdef", "cd"), fix=fix(edits=(Edit("train.py", 4, 4, "hub_token='s3cret'"),)))
    document = json.loads(written(report(secretive), format))
    if format == "json":
        assert document["findings"][0]["fix"]["edits"] == []
    else:
        assert "fixes" not in document["runs"][0]["results"][0]
