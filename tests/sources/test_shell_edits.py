"""Editing commands: what changes, what stays, and what is refused."""

from __future__ import annotations

import random
import subprocess

import pytest

from trl_lint.model import Intent, Known, Site, Source
from trl_lint.runs.launches import Launch, launches_of
from trl_lint.sources import shell
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.shell_edits import edit
from trl_lint.sources.text import Text


def launches(script: str, path: str = "run.sh") -> tuple[Launch, ...]:
    return launches_of(shell.read(Text(path, script.encode())))


def intent(op: str, site: Site, name: str, value: object = None, path: tuple[str, ...] = ()) -> Intent:
    return Intent(op, site, name, value, None, path)  # type: ignore[arg-type]


def edited(script: str, *changes: tuple[object, ...], path: str = "run.sh", which: int = 0, of: str = "flags") -> str:
    """The script after changes (op, name, value, path) of one launch; the result is as good shell as the script was."""
    site = getattr(launches(script, path)[which], of)
    after = edit(Text(path, script.encode()), [intent(str(op), site, *rest) for op, *rest in changes])  # type: ignore[arg-type]
    if path.endswith(".sh"):
        assert takes(after) == takes(script)
    return after


def takes(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("--a 1", 2, "--a 2"),
        ("--a=1 --b", 2, "--a=2 --b"),
        ("--a 1", 1e-6, "--a 1e-06"),
        ("--a x", "y", "--a y"),
        ("--a x", "y z", "--a 'y z'"),
        ("--a 'x'", "y z", "--a 'y z'"),
        ('--a "x"', "y$z", '--a "y\\$z"'),
        ('--a="x"', "y", '--a="y"'),
        ('"--a=x"', "y", '"--a=y"'),
        ("--a x", "it's", """--a 'it'"'"'s'"""),
        ("--a x", "", "--a ''"),
        ("--a true", False, "--a false"),
        ("--a True", False, "--a False"),
        ("--a False --b true", True, "--a True --b true"),
        ("--a", False, "--a false"),
        ("--a --b True", False, "--a False --b True"),
        ("--a", True, "--a"),
        ("--no_a", True, "--a"),
        ("--no-a", True, "--a"),
        ("--no_a", False, "--no_a"),
        ("--a", 3, "--a 3"),
        ("--a x y --b", ("p", "q", "r"), "--a p q r --b"),
        ("--a x y --b", "p", "--a p --b"),
        ("--a x --b", ("p", "q"), "--a p q --b"),
        ("--a 1 --a 2", 3, "--a 1 --a 3"),
        ("--a $X", 3, "--a 3"),
        ("--a ${X:-1}", 3, "--a 3"),
        ("--a '{\"k\": 1}'", {"k": 2}, "--a '{\"k\": 2}'"),
    ],
)
def test_set_what_is_there(before: str, value: object, after: str) -> None:
    script = f"# a comment\npython t.py {before}  # that stays\n"
    assert edited(script, ("set", "a", value)) == f"# a comment\npython t.py {after}  # that stays\n"


def test_set_a_positional() -> None:
    assert edited("python t.py r.yaml --x=1\n", ("set", "0", "s.yaml")) == "python t.py s.yaml --x=1\n"


