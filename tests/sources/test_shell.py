"""What a launch file says: the words of its commands, what they are given, and what cannot be read."""

from __future__ import annotations

import random

import pytest

from trl_lint.model import Argument, Command, Known, Span, Unknown, Word
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.shell import commands_in, module_in, read
from trl_lint.sources.text import Text, Undecodable


def module(code: str, path: str = "run.sh") -> Module:
    return read(Text(path, code.encode()))


def commands(code: str, path: str = "run.sh") -> list[Command]:
    return list(module(code, path).commands)


def shown(word: Word) -> str:
    """A word in short: its text, `?` for what cannot be read, `~` behind a default that a caller may replace."""
    return "?" if word.text is None else word.text + ("~" if word.likely else "")


def lines(code: str, path: str = "run.sh") -> list[str]:
    return [" ".join(shown(word) for word in command.words) for command in commands(code, path)]


def last(code: str) -> str:
    return lines(code)[-1]


def why(code: str) -> str | None:
    return next(word.why for word in commands(code)[-1].words if word.text is None)


def given(argument: Argument) -> str:
    match argument.value:
        case Known(value=value):
            return str(value)
        case Unknown(likely=Known(value=value)):
            return f"{value}~"
    return "?"


def environment(command: Command) -> dict[str, str]:
    return {name: given(argument) for name, argument in command.environment.items()}


def covered(code: str, span: Span | None) -> str | None:
    return None if span is None else code.encode()[span.start : span.end].decode()


# words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("trl sft --lr 1e-5", ["trl", "sft", "--lr", "1e-5"]),
        ("trl sft \\\n  --lr 1e-5 \\\n  --bf16", ["trl", "sft", "--lr", "1e-5", "--bf16"]),
        ("trl sft \\\r\n  --lr 1e-5\r\n", ["trl", "sft", "--lr", "1e-5"]),
        ("trl sft --a 1  # a comment", ["trl", "sft", "--a", "1"]),
        ("trl sft > log 2>&1 < in", ["trl", "sft"]),
        ("trl sft 2>&1 | tee log", ["trl", "sft"]),
        ("""trl 'a b' "c d" e\\ f""", ["trl", "a b", "c d", "e f"]),
        ("""trl '{"backend":"nccl"}' "{\\"a\\": 1}" ""  ''""", ["trl", '{"backend":"nccl"}', '{"a": 1}', "", ""]),
        ("trl $'a\\tb' a\"b\"'c'd", ["trl", "a\tb", "abcd"]),
        ("pip install trl[vllm]==1.5.0 'torch>=2'", ["pip", "install", "trl[vllm]==1.5.0", "torch>=2"]),
        ("trl --template '{{ x }}' --日本 é", ["trl", "--template", "{{ x }}", "--日本", "é"]),
        ('trl "a\\\nb"', ["trl", "ab"]),
        ("trl --x=a=b @c %d http://h/?a=*", ["trl", "--x=a=b", "@c", "%d", "http://h/?a=*"]),
    ],
)
def test_words_are_what_the_shell_hands_over(code: str, words: list[str]) -> None:
    assert [word.text for word in commands(code)[0].words] == words


@pytest.mark.parametrize(
    ("before", "word", "result"),
    [
        ("X=a", "$X", "a"),
        ("X=a", "${X}", "a"),
        ("X=a", '"$X/b"', "a/b"),
        ("X='a b'", '"$X"', "a b"),
        ("X=a; Y=\"$X/b\"; Z=$Y/c", "$Z", "a/b/c"),
        ("export X=a", "$X", "a"),
        ("declare -r X=a", "$X", "a"),
        ("readonly X=a", "$X", "a"),
        ("X=a Y=b", "$X$Y", "ab"),
        ("X=a; X=b", "$X", "b"),
        ("X=a; X+=b", "$X", "ab"),
        ("X=a; B=b", "recipes/$X/$B/c_$X.yaml", "recipes/a/b/c_a.yaml"),
        ("X=a; B=b; Y=x/$X/$B/d", "$Y", "x/a/b/d"),
        ("X=a; export Y=x/$X/$X/d", "$Y", "x/a/a/d"),
        ("X=a", "$X:$X/b", "a:a/b"),
        ("X=a", "--model=${X}", "--model=a"),
        ("", "${X:-d}", "d~"),
        ("", "${X-d}", "d~"),
        ("", "${X:=d}", "d~"),
        ("", '"${X:-"d e"}"', "d e~"),
        ("Y=y", "${X:-$Y}", "y~"),
        ("", "${X:-${Y:-d}}", "d~"),
        ("X=a", "${X:-d}", "a"),
        ("X=", "${X:-d}", "d"),
        ("X=", '"$X"', ""),
        (": ${X:=d}", "$X", "d~"),
        ("X=a", "${X:+b}", "b"),
        ("N=8", "$((N - 1))", "7"),
        ("N=8", "$(( ($N+1) * 2 / -4 ))", "-4"),
        ("", "$((2*3))", "6"),
        ("N=${N:-8}", "$((N/2))", "4~"),
        ("A=(a b)", "${A[1]}", "b"),
        ("A=(a b)", "$A", "a"),
        ("A=(a b)", '"${A[*]}"', "a b"),
        ("A=(a b)", "${#A[@]}", "2"),
        ('[ -z "$X" ] && X=8', "$X", "8~"),
        ('if [ -z "${X}" ]; then X=8; fi', "$X", "8~"),
        ("for x in only; do Y=$x; done", "$Y", "only"),
        ("if a; then X=1; else X=1; fi", "$X", "1"),
        ("X=1; if a; then X=2; exit 1; fi", "$X", "1"),
        ("X=1; (X=2); ls | X=3", "$X", "1"),
        ("X=1; while [ $# -gt 0 ]; do case $1 in --x) X=$2; shift 2;; *) exit 1;; esac; done", "$X", "1~"),
        ("X=1; while getopts x: o; do X=$OPTARG; done", "$X", "1~"),
        ("set -- a b", "$2", "b"),
        ("f() { local X=2; Y=3; }; X=1; f", "$X$Y", "13"),
    ],
)  # fmt: skip
def test_a_word_that_can_be_read(before: str, word: str, result: str) -> None:
    assert last(f"{before}\ntrl {word}") == f"trl {result}"


