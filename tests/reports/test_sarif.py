"""SARIF 2.1.0: the shape that viewers check, and what they need to find the place and to fix it."""

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from trl_lint.model import Edit, Finding, Related, Report, Severity, Skip, Span

from .building import finding, fix, report, span_of, written


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


STRING: dict[str, Any] = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
ONE_BASED = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed({"text": STRING}, "text")
ARTIFACT = closed({"uri": {"type": "string", "pattern": r"^[\w.~%!$&'()*+,;=@/:-]+$"}, "uriBaseId": STRING}, "uri")
REGION = closed(
    {
        "startLine": ONE_BASED,
        "startColumn": ONE_BASED,
        "endLine": ONE_BASED,
        "endColumn": ONE_BASED,
        "byteOffset": COUNT,
        "byteLength": COUNT,
    }
)
LOCATION = closed(
    {"id": COUNT, "physicalLocation": closed({"artifactLocation": ARTIFACT, "region": REGION}), "message": MESSAGE}
)
FIX = closed(
    {
        "description": MESSAGE,
        "artifactChanges": many(
            closed(
                {
                    "artifactLocation": ARTIFACT,
                    "replacements": many(
                        closed({"deletedRegion": REGION, "insertedContent": MESSAGE}, "deletedRegion")
                    ),
                },
                "artifactLocation",
                "replacements",
            )
        ),
    },
    "artifactChanges",
)
RULE = closed(
    {"id": STRING, "name": STRING, "shortDescription": MESSAGE, "help": MESSAGE, "properties": {"type": "object"}}, "id"
)
RESULT = closed(
    {
        "ruleId": STRING,
        "ruleIndex": COUNT,
        "level": LEVEL,
        "message": MESSAGE,
        "locations": many(LOCATION),
        "relatedLocations": many(LOCATION) | {"uniqueItems": True},
        "partialFingerprints": {"type": "object", "additionalProperties": STRING},
        "fixes": many(FIX) | {"uniqueItems": True},
        "properties": {"type": "object"},
    },
    "message",
)
NOTIFICATION = closed({"level": LEVEL, "message": MESSAGE, "locations": many(LOCATION)}, "message")
SCHEMA = closed(
    {
        "$schema": STRING,
        "version": {"const": "2.1.0"},
        "runs": many(
            closed(
                {
                    "tool": closed(
                        {"driver": closed({"name": STRING, "version": STRING, "rules": many(RULE)}, "name")}, "driver"
                    ),
                    "invocations": many(
                        closed(
                            {
                                "executionSuccessful": {"type": "boolean"},
                                "toolExecutionNotifications": many(NOTIFICATION),
                            },
                            "executionSuccessful",
                        )
                    ),
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": many(RESULT),
                },
                "tool",
            )
        ),
    },
    "version",
    "runs",
)
SOURCE = "# 🤗\r\nf(火=1, a=1)\r\nf(a=1)\r\n".encode()
SPAN = span_of(SOURCE, "a=1", path="my dir/träin.py")


def run_of(given: Report) -> dict[str, Any]:
    document = json.loads(written(given, "sarif"))
    Draft7Validator(SCHEMA).validate(document)
    [run] = document["runs"]
    return run  # type: ignore[no-any-return]


def result_of(given: Finding, **changes: Any) -> dict[str, Any]:
    [result] = run_of(report(given, **changes))["results"]
    return result  # type: ignore[no-any-return]