SERVER = "trl vllm-serve --model M &\n"
ADDED = [
    ("python t.py", "a_b", 1, "python t.py --a_b 1"),
    ("python t.py > log 2>&1 &", "a_b", 1, "python t.py --a_b 1 > log 2>&1 &"),
    ("python t.py --x_y 1 | tee log", "a_b", 1, "python t.py --x_y 1 --a_b 1 | tee log"),
    ("python t.py --x-y 1; echo", "a_b", 1, "python t.py --x-y 1 --a-b 1; echo"),
    ("python t.py --x=1 --y=2", "a_b", 1, "python t.py --x=1 --y=2 --a_b=1"),
    ("python t.py --x 1 $EXTRA", "a_b", 1, "python t.py --x 1 --a_b 1 $EXTRA"),
    ("python t.py --x 1 \"$@\"", "a_b", 1, "python t.py --x 1 --a_b 1 \"$@\""),
    ("python t.py --x", "a_b", True, "python t.py --x --a_b"),
    ("python t.py --x True", "a_b", True, "python t.py --x True --a_b True"),
    ("python t.py --x", "a_b", False, "python t.py --x --a_b false"),
    ("python t.py", "a_b", "c d", "python t.py --a_b 'c d'"),
    ("python t.py", "a", ("b", "c"), "python t.py --a b c"),
    ("trl vllm-serve --model M &", "max_model_len", 4096, "trl vllm-serve --model M --max-model-len 4096 &"),
    ("vllm serve M", "enforce_eager", True, "vllm serve M --enforce-eager"),
    ("vllm serve M", "enable_x", False, "vllm serve M --no-enable-x"),
    ("if python t.py --x 1; then :; fi", "a", 1, "if python t.py --x 1 --a 1; then :; fi"),
    ("(cd a && python t.py)", "a", 1, "(cd a && python t.py --a 1)"),
    ("python t.py \\\n    --x 1 \\\n    --y 2", "a", 1, "python t.py \\\n    --x 1 \\\n    --y 2 \\\n    --a 1"),
    ("python t.py \\\n\t--x 1\\\n\t--y 2 &", "a", 1, "python t.py \\\n\t--x 1\\\n\t--y 2 \\\n\t--a 1 &"),
    ("python t.py \\\n  --x 1 \\\n  > log", "a", 1, "python t.py \\\n  --x 1 \\\n  --a 1 \\\n  > log"),
    ("A=1 \\\n  python t.py --x 1", "a", 1, "A=1 \\\n  python t.py --x 1 \\\n  --a 1"),
    ("python t.py --x 1 --y 2 \\\n  > log", "a", 1, "python t.py --x 1 --y 2 --a 1 \\\n  > log"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "name", "value", "after"), ADDED)
def test_set_what_is_not_there(before: str, name: str, value: object, after: str) -> None:
    for end in ("\n", ""):
        assert edited(before + end, ("set", name, value)) == after + end


def test_line_ends_stay() -> None:
    script = "python t.py \\\r\n    --x 1 \\\r\n    --y 2\r\necho done\r\n"
    after = "python t.py \\\r\n    --x 1 \\\r\n    --y 2 \\\r\n    --a 1\r\necho done\r\n"
    try:
        assert edited(script, ("set", "a", 1)) == after
    except CannotEdit as error:
        pytest.fail(str(error))


def test_a_byte_order_mark_and_other_letters_stay() -> None:
    script = "\ufeff# été\npython t.py --prompt 'é' --x 1\n"
    site = launches(script)[0].flags
    assert edit(Text("run.sh", script.encode()), [intent("set", site, "x", "ü")]) == (
        "# été\npython t.py --prompt 'é' --x ü\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python t.py --a 1", "python t.py"),
        ("python t.py --a 1 --b 2", "python t.py --b 2"),
        ("python t.py --b 2 --a=1 > log", "python t.py --b 2 > log"),
        ("python t.py --b 2 --a x y z &", "python t.py --b 2 &"),
        ("python t.py --b 2 --no_a", "python t.py --b 2"),
        ("python t.py \\\n  --a 1 \\\n  --b 2", "python t.py \\\n  --b 2"),
        ("python t.py \\\n  --b 2 \\\n  --a 1", "python t.py \\\n  --b 2"),
        ("python t.py \\\n  --b 2 \\\n  --a 1 > log", "python t.py \\\n  --b 2 > log"),
        ("python t.py \\\n  --a 1 --b 2 \\\n  --c", "python t.py \\\n  --b 2 \\\n  --c"),
        ("python t.py \\\n  --b 2 --a 1 \\\n  --c", "python t.py \\\n  --b 2 \\\n  --c"),
        ("if python t.py \\\n  --a 1; then :; fi", "if python t.py; then :; fi"),
        ("python t.py \\\r\n  --a 1 \\\r\n  --b 2", "python t.py \\\r\n  --b 2"),
        ("ARGS=(\n  --a 1\n  --b 2\n)\npython t.py \"${ARGS[@]}\"", "ARGS=(\n  --b 2\n)\npython t.py \"${ARGS[@]}\""),
        ("ARGS=\"--a 1 --b 2\"\npython t.py $ARGS", "ARGS=\"--b 2\"\npython t.py $ARGS"),
        ("M='a b'\nA=\"--x $M --a 1\"\npython t.py $A", "M='a b'\nA=\"--x $M\"\npython t.py $A"),
    ],
)  # fmt: skip
def test_drop(before: str, after: str) -> None:
    assert edited(before + "\n", ("drop", "a")) == after + "\n"