@pytest.mark.parametrize(
    ("before", "word", "reason"),
    [
        ("", "$MODEL", "$MODEL is not set in this file"),
        ("", "$HOME/x", "$HOME is not set in this file"),
        ("", "$1", "$1 is given by the caller"),
        ("", '"$@"', "$@ is given by the caller"),
        ("", "$!", "$! is known only while it runs"),
        ("", "$(nvidia-smi -L | wc -l)", "`nvidia-smi -L | wc -l` decides"),
        ("", "`nproc`", "`nproc` decides"),
        ("X=$(nproc)", "$X", "`nproc` decides"),
        ("X=a.b", "${X%.*}", "`${X%.*}` is worked out by the shell"),
        ("", "$((N - 1))", "$N is not set in this file"),
        ("", "$((1 / 0))", "it divides by zero"),
        ("", "~/x", "~ is the home of whoever runs it"),
        ("", "data/*.json", "`data/*.json` names files of the machine it runs on"),
        ("", "{a,b}", "braces are expanded by the shell"),
        ("X=1; if a; then X=2; fi", "$X", "$X depends on the branch at line 1"),
        ("if a; then X=2; fi", "$X", "$X is set on some branches only (line 1)"),
        ("case $Y in a) X=1;; b) X=2;; esac", "$X", "$X is set on some branches only (line 1)"),
        ("X=1; while a; do X=$((X+1)); done", "$X", "$X depends on the branch at line 1"),
        ("read -r X", "$X", "`read` decides what $X is"),
        ("X=1; unset X", "$X", "$X is not set in this file"),
        ("declare -A X; X[a]=1", "$X", "$X is filled item by item"),
        ('MODEL=""; while a; do case $1 in -m) MODEL="$2";; esac; done', "r/$MODEL/c", "$MODEL depends on the branch at line 1"),
        ("A=($(hosts))", "${#A[@]}", "`${#A[@]}` is worked out by the shell"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(before: str, word: str, reason: str) -> None:
    assert why(f"{before}\ntrl {word}") == reason


def test_a_loop_variable_is_unknown_in_its_body() -> None:
    code = "for g in 0 1; do\n  trl sft --seed $g\ndone"
    assert lines(code) == ["trl sft --seed ?"]
    assert commands(code)[0].words[3].why == "$g changes in the loop at line 1"
    assert not commands(code)[0].conditional  # it has items: it runs


# places ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "index", "span", "binding", "plain"),
    [
        ("trl --lr 1e-5", 2, "1e-5", None, True),
        ('trl --lr "1e-5"', 2, '"1e-5"', None, True),
        ("LR=1e-5\ntrl --lr $LR", 2, "$LR", "1e-5", True),
        ('LR="1e-5"\ntrl --lr "${LR}"', 2, '"${LR}"', '"1e-5"', True),
        ("LR=1e-5\nLR=2e-5\ntrl --lr $LR", 2, "$LR", None, True),
        ("LR=1e-5\ntrl --lr=$LR", 1, "--lr=$LR", None, True),
        ("LR=${LR:-1}\ntrl --lr $LR", 2, "$LR", None, True),
        ('A="--é x --lr 1e-5"\ntrl $A', 4, "1e-5", None, True),
        ('A="--lr 1"\nA="$A --bf16"\ntrl $A', 3, "--bf16", None, True),
        ('A="--lr 1"\nA="--lr 2"\ntrl $A', 2, "2", None, False),
        ('A="--lr \\\n  1"\ntrl $A', 2, "1", None, True),
        ("A=(--lr '1')\ntrl \"${A[@]}\"", 2, "'1'", None, True),
        ("A=(--lr 1)\nA=(--lr 2)\ntrl ${A[@]}", 2, "2", None, False),
        ('trl "$@"', 1, '"$@"', None, False),
        ("X=a\ntrl  é  'x'$X", 2, "'x'$X", None, True),
    ],
)  # fmt: skip
def test_where_a_word_stands(code: str, index: int, span: str, binding: str | None, plain: bool) -> None:
    word = commands(code)[0].words[index]
    assert covered(code, word.span) == span
    assert covered(code, word.binding) == binding
    assert word.plain is plain


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", "# 日本😀\n".encode()])
def test_spans_hold_with_every_line_end_and_beginning(start: bytes, end: str) -> None:
    data = start + f"A=1 trl sft \\{end} --lr 'é' --x{end}".encode()
    [command] = read(Text("x.sh", data)).commands
    assert data[command.span.start : command.span.end] == f"A=1 trl sft \\{end} --lr 'é' --x".encode()
    assert [data[w.span.start : w.span.end].decode() for w in command.words] == ["trl", "sft", "--lr", "'é'", "--x"]


def test_a_command_runs_from_its_first_prefix_to_its_last_word() -> None:
    code = "cd x && A=1 B=2 trl sft --x > log &\n"
    command = commands(code)[1]
    assert covered(code, command.span) == "A=1 B=2 trl sft --x"
    assert command.background


# arguments that accumulate --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('A="--x 1  --y"\ntrl $A', "trl --x 1 --y"),
        ('A="--x 1"\nA+=" --y"\ntrl $A', "trl --x 1 --y"),
        ('A=""\ntrl $A sft', "trl sft"),
        ("A=(--x 1)\nA+=(--y)\ntrl \"${A[@]}\"", "trl --x 1 --y"),
        ("A=(accelerate launch)\n\"${A[@]}\" train.py", "accelerate launch train.py"),
        ('C="accelerate launch train.py"\n$C --x', "accelerate launch train.py --x"),
        ("A=(--x 1)\nif [ -n $Z ]; then A+=(--y); fi\ntrl \"${A[@]}\" --z", "trl --x 1 ? --z"),
        ("A=\"--x 1\"\nif [ -n $Z ]; then A=\"$A --y\"; fi\ntrl $A --z", "trl --x 1 ? --z"),
        ("A=(--x 1)\nfor i in $L; do A+=(--y $i); done\ntrl \"${A[@]}\"", "trl --x 1 ?"),
        ("A=()\ntrl ${A[@]+\"${A[@]}\"}", "trl"),
        ("f() { trl sft \"$@\"; }\nf --x 1\n", "trl sft --x 1"),
        ("f() { trl sft \"$@\"; }\nf --x 1\nf --y\n", "trl sft --x 1|trl sft --y"),
        ("run() { echo \"+ $*\"; nohup \"$@\"; }\nrun trl sft\nrun trl dpo", "echo ?|nohup trl sft|nohup trl dpo"),
    ],
)  # fmt: skip
def test_flags_that_are_put_together(code: str, words: str) -> None:
    assert "|".join(lines(code)) == words