def test_whole() -> None:
    given = finding(
        SPAN,
        message="m",
        severity=Severity.error,
        certainty="assumed",
        assumed="trl 1.16.0",
        related=(Related(Span("launch.sh", 7, 9, 1, 8, 1, 10), "here"),),
        fix=fix(
            safety="unsafe",
            needs=("install",),
            edits=(Edit("a.py", 4, 6, ""), Edit("b.py", 1, 1, "x"), Edit("a.py", 9, 9, "y")),
        ),
    )
    other = finding(SPAN, rule="a-rule", group="memory")
    run = run_of(report(given, other, sources={SPAN.path: SOURCE}, skipped=(Skip("x y.py", "why"),), notes=("old",)))
    artifact = {"uri": "my%20dir/tr%C3%A4in.py", "uriBaseId": "%SRCROOT%"}

    assert run["columnKind"] == "unicodeCodePoints"
    assert run["tool"]["driver"]["version"] == "0.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["a-rule", "online-without-vllm"]
    assert run["tool"]["driver"]["rules"][1] == {
        "id": "online-without-vllm",
        "name": "OnlineWithoutVllm",
        "shortDescription": {"text": "Online without vllm"},
        "help": {"text": "trl-lint explain online-without-vllm"},
        "properties": {"group": "vllm"},
    }
    assert run["invocations"][0]["toolExecutionNotifications"] == [
        {
            "level": "warning",
            "message": {"text": "skipped: why"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "x%20y.py", "uriBaseId": "%SRCROOT%"}}}],
        },
        {"level": "note", "message": {"text": "old"}},
    ]
    result = run["results"][1]
    fingerprint = result.pop("partialFingerprints")["trlLint/v1"]
    assert len(fingerprint) == 34
    assert fingerprint.endswith(":1")
    assert result == {
        "ruleId": "online-without-vllm",
        "ruleIndex": 1,
        "level": "error",
        "message": {"text": "m (assuming trl 1.16.0)"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": artifact,
                    "region": {
                        "startLine": 2,
                        "startColumn": 8,
                        "endLine": 2,
                        "endColumn": 11,
                        "byteOffset": SOURCE.index(b"a=1"),
                        "byteLength": 3,
                    },
                }
            }
        ],
        "relatedLocations": [
            {
                "id": 1,
                "physicalLocation": {
                    "artifactLocation": {"uri": "launch.sh", "uriBaseId": "%SRCROOT%"},
                    "region": {
                        "startLine": 1,
                        "startColumn": 8,
                        "endLine": 1,
                        "endColumn": 10,
                        "byteOffset": 7,
                        "byteLength": 2,
                    },
                },
                "message": {"text": "here"},
            }
        ],
        "properties": {"certainty": "assumed", "severity": "error"},
        "fixes": [
            {
                "description": {"text": "turn vLLM on (unsafe: needs install)"},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": "a.py", "uriBaseId": "%SRCROOT%"},
                        "replacements": [
                            {"deletedRegion": {"byteOffset": 4, "byteLength": 2}, "insertedContent": {"text": ""}},
                            {"deletedRegion": {"byteOffset": 9, "byteLength": 0}, "insertedContent": {"text": "y"}},
                        ],
                    },
                    {
                        "artifactLocation": {"uri": "b.py", "uriBaseId": "%SRCROOT%"},
                        "replacements": [
                            {"deletedRegion": {"byteOffset": 1, "byteLength": 0}, "insertedContent": {"text": "x"}}
                        ],
                    },
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("severity", "certainty", "level"),
    [
        (Severity.error, "certain", "error"),
        (Severity.warning, "assumed", "warning"),
        (Severity.note, "certain", "note"),
        (Severity.error, "possible", "note"),
    ],
)
def test_level(severity: Severity, certainty: str, level: str) -> None:
    result = result_of(finding(SPAN, severity=severity, certainty=certainty))
    assert result["level"] == level
    assert result["properties"] == {"certainty": certainty, "severity": severity.name}


@pytest.mark.parametrize(
    "changes",
    [{}, {"fix": fix(edits=())}, {"fix": fix(), "held_back": "why"}],
    ids=["no fix", "no place to write it", "held back"],
)
def test_no_fixes(changes: dict[str, Any]) -> None:
    assert "fixes" not in result_of(finding(SPAN, **changes))


@pytest.mark.parametrize(
    ("path", "artifact"),
    [
        ("./a.py", {"uri": "a.py", "uriBaseId": "%SRCROOT%"}),
        ("../a.py", {"uri": "../a.py", "uriBaseId": "%SRCROOT%"}),
        ("a\\b.py", {"uri": "a/b.py", "uriBaseId": "%SRCROOT%"}),
        ("a:b#c?.py", {"uri": "a%3Ab%23c%3F.py", "uriBaseId": "%SRCROOT%"}),
        ("caf\udce9.py", {"uri": "caf%E9.py", "uriBaseId": "%SRCROOT%"}),
        ("/a b/c.py", {"uri": "file:///a%20b/c.py"}),
        ("C:\\a b\\c.py", {"uri": "file:///C:/a%20b/c.py"}),
    ],
)
def test_paths_are_uris(path: str, artifact: dict[str, str]) -> None:
    result = result_of(finding(Span(path, 0, 1, 1, 1, 1, 2)))
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == artifact


def test_a_cell_is_placed_in_the_file() -> None:
    source = '{"cells": [\n "火 f(a=1)"]}'.encode()
    span = Span("n.ipynb", source.index(b"a=1"), source.index(b"a=1") + 3, 1, 5, 1, 8, 1)
    region = result_of(finding(span), sources={"n.ipynb": source})["locations"][0]["physicalLocation"]["region"]
    assert [region[key] for key in ("startLine", "startColumn", "endLine", "endColumn")] == [2, 7, 2, 10]
    bare = result_of(finding(span))["locations"][0]["physicalLocation"]["region"]
    assert bare == {"byteOffset": span.start, "byteLength": 3}


def fingerprints(source: bytes, *findings: Finding) -> list[str]:
    results = run_of(report(*findings, sources={"train.py": source}))["results"]
    return [result["partialFingerprints"]["trlLint/v1"] for result in results]


def test_fingerprints_outlive_lines_and_line_ends_but_not_the_text() -> None:
    before, moved, changed = b"f(\n a=1)", b"# new\r\nf(\r\n a=1)", b"f(\n a=2)"
    [first] = fingerprints(before, finding(span_of(before, "f(", upto=")")))
    assert fingerprints(moved, finding(span_of(moved, "f(", upto=")"))) == [first]
    assert fingerprints(changed, finding(span_of(changed, "f(", upto=")"))) != [first]
    assert fingerprints(before, finding(span_of(before, "f(", upto=")"), rule="other")) != [first]


def test_equal_places_are_told_apart() -> None:
    source = b"f(a=1)\nf(a=1)\n"
    first, second = fingerprints(
        source, finding(Span("train.py", 0, 6, 1, 1, 1, 7)), finding(Span("train.py", 7, 13, 2, 1, 2, 7))
    )
    assert (first[:-1], first[-1], second[-1]) == (second[:-1], "1", "2")


def test_empty() -> None:
    run = run_of(report())
    assert run["results"] == run["tool"]["driver"]["rules"] == []