def test_drop_several_that_stand_together() -> None:
    script = "python t.py \\\n  --a 1 --b 2 --c 3 \\\n  --d 4\n"
    assert edited(script, ("drop", "a"), ("drop", "b")) == "python t.py \\\n  --c 3 \\\n  --d 4\n"
    assert edited(script, ("drop", "a"), ("drop", "b"), ("drop", "c")) == "python t.py \\\n  --d 4\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--max_seq_length 1", "--max_length 1"),
        ("--max-seq-length 1", "--max-length 1"),
        ("--max_seq_length=1", "--max_length=1"),
        ("--max_seq_length", "--max_length"),
        ("--no_max_seq_length", "--no_max_length"),
        ("--max_seq_length $X --b", "--max_length $X --b"),
    ],
)
def test_rename(before: str, after: str) -> None:
    assert edited(f"python t.py {before}\n", ("rename", "max_seq_length", "max_length")) == f"python t.py {after}\n"


def test_everything_at_once() -> None:
    script = "trl vllm-serve \\\n  --model M \\\n  --tensor-parallel-size 2 \\\n  --port=1 &\n"
    after = edited(
        script,
        ("command", "", "vllm serve M"),
        ("drop", "model"),
        ("set", "tensor_parallel_size", 4),
        ("rename", "port", "api_port"),
        ("set", "max_model_len", 100),
        ("set", "env.VLLM_SERVER_DEV_MODE", "1"),
    )
    assert after == (
        "VLLM_SERVER_DEV_MODE=1 vllm serve M \\\n  --tensor-parallel-size 4 \\\n  --api-port=1 \\\n  --max-model-len 100 &\n"
    )


def test_rename_and_set() -> None:
    assert edited("python t.py --a=1 --b 2\n", ("rename", "a", "c"), ("set", "a", 3)) == "python t.py --c=3 --b 2\n"
    assert edited("python t.py --a 1 --b 2\n", ("set", "a", 3), ("rename", "a", "c")) == "python t.py --c 3 --b 2\n"


@pytest.mark.parametrize(
    ("before", "op", "value", "after"),
    [
        ("python t.py", "set", "0", "X=0 python t.py"),
        ("A=1 python t.py", "set", "0", "A=1 X=0 python t.py"),
        ("X=1 python t.py", "set", "0", "X=0 python t.py"),
        ('X="1" python t.py', "set", "0,1", 'X="0,1" python t.py'),
        ("nohup python t.py", "set", "0", "X=0 nohup python t.py"),
        ("nohup env A=1 python t.py", "set", "0", "nohup env A=1 X=0 python t.py"),
        ("env python t.py", "set", "0", "env X=0 python t.py"),
        ("env X=1 python t.py", "set", "0", "env X=0 python t.py"),
        ("export X=1\npython t.py", "set", "0", "export X=0\npython t.py"),
        ("export X=1\npython u.py\npython t.py", "set", "0", "export X=1\npython u.py\nX=0 python t.py"),
        ("X=1 A=2 python t.py", "drop", None, "A=2 python t.py"),
        ("X=1 \\\n  A=2 python t.py", "drop", None, "A=2 python t.py"),
        ("export X=1  # why\npython t.py", "drop", None, "python t.py"),
        ("export A=2 X=1\npython t.py", "drop", None, "export A=2\npython t.py"),
        ("X=1 python t.py", "rename", "Y", "Y=1 python t.py"),
        ("export X=1\nmkdir a\npython t.py", "rename", "Y", "export Y=1\nmkdir a\npython t.py"),
    ],
)
def test_variables(before: str, op: str, value: object, after: str) -> None:
    which = len(launches(before + "\n")) - 1
    assert edited(before + "\n", (op, "env.X", value), which=which, of="starter") == after + "\n"


def test_an_export_that_all_want_changed_is_changed() -> None:
    script = "export X=1\ntrl vllm-serve --model M &\npython t.py\n"
    sites = [found.starter for found in launches(script)]
    after = edit(Text("run.sh", script.encode()), [intent("set", site, "env.X", "2") for site in sites])
    assert after == "export X=2\ntrl vllm-serve --model M &\npython t.py\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("N=4\naccelerate launch --num_processes $N t.py", "N=7\naccelerate launch --num_processes $N t.py"),
        ('N="4"\necho $N\naccelerate launch --num_processes "$N" t.py', 'N="7"\necho $N\naccelerate launch --num_processes "$N" t.py'),
        ("N=4\naccelerate launch --num_processes $N t.py --n $N", "N=4\naccelerate launch --num_processes 7 t.py --n $N"),
        ("N=4\naccelerate launch --num_processes $N t.py --o a$N", "N=4\naccelerate launch --num_processes 7 t.py --o a$N"),
        ("N=4\nN=5\naccelerate launch --num_processes $N t.py", "N=4\nN=5\naccelerate launch --num_processes 7 t.py"),
    ],
)  # fmt: skip
def test_a_variable_is_changed_where_it_is_bound_if_nothing_else_uses_it(before: str, after: str) -> None:
    assert edited(before + "\n", ("set", "num_processes", 7), of="starter") == after + "\n"