# control flow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "conditional"),
    [
        ("trl", False),
        ("cd x && trl", False),
        ("if a; then trl; fi", True),
        ("if a; then b; elif c; then d; else trl; fi", True),
        ("case $x in a) trl;; esac", True),
        ("while a; do trl; done", True),
        ("until a; do trl; done", True),
        ("for x in $L; do trl; done", True),
        ("for ((i=0;i<3;i++)); do trl; done", True),
        ("[[ -n $X ]] && trl", True),
        ("cmd || trl", True),
        ("{ trl; }", False),
        ("(trl)", False),
        ("! trl", False),
        ("if trl; then b; fi", False),
        ("X=$(trl)", False),
        ("f() { trl; }", True),
        ("f() { trl; }; f", False),
    ],
)  # fmt: skip
def test_what_may_not_run(code: str, conditional: bool) -> None:
    [command] = [c for c in commands(code) if c.words[0].text == "trl"]
    assert command.conditional is conditional


@pytest.mark.parametrize(
    "code",
    ["trl & ", "nohup trl > log 2>&1 &", "{ trl; } &", "(trl) &", "f() { trl & }; f", "tmux new -d -s x 'trl'",
     "tmux new-session -d -s x -n y trl", "tmux send-keys -t x 'trl' C-m", "screen -dmS x bash -c 'trl'", "bash -c 'trl &'"],
)  # fmt: skip
def test_what_the_shell_does_not_wait_for(code: str) -> None:
    assert [c.background for c in commands(code)] == [True]


def test_a_function_is_read_where_it_is_called() -> None:
    code = 'serve() {\n  CUDA_VISIBLE_DEVICES="$1" setsid trl vllm-serve --port $PORT &\n}\nPORT=8000\nserve 3\n'
    [command] = commands(code)
    assert [shown(word) for word in command.words] == ["setsid", "trl", "vllm-serve", "--port", "8000"]
    assert (command.function, command.background, environment(command)) == (
        "serve",
        True,
        {"CUDA_VISIBLE_DEVICES": "3"},
    )
    assert covered(code, command.environment["CUDA_VISIBLE_DEVICES"].place.binding) == "3"


def test_a_function_of_several_calls_knows_none_of_their_arguments() -> None:
    code = "serve() { CUDA_VISIBLE_DEVICES=$1 trl vllm-serve --port $PORT; }\nPORT=1\nserve 0\nPORT=2\nserve 1\n"
    [command] = commands(code)
    assert environment(command) == {"CUDA_VISIBLE_DEVICES": "?"}
    assert command.words[-1].why == "$PORT differs between the calls of serve"


# environment ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("A=1 trl", {"A": "1"}),
        ("A=1\ntrl", {}),
        ("export A=1\ntrl", {"A": "1"}),
        ("A=1\nexport A\ntrl", {"A": "1"}),
        ("export A=1\nA=2\ntrl", {"A": "2"}),
        ("export A=1\nA=2 trl", {"A": "2"}),
        ("A=2 x\ntrl", {}),
        ("export A=1 B=\"2 3\"\ntrl", {"A": "1", "B": "2 3"}),
        ("declare -x A=1\ntrl", {"A": "1"}),
        ("set -a\nA=1\nset +a\nB=2\ntrl", {"A": "1"}),
        ("export A=1\nunset A\ntrl", {}),
        ("export A=1\nexport -n A\ntrl", {}),
        ("env A=1 trl", {"A": "1"}),
        ("nohup env -u B A=1 C='x y' trl", {"A": "1", "C": "x y"}),
        ("export B=1\nenv -u B trl", {}),
        ("export B=1\nenv -i A=1 trl", {"A": "1"}),
        ("sudo A=1 trl", {"A": "1"}),
        ("docker run -e A=1 --env B=2 img trl", {"A": "1", "B": "2"}),
        ("export A=${A:-2}\ntrl", {"A": "2~"}),
        ("export A=$B\ntrl", {"A": "?"}),
        ("X=1\nexport A=$X\ntrl", {"A": "1"}),
        ("if a; then export A=1; fi\ntrl", {"A": "?"}),
        ("CUDA_VISIBLE_devices=0 trl", {"CUDA_VISIBLE_devices": "0"}),
        ("CUDA_VISIBLE_DEVICES= trl", {"CUDA_VISIBLE_DEVICES": ""}),
        ("export A=1\nbash -c 'trl'", {"A": "1"}),
        ("export A=1\nssh h 'trl'", {}),
    ],
)  # fmt: skip
def test_what_a_command_is_given(code: str, expected: dict[str, str]) -> None:
    command = next(c for c in reversed(commands(code)) if any(w.text == "trl" for w in c.words))
    assert environment(command) == expected


def test_where_the_environment_is_written() -> None:
    code = "X='é'\nexport A=$X B=2\ncd y && C=\"3\" env D=4 trl\n"
    command = commands(code)[1]
    places = {name: argument.place for name, argument in command.environment.items()}
    assert {name: covered(code, place.whole) for name, place in places.items()} == {
        "A": "A=$X", "B": "B=2", "C": 'C="3"', "D": "D=4",
    }  # fmt: skip
    assert {name: covered(code, place.value) for name, place in places.items()} == {
        "A": "$X", "B": "2", "C": '"3"', "D": "4",
    }  # fmt: skip
    assert {place.kind for place in places.values()} == {"env"}
    assert covered(code, places["A"].binding) == "'é'"
    assert places["B"].container == code.encode().index(b"export")
    assert places["C"].container == places["D"].container == code.encode().index(b'C="3"')


def test_an_export_on_one_branch_is_conditional() -> None:
    argument = commands("if a; then export A=1; fi\ntrl")[1].environment["A"]
    assert argument.conditional
    inside = commands("if a; then export A=1; trl; fi")[1].environment["A"]
    assert (given(inside), inside.conditional) == ("1", False)


def test_directives_of_the_batch_system() -> None:
    code = (
        "#!/bin/bash\n#SBATCH --job-name=é\n#SBATCH --gres=gpu:a100:4\n#SBATCH -N 2 --gpus-per-node=4 # why\n"
        "##SBATCH --nodes=9\n#SBATCH --exclusive\n\nsrun trl sft\n#SBATCH --nodes=7\n"
    )
    [command] = commands(code)
    assert environment(command) == {
        "#SBATCH job-name": "é", "#SBATCH gres": "gpu:a100:4", "#SBATCH nodes": "2",
        "#SBATCH gpus-per-node": "4", "#SBATCH exclusive": "",
    }  # fmt: skip
    place = command.environment["#SBATCH gres"].place
    assert (covered(code, place.whole), covered(code, place.value)) == ("#SBATCH --gres=gpu:a100:4", "gpu:a100:4")