@pytest.mark.parametrize(
    ("before", "name", "value", "after"),
    [
        ("accelerate launch t.py --a 1", "num_processes", 2, "accelerate launch --num_processes 2 t.py --a 1"),
        ("accelerate launch --config_file z t.py", "num_processes", 2, "accelerate launch --config_file z --num_processes 2 t.py"),
        ("accelerate launch \\\n  --config_file z \\\n  t.py", "num_processes", 2,
         "accelerate launch \\\n  --config_file z \\\n  --num_processes 2 \\\n  t.py"),
        ("accelerate launch --multi_gpu t.py", "multi_gpu", False, "accelerate launch t.py"),
        ("accelerate launch t.py", "multi_gpu", True, "accelerate launch --multi_gpu t.py"),
        ("torchrun --nproc-per-node=2 t.py", "nproc_per_node", 4, "torchrun --nproc-per-node=4 t.py"),
        ("trl sft --config r.yaml", "num_processes", 4, "trl sft --config r.yaml --num_processes 4"),
    ],
)  # fmt: skip
def test_options_of_the_launcher(before: str, name: str, value: object, after: str) -> None:
    assert edited(before + "\n", ("set", name, value), of="starter") == after + "\n"


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("--k '{\"a\": 1}'", ("set", "k", 2, ("a",)), "--k '{\"a\": 2}'"),
        ("--k '{\"a\": 1}'", ("set", "k", "x", ("b",)), '--k \'{"a": 1, "b": "x"}\''),
        ("--k '{\"a\": 1}'", ("rename", "k", "c", ("a",)), "--k '{\"c\": 1}'"),
        ('--k \'{"a": 1, "b": 2}\'', ("drop", "k", None, ("a",)), "--k '{\"b\": 2}'"),
        ("--k '{\"a\": 1}'", ("drop", "k", None, ("a",)), ""),
        ("--x 1", ("set", "k", "x", ("b",)), '--x 1 --k \'{"b": "x"}\''),
    ],
)
def test_mappings(before: str, change: tuple[object, ...], after: str) -> None:
    assert edited(f"python t.py {before}\n", change) == f"python t.py {after}".rstrip() + "\n"


@pytest.mark.parametrize(
    ("script", "change", "reason"),
    [
        ("python t.py --a 1", ("set", "a", None), "None cannot be given"),
        ("python t.py --a 1", ("set", "a", Source("x()")), "expression of Python"),
        ("python t.py --a 1", ("drop", "b"), "not given here"),
        ("python t.py --a 1 --a 2", ("drop", "a"), "given twice"),
        ("python t.py --a 1", ("move", "a"), "no place"),
        ("python t.py -- x", ("set", "a", 1), "“--”"),
        ("vllm serve M --port 1", ("set", "port", (1, 2)), "several values"),
        ("ssh h python t.py", ("set", "env.X", "1"), "ssh does not hand X on"),
        ("python t.py", ("drop", "env.X"), "not set here"),
        ("python t.py r.yaml", ("rename", "0", "x"), "without a name"),
        ("export X=1\npython t.py\npython u.py", ("drop", "env.X"), "other commands use X"),
        ('bash -c "python t.py --x \\"$Y\\" --a 1"', ("set", "a", 2), "by hand"),
        ("python t.py --b t(rue --a 1", ("set", "a", 2), "no shell"),
        ("python t.py --b t(rue --a 1", ("set", "b", "x"), "no shell"),
        ("A=\"--a 1\"\npython t.py $A\npython u.py $A", ("set", "a", 2), "by hand"),
    ],
)  # fmt: skip
def test_what_is_refused(script: str, change: tuple[object, ...], reason: str) -> None:
    with pytest.raises(CannotEdit, match=reason):
        edited(script + "\n", change)


def test_two_fixes_that_disagree() -> None:
    with pytest.raises(CannotEdit, match="two fixes want different text"):
        edited("python t.py --a 1\n", ("set", "a", 2), ("set", "a", 3))


def test_a_makefile() -> None:
    script = "N := 2\ntrain:\n\t@accelerate launch --num_processes 2 \\\n\t  t.py --a 1\n"
    after = "N := 2\ntrain:\n\t@accelerate launch --num_processes 4 \\\n\t  t.py --a 1 \\\n\t  --b 2\n"
    (found,) = launches(script, "Makefile")
    changes = [intent("set", found.starter, "num_processes", 4), intent("set", found.flags, "b", 2)]
    assert edit(Text("Makefile", script.encode()), changes) == after