# shells in shells -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected", "quoted"),
    [
        ("bash -c 'trl sft --x'", ["trl sft --x"], False),
        ("bash -lc 'cd x && trl sft'", ["cd x", "trl sft"], False),
        ('bash -c "trl sft --m \\"a b\\""', ["trl sft --m a b"], True),
        ('M=a; bash -c "trl sft --m $M"', ["trl sft --m a"], True),
        ("M=a; bash -c 'trl sft --m $M'", ["trl sft --m ?"], False),
        ("export M=a; bash -c 'trl sft --m $M'", ["trl sft --m a"], False),
        ("nohup bash -c 'trl sft' &", ["trl sft"], False),
        ("docker run --gpus all img bash -c 'trl sft'", ["trl sft"], False),
        ("srun -N1 bash -c 'trl sft'", ["srun -N1 trl sft"], False),
        ("ssh -p 22 host 'cd x && trl sft'", ["ssh -p 22 host cd x", "ssh -p 22 host trl sft"], False),
        ("ssh host trl sft --x", ["ssh host trl sft --x"], False),
        ("ssh host <<'EOF'\ntrl sft\nEOF\n", ["ssh host trl sft"], False),
        ("bash <<'EOF'\ntrl sft\ntrl dpo\nEOF\n", ["trl sft", "trl dpo"], False),
        ("bash -s <<-EOF\n\ttrl sft\n\tEOF\n", ["trl sft"], False),
        ("sbatch --nodes=1 --wrap='trl sft'", ["trl sft"], False),
        ("sbatch --wrap \"trl sft\"", ["trl sft"], False),
        ("M=a\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=2\ntrl sft --m $M --n \\${N:-3}\nEOF\n", ["trl sft --m a --n 3~"], True),
        ("eval 'trl sft'", ["trl sft"], False),
        ('C="trl sft --x"; eval $C', ["trl sft --x"], False),
        ('C="trl sft --x"; eval "$C --y"', ["trl sft --x --y"], True),
        ("eval X=1; trl $X", ["trl 1"], False),
        ("tmux new -d -s x \"cd /y && CUDA_VISIBLE_DEVICES=0 trl vllm-serve\"", ["cd /y", "trl vllm-serve"], False),
        ("bash run.sh", ["bash run.sh"], False),
        ("echo 'bash -c x'", ["echo bash -c x"], False),
    ],
)  # fmt: skip
def test_a_script_inside_a_command(code: str, expected: list[str], quoted: bool) -> None:
    assert lines(code) == expected
    assert {command.quoted for command in commands(code)} == {quoted}


def test_words_of_an_inner_script_stand_in_the_outer_file() -> None:
    code = "LR=1e-5\nbash -c \"é=1; trl sft --lr $LR --x 'a'\"\n"
    [command] = commands(code)
    assert [covered(code, word.span) for word in command.words] == ["trl", "sft", "--lr", "$LR", "--x", "'a'"]
    assert covered(code, command.words[3].binding) == "1e-5"


def test_directives_of_an_inner_script() -> None:
    code = "sbatch <<EOF\n#SBATCH --nodes=2\ntrl sft\nEOF\n"
    assert environment(commands(code)[0]) == {"#SBATCH nodes": "2"}


# files that a script writes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "cat > run.sh <<'EOF'\ntrl sft --x 1\nEOF\n",
        "cat <<'EOF' > run.sh\ntrl sft --x 1\nEOF\n",
        "cat <<EOF | tee run.sh\ntrl sft --x 1\nEOF\n",
        "sudo tee run.sh <<EOF\ntrl sft --x 1\nEOF\n",
        "tee run.sh > /dev/null <<EOF\ntrl sft --x 1\nEOF\n",
        "echo 'trl sft --x 1' > run.sh\n",
        "echo 'trl sft --x 1' | tee run.sh\n",
        "printf 'trl sft --x 1\\n' > run.sh\n",
        "echo -e '\\ntrl sft --x 1' > run.sh\n",
        "echo '#!/bin/sh' > run.sh\necho 'trl sft --x 1' >> run.sh\n",
        "{ echo 'cd y'; echo 'trl sft --x 1'; } > run.sh\n",
        "D=run\nN=1\ncat > $D.sh <<EOF\ntrl sft --x $N\nEOF\n",
    ],
)
def test_a_file_is_read_under_the_name_it_gets(code: str) -> None:
    written = module(code).written
    assert list(written) == ["run.sh"]
    assert [w.text for w in written["run.sh"].commands[-1].words] == ["trl", "sft", "--x", "1"]


def test_a_python_file() -> None:
    code = "cat > train.py <<'EOF'\nfrom trl import GRPOConfig\nGRPOConfig(beta=0.1)\nEOF\n"
    [site] = [s for s in module(code).written["train.py"].sites if s.kind == "config"]
    assert (site.name, covered(code, site.arguments["beta"].place.value), site.span.line) == ("GRPOConfig", "0.1", 3)


def test_a_line_that_is_not_known_is_left_out() -> None:
    code = "cat > run.sh <<EOF\ntrl sft --x $N\ntrl dpo --y\nEOF\n"
    written = module(code).written["run.sh"]
    assert [[w.text for w in c.words] for c in written.commands] == [["trl", "dpo", "--y"]]
    assert covered(code, written.commands[0].span) == "trl dpo --y"


@pytest.mark.parametrize(
    "code",
    [
        "cat > $F <<EOF\ntrl\nEOF\n",
        "echo trl >> run.sh\n",
        "if a; then echo trl > run.sh; else echo x > run.sh; fi\n",
        "cat > notes.txt <<EOF\ntrl\nEOF\n",
        "cat > train.py <<EOF\n)(\nEOF\n",
    ],
)
def test_what_is_no_known_file(code: str) -> None:
    assert module(code).written == {}


# how servers and trainers are launched (shapes seen in public repositories) -------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M\nCUDA_VISIBLE_DEVICES=1 python train.py",
            ["0: trl vllm-serve --model M", "1: python train.py"],
        ),
        (
            "nohup env CUDA_VISIBLE_DEVICES=0 trl vllm-serve > log 2>&1 & VLLM_PID=$!\n"
            "nohup env NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes=3 t.py",
            ["0: nohup env CUDA_VISIBLE_DEVICES=0 trl vllm-serve &",
             "1,2,3: nohup env NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes=3 t.py"],
        ),
        (
            "CUDA_VISIBLE_DEVICES=7 trl vllm-serve &\ntrap cleanup EXIT\nuntil curl -s h/health; do sleep 1; done",
            ["7: trl vllm-serve &", "trap cleanup EXIT", "curl -s h/health", "sleep 1"],
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --tensor-parallel-size 4 &\n"
            "CUDA_VISIBLE_DEVICES=4,5,6,7 trl grpo --config r.yaml",
            ["0,1,2,3: trl vllm-serve --tensor-parallel-size 4 &", "4,5,6,7: trl grpo --config r.yaml"],
        ),
        (
            'PORT=8000\nexport CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-2}"\n'
            'trl vllm-serve --model "$MODEL_PATH" --port "$PORT"',
            ["2~: trl vllm-serve --model ? --port 8000"],
        ),
        (
            "source lib.sh\nLAUNCHER=(accelerate launch --num_processes 2)\nlaunch_trl_vllm $DEV M\n"
            '"${LAUNCHER[@]}" t.py --port $(python -c "print(1)")',
            ["source lib.sh", "launch_trl_vllm ? M", "python -c print(1)", "accelerate launch --num_processes 2 t.py --port ?"],
        ),
        (
            'tmux new -d -s x "cd /w && CUDA_VISIBLE_DEVICES=0 python -m trl.scripts.vllm_serve --model M"',
            ["cd /w &", "0: python -m trl.scripts.vllm_serve --model M &"],
        ),
        (
            "PY=python3\nCUDA_VISIBLE_DEVICES=1 HF_HOME=/h setsid nohup $PY -m trl.scripts.vllm_serve "
            "--gpu_memory_utilization 0.82 > l 2>&1 < /dev/null &",
            ["1: setsid nohup python3 -m trl.scripts.vllm_serve --gpu_memory_utilization 0.82 &"],
        ),
        (
            "VLLM_SERVER_DEV_MODE=1 vllm serve M --weight-transfer-config '{\"backend\":\"nccl\"}'",
            ['vllm serve M --weight-transfer-config {"backend":"nccl"}'],
        ),
        (
            "# CUDA_VISIBLE_DEVICES=0\ntrl vllm-serve --model M --data-parallel-size 8",
            ["trl vllm-serve --model M --data-parallel-size 8"],
        ),
        (
            "GPU_COUNT=4\nNUM_PROCESSES=$((GPU_COUNT-1))\naccelerate launch --num_processes $NUM_PROCESSES t.py --vllm_device cuda:$NUM_PROCESSES",
            ["accelerate launch --num_processes 3 t.py --vllm_device cuda:3"],
        ),
        (
            "GPU_COUNT=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node $((GPU_COUNT - 1)) t.py",
            ["nvidia-smi -L", "wc -l", "torchrun --nproc_per_node ? t.py"],
        ),
        (
            # open-r1 slurm/train.slurm: the shape depends on the recipe, flags accumulate, the last node serves
            'TP=1\nUSE_VLLM="false"\nif grep -q "use_vllm: true" "$C"; then\n  USE_VLLM="true"\nfi\n'
            'if [[ "$USE_VLLM" == "true" ]]; then\n  VLLM_NODE=${NODELIST[-1]}\n'
            "  srun --nodelist=$VLLM_NODE trl vllm-serve --tensor_parallel_size $TP &\n"
            '  OPTIONAL_ARGS="$OPTIONAL_ARGS --vllm_server_host=$VLLM_NODE"\nfi\n'
            'export CMD=" \\\n  grpo.py --config c.yaml $OPTIONAL_ARGS\n  "\n'
            'export LAUNCHER="ACCELERATE_LOG_LEVEL=info accelerate launch \\\n  --num_machines 2 \\\n  "\n'
            'srun --wait=60 bash -c "$LAUNCHER $CMD" 2>&1',
            ["grep -q use_vllm: true ?", "srun ? trl vllm-serve --tensor_parallel_size 1 &",
             "srun --wait=60 accelerate launch --num_machines 2 grpo.py --config c.yaml ?"],
        ),
        (
            # a Kubernetes job: the accelerate config is echoed, the arguments come from outside
            'echo "compute_environment: LOCAL_MACHINE" > acc.txt\nexec accelerate launch --config_file acc.txt sft.py "$@"',
            ["echo compute_environment: LOCAL_MACHINE", "exec accelerate launch --config_file acc.txt sft.py ?"],
        ),
        (
            # dstack: a script of another repository, its flags abbreviated
            "git clone https://h/r\ncd r && accelerate launch --num_machines=$DSTACK_NODES_NUM t.py --max_seq_len 1024",
            ["git clone https://h/r", "cd r", "accelerate launch ? t.py --max_seq_len 1024"],
        ),
        (
            # code that writes a notebook: no command of this file
            "python - <<'EOF'\nnb = \"\"\"!trl vllm-serve --model M\"\"\"\nEOF\n",
            ["python -"],
        ),
    ],
)  # fmt: skip
def test_how_people_launch(code: str, expected: list[str]) -> None:
    found = []
    for command in commands(code):
        devices = environment(command).get("CUDA_VISIBLE_DEVICES")
        words = " ".join(shown(word) for word in command.words)
        found.append((f"{devices}: " if devices else "") + words + (" &" if command.background else ""))
    assert found == expected