def test_a_dockerfile() -> None:
    script = "FROM x\nENV CUDA_VISIBLE_DEVICES=0\nCMD python t.py --a 1\n"
    assert edited(script, ("set", "a", 2), path="Dockerfile") == script.replace("--a 1", "--a 2")


SCRIPTS = [
    "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M &\nCUDA_VISIBLE_DEVICES=1 python t.py --use_vllm --vllm_mode server\n",
    "#!/bin/bash\nset -e\nexport A=1 B='2 3'\nMODEL=${1:-Qwen}\nnohup env C=4 accelerate launch \\\n"
    "    --config_file \"z.yaml\" --num_processes=7 \\\n    src/grpo.py --config r.yaml \\\n    --lr=1e-5 --model $MODEL \\\n"
    "    --reward_funcs a b c --no_bf16 \\\n    > log 2>&1 &\nwait\n",
    "ARGS=\"--a 1 --b 'x y' --use_vllm\"\nL=(torchrun --nproc_per_node 8)\nif true; then\n  \"${L[@]}\" t.py $ARGS --c 2 || exit 1\nfi\n",
    "N=4\nfor s in 1 2; do\n\tdeepspeed --num_gpus $N t.py --seed $s --n $N --json '{\"a\": {\"b\": 1}}'  # été\ndone\n",
    "serve() {\n  CUDA_VISIBLE_DEVICES=\"$GPU\" setsid trl vllm-serve --model \"$M\" --port 8000 --enforce_eager &\n}\nserve\n",
]  # fmt: skip


def test_random_changes_do_what_they_say_and_nothing_else() -> None:
    generator = random.Random(11)
    done = 0
    for _ in range(400):
        script = generator.choice(SCRIPTS)
        found = generator.randrange(len(launches(script)))
        of = generator.choice(["flags", "starter"])
        site: Site = getattr(launches(script)[found], of)
        names = generator.sample([*site.arguments, "brand_new", "env.A", "env.NEW"], k=1)
        op = generator.choice(["set", "drop", "rename"])
        value = generator.choice([True, False, 3, 0.25, "x", "x y", "it's"]) if op == "set" else "renamed"
        change = intent(op, site, names[0], value if op != "drop" else None)
        try:
            after = edit(Text("run.sh", script.encode()), [change])
        except CannotEdit:
            continue
        done += 1
        assert takes(after), after
        result: Site = getattr(launches(after)[found], of)
        command = launches(after)[found].command
        holder = command.environment if names[0].startswith("env.") else result.arguments
        name = names[0].removeprefix("env.")
        if op == "drop":
            assert name not in holder
        elif op == "rename":
            assert name not in holder
            assert "renamed" in holder
        elif name in holder:
            read = holder[name].value
            assert isinstance(read, Known)
            assert read.value == (
                str(value) if isinstance(holder, dict) and names[0].startswith("env.") else value
            ) or (names[0].startswith("env.") and str(read.value).lower() == str(value).lower())
        else:
            assert value is False
        others = [key for key in site.arguments if key != name]
        assert [key for key in result.arguments if key not in (name, "renamed")] == others
        if op == "set":
            again = (
                edit(Text("run.sh", after.encode()), [intent(op, result, names[0], value)]) if name in holder else after
            )
            assert again == after
    assert done > 150


def test_broken_scripts_are_refused_or_edited_without_a_traceback() -> None:
    generator = random.Random(5)
    outcomes = {"edited": 0, "refused": 0}
    for _ in range(300):
        script = generator.choice(SCRIPTS)
        data = bytearray(script.encode())
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(data))
            data[at : at + generator.randrange(3)] = generator.choice(
                [b"", b'"', b"'", b"$(", b"\\", b"\r\n", b"(", b"\n", b"`"]
            )
        text = Text("run.sh", data.decode(errors="ignore").encode())
        for found in launches_of(shell.read(text)):
            for site in (found.flags, found.starter):
                name = generator.choice([*site.arguments, "brand_new", "env.A"])
                try:
                    edit(text, [intent(generator.choice(["set", "drop", "rename"]), site, name, "x")])
                    outcomes["edited"] += 1
                except CannotEdit:
                    outcomes["refused"] += 1
    assert outcomes["edited"] > 100
    assert outcomes["refused"] > 20