# other kinds of file --------------------------------------------------------------------------------------------------


def test_a_makefile() -> None:
    code = (
        "MODEL ?= Qwen/Qwen3\nGPUS := 0,1  # two\nARGS = --lr 1e-5 \\\n  --bf16\nexport HF_HOME = /x\n.PHONY: train\n"
        "train: dep\n\t@CUDA_VISIBLE_DEVICES=$(GPUS) trl sft --m $(MODEL) $(ARGS) \\\n\t\t--port $(or $(PORT),8000) $@ $$HOME\n"
        "\t-for i in 1 2; do trl vllm-serve $$i & done\nVAR = late\n"
    )
    first, second = commands(code, "Makefile")
    assert [shown(word) for word in first.words] == (
        ["trl", "sft", "--m", "Qwen/Qwen3~", "--lr", "1e-5", "--bf16", "--port", "8000~", "?", "?"]
    )
    assert environment(first) == {"HF_HOME": "/x", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert covered(code, first.environment["CUDA_VISIBLE_DEVICES"].place.whole) == "CUDA_VISIBLE_DEVICES=$(GPUS)"
    assert [covered(code, word.span) for word in first.words[2:6]] == ["--m", "$(MODEL)", "--lr", "1e-5"]
    assert first.words[9].why == "make decides what $@ is"
    assert (second.background, second.words[2].why) == (True, "$i changes in the loop at line 10")


def test_a_dockerfile() -> None:
    code = (
        'FROM x\nARG MODEL=Qwen\nENV CUDA_VISIBLE_devices=0 B="x y"\nENV HF_HOME /data\n'
        "RUN --mount=type=cache pip install trl==0.9 && \\\n    # why\n    trl sft --m $MODEL\n"
        'RUN <<EOF\ntrl dpo\nEOF\nENTRYPOINT ["bash", "-c", "trl \\"kto\\""]\n'
    )
    found = commands(code, "docker/Dockerfile.gpu")
    assert [" ".join(shown(w) for w in c.words) for c in found] == (
        ["pip install trl==0.9", "trl sft --m Qwen~", "trl dpo", "trl kto"]
    )
    assert environment(found[0]) == {"CUDA_VISIBLE_devices": "0", "B": "x y", "HF_HOME": "/data"}
    assert covered(code, found[1].words[0].span) == "trl"
    assert (covered(code, found[3].words[1].span), found[3].quoted) == ('\\"kto\\"', True)


def test_entrypoint_and_command_are_one() -> None:
    assert lines('FROM x\nCMD ["sft", "--x"]\nENTRYPOINT ["trl"]\n', "Dockerfile") == ["trl sft --x"]
    assert lines("FROM x\nCMD trl sft --x\n", "Dockerfile") == ["trl sft --x"]
    assert lines('FROM x\nCMD ["a"]\nFROM y\nCMD ["b"]\n', "Dockerfile") == ["b"]


def test_an_env_file_runs_nothing() -> None:
    assert module("A=1\nB=$(trl sft)\n", "conf/.env").commands == ()


def test_a_part_of_another_file() -> None:
    code = "run: |\n    export A=é\n    trl sft \\\n      --lr 1\n    cat > c.sh <<EOF\n    trl dpo\n    EOF\nnext: 1\n"
    text = Text("job.yaml", code.encode())
    start, end = text.utf8.index(b"export"), text.utf8.index(b"next")
    found = commands_in(text, start, end)
    assert [[w.text for w in c.words] for c in found] == [["trl", "sft", "--lr", "1"], ["cat"]]
    assert covered(code, found[0].words[3].span) == "1"
    assert (found[0].span.line, environment(found[0])) == (3, {"A": "é"})
    written = module_in(text, start, end).written["c.sh"].commands
    assert [covered(code, c.span) for c in written] == ["trl dpo"]


def test_a_line_of_a_notebook_is_filled_in_by_python() -> None:
    text = Text("x.ipynb", b"!trl sft --m {model} --n $N --o '{}'\n")
    [command] = commands_in(text, 1, len(text.utf8))
    assert [shown(word) for word in command.words] == ["trl", "sft", "--m", "?", "--n", "?", "--o", "{}"]
    assert command.words[3].why == "Python fills in `{model}`"


# robustness -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("trl sft --x \\", ["trl sft --x"]),
        ("trl sft\nif a; then\ntrl dpo\n", ["trl sft", "trl dpo"]),
        ("trl sft\nfi\ntrl dpo\n", ["trl sft", "trl dpo"]),
        ("", []),
        ("\x00", []),
    ],
)
def test_a_broken_script_is_read_as_far_as_it_is_sound(code: str, expected: list[str]) -> None:
    assert [line for line in lines(code) if line.startswith("trl")] == expected


def outcome(code: str, path: str) -> str:
    try:
        return "read" if module(code, path).path == path else "?"
    except Unparsable as error:
        return str(error).split(" ")[0]


@pytest.mark.parametrize(
    "opening", ["(", "$(", "{ ", "if a; then ", '"$(', "a && ", "a | ", "${A:-", "$((1+", "bash -c '", "<<E\n", "'"]
)
def test_nesting_without_end_is_no_traceback(opening: str) -> None:
    for path in ("x.sh", "Makefile", "Dockerfile"):
        assert outcome(opening * 3000, path) in ("read", "line")


@pytest.mark.parametrize(
    "code",
    ['X="$X$X"\n' * 300 + "trl $X", 'X="$X --a 1"\n' * 1000 + "trl $X", "A+=(1 2)\n" * 3000 + 'trl "${A[@]}"',
     "X='" + "a " * 50_000 + "'\n" + "trl $X\n" * 100],
)  # fmt: skip
def test_values_do_not_grow_without_end(code: str) -> None:
    assert any(word.text is None for command in commands(code) for word in command.words)


def test_thousands_of_commands_and_exports() -> None:
    code = "".join(f"export A{i}=1\ntrl sft --x $A{i}\n" for i in range(3000))
    found = commands(code)
    assert len(found) == 3000
    assert len(found[-1].environment) == 200


def test_any_bytes() -> None:
    """Cut, mixed and spoilt scripts: an answer or one line, and spans that lie in the file."""
    chance = random.Random(7)
    seeds = [
        b'A=(a "b $X")\nf() { local Y=1; trl "$@" & }\nf ${A[@]} <<EOF\n$X \\$Y\nEOF\nif [ -z $X ]; then X=1; fi\n',
        b"M ?= a\nt: u\n\t@trl $(M) $$X \\\n\t  b; bash -c \"trl '$(M)'\"\n",
        b'FROM x\nENV A=1 B=$A\nRUN trl \\\n # c\n sft\nCMD ["trl", "a\\n"]\n',
        "é=1\ncat > x.py <<'E'\nfrom trl import GRPOConfig\nGRPOConfig('é')\nE\nsrun bash -c \"eval '$é 😀'\"\n".encode(),
    ]
    for round_ in range(400):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(6)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randrange(3)] = chance.choice(
                [b"\"", b"'", b"`", b"$(", b")", b"${", b"}", b"\\", b"\n", b"\r\n", b"\x00", b"\xff", "é".encode(), b"<<E", b"|", b"#"]
            )  # fmt: skip
        if round_ % 3 == 0:
            del data[chance.randrange(len(data) + 1) :]
        for path in ("x.sh", "Makefile", "Dockerfile"):
            try:
                found = read(Text(path, bytes(data)))
            except (Unparsable, Undecodable):
                continue
            for command in found.commands:
                for span in (command.span, *(word.span for word in command.words)):
                    assert 0 <= span.start <= span.end <= len(data), (path, bytes(data))
