"""The harness inside a user's process: scripts are started as a user starts them.

The tests with a stub trainer (``stub/``) run everywhere. Those with real TRL run for every interpreter that is named in
``TRL_LINT_TEST_PYTHONS`` (separated by ``:``), else for this one if it has TRL; without either they are skipped. To run them::

    python -m venv NEW && NEW/bin/pip install trl==1.16.0 torch
    python -m venv OLD && OLD/bin/pip install trl==0.19.1 transformers==4.52.4 torch
    TRL_LINT_TEST_PYTHONS=NEW/bin/python:OLD/bin/python pytest tests/probe/test_harness.py -k real
"""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "trl_lint" / "probe" / "harness"
STUB = Path(__file__).parent / "stub"
STEP = {"kind", "step", "time", "seconds", "between", "generation", "rollout", "tokens", "samples", "loss", "logs"}
STEP |= {"allocated", "reserved", "gpu_used", "host"}


def start(folder, script, *args, steps=4, before=(), python=sys.executable, probe=None, timeout=60, command=(), **env):
    """Run `script` under the harness: the finished process and, for each rank, its records."""
    (folder / "train.py").write_text(script)
    out = folder / "out-probe"
    settings = json.dumps({"out": str(out), "steps": steps, "seed": 42, "token": "0"}) if probe is None else probe
    environment = {**os.environ, "TRL_LINT_PROBE_PATIENCE": "20", **env}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (HARNESS, *before)))
    if settings:
        environment["TRL_LINT_PROBE"] = settings
    done = subprocess.run(
        [*(command or [python]), str(folder / "train.py"), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    ranks = {
        int(file.stem.split("-")[1]): [json.loads(line) for line in file.read_text().splitlines()]
        for file in out.glob("rank-*.jsonl")
    }
    return done, ranks


def stub(folder, script, *args, **kwargs):
    done, ranks = start(folder, script, *args, before=(*kwargs.pop("before", ()), STUB), **kwargs)
    return done, ranks.get(0, [])


def said(record):
    """Without the time."""
    return {key: value for key, value in record.items() if key != "time"}


def kinds(records):
    return [each["kind"] for each in records]


def steps_of(records):
    return [each for each in records if each["kind"] == "step"]


PLAIN = "from transformers import Trainer\nresult = Trainer().train()\nprint('AFTER', result)\n"


def test_counts_the_steps_and_leaves(tmp_path):
    done, records = stub(tmp_path, PLAIN)
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(records) == ["train", "step", "step", "step", "step", "end"]
    assert said(records[-1]) == {"kind": "end", "steps": 4}
    # Neither the end of train() nor what follows it; what the trainer opened is closed.
    assert done.stdout == "UNWOUND\n"


def test_a_step_says_what_the_contract_names(tmp_path):
    _, records = stub(tmp_path, PLAIN)
    first = steps_of(records)[0]
    assert set(first) == STEP
    assert first["step"] == 1
    assert first["loss"] == 1.5  # two micro-batches, each half of it
    assert first["tokens"] == 20  # 2 micro-batches x 2 rows x 5 that the mask lets through
    assert first["samples"] == 4
    assert first["generation"] is None
    assert first["allocated"] is None


def test_train_says_what_the_run_is(tmp_path):
    _, records = stub(tmp_path, PLAIN)
    train = records[0]
    assert (train["trainer"], train["config"]) == ("Trainer", "TrainingArguments")
    assert (train["rank"], train["world"], train["cycle"]) == (0, 1, 1)
    assert train["model"]["parameters"] == 20
    assert train["model"]["layers"] == 2
    assert train["versions"]["python"].startswith("3.")
    # As they were before the harness silenced anything; no list, no token.
    assert train["fields"]["max_steps"] == -1
    assert train["fields"]["eos_token"] == "<eos>"
    assert "report_to" not in train["fields"]
    assert "hub_token" not in train["fields"]


def test_nothing_is_saved_evaluated_pushed_or_reported(tmp_path):
    script = (
        "from transformers import Trainer, TrainingArguments, TrainerCallback\n"
        "class Greedy(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        "        control.should_save = control.should_evaluate = True\n"
        "        trainer.save_model(); trainer.push_to_hub(); trainer.create_model_card()\n"
        "        assert args.max_steps == -1 and args.total == 12\n"
        "args = TrainingArguments(push_to_hub=True, eval_on_start=True)\n"
        "trainer = Trainer(args, callbacks=[Greedy()])\n"
        "trainer.train()\n"
    )
    done, records = stub(tmp_path, script, steps=7)  # over the end of an epoch
    assert (done.returncode, done.stdout, done.stderr) == (0, "UNWOUND\n", "")
    assert said(records[-1]) == {"kind": "end", "steps": 7}
    assert records[0]["fields"]["push_to_hub"] is True


def test_a_training_shorter_than_the_probe(tmp_path):
    script = "from transformers import Trainer, TrainingArguments\nTrainer(TrainingArguments(total=2)).train()\nprint('AFTER')\n"
    done, records = stub(tmp_path, script)
    assert kinds(records) == ["train", "step", "step", "end"]
    assert records[-1]["steps"] == 2
    assert "AFTER" not in done.stdout


FAILS = (
    "from transformers import Trainer\n"
    "class Mine(Trainer):\n"
    "    def training_step(self, *args, **kwargs):\n"
    "        if self.state.global_step == 2:\n"
    "            raise ValueError('first line\\nsecond line')\n"
    "        return super().training_step(*args, **kwargs)\n"
)


def test_an_error_is_recorded_and_is_still_the_users(tmp_path):
    done, records = stub(tmp_path, FAILS + "Mine().train()\n")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: first line\nsecond line")
    assert kinds(records) == ["train", "step", "step", "error"]
    assert said(records[-1]) == {"kind": "error", "type": "ValueError", "message": "first line"}
    assert records[0]["class"] == "Mine"
    assert records[0]["trainer"] == "Trainer"


def test_after_an_error_no_later_train_is_run(tmp_path):
    script = FAILS + "try:\n    Mine().train()\nexcept ValueError:\n    Trainer().train()\nprint('AFTER')\n"
    done, records = stub(tmp_path, script)
    assert done.returncode == 1
    assert kinds(records) == ["train", "step", "step", "error", "note"]
    assert "AFTER" not in done.stdout


def test_a_second_process_of_the_job_does_not_train(tmp_path):
    script = (
        "import subprocess, sys\n"
        "if len(sys.argv) == 1:\n"
        "    for stage in 'ab':\n"
        "        print(stage, subprocess.run([sys.executable, __file__, stage]).returncode, flush=True)\n"
        "else:\n"
        "    from transformers import Trainer\n"
        "    Trainer().train()\n"
    )
    done, records = stub(tmp_path, script)
    assert done.stdout == "UNWOUND\na 0\nb 0\n"
    assert kinds(records) == ["train", "step", "step", "step", "step", "end", "note"]


@pytest.mark.parametrize("call", ["True", "'out/checkpoint-4'", "resume_from_checkpoint=True"])
def test_a_checkpoint_to_resume_from_is_ignored(tmp_path, call):
    done, records = stub(tmp_path, f"from transformers import Trainer\nTrainer().train({call})\n")
    assert "RESUMED" not in done.stdout
    assert {"kind": "note", "message": "resume_from_checkpoint was ignored"} in map(said, records)


@pytest.mark.parametrize("call", ["", "False", "None", "resume_from_checkpoint=None"])
def test_without_one_there_is_no_note(tmp_path, call):
    _, records = stub(tmp_path, f"from transformers import Trainer\nTrainer().train({call})\n")
    assert "note" not in kinds(records)


def test_a_trainer_that_starts_again_counts_again(tmp_path):
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        "class Mine(Trainer):\n"
        "    calls = 0\n"
        "    def training_step(self, *args, **kwargs):\n"
        "        self.calls += 1\n"
        "        if self.calls == 5:\n"
        "            raise MemoryError\n"
        "        return super().training_step(*args, **kwargs)\n"
        "Mine(TrainingArguments(retry=1)).train()\n"
    )
    _, records = stub(tmp_path, script, steps=3)
    assert kinds(records) == ["train", "step", "step", "note", "step", "step", "step", "end"]
    assert [each["step"] for each in steps_of(records)] == [1, 2, 1, 2, 3]


def test_generation_is_timed_and_tokens_are_the_trainers_own(tmp_path):
    script = "from trl.trainer.grpo_trainer import GRPOConfig, GRPOTrainer\nGRPOTrainer(GRPOConfig()).train()\n"
    _, records = stub(tmp_path, script)
    steps = steps_of(records)
    assert records[0]["trainer"] == "GRPOTrainer"
    assert records[0]["cycle"] == 2  # it generates for two optimizer steps at once
    assert [each["tokens"] for each in steps] == [100, 0, 100, 0]
    assert [each["generation"] > 0 for each in steps] == [True, False, True, False]
    assert all(each["rollout"] >= each["generation"] for each in steps)
    assert [each["logs"] for each in steps] == [{"reward": 0.0}, {}, {"reward": 1.0}, {}]
    assert steps[0]["samples"] == 4


def test_a_train_that_calls_super_does_first_what_it_does_first(tmp_path):
    script = "from trl.trainer.grpo_trainer import GRPOConfig, StagedTrainer\nStagedTrainer(GRPOConfig()).train()\n"
    done, records = stub(tmp_path, script)
    assert done.stdout == "STAGE ONE\nUNWOUND\n"
    assert said(records[-1]) == {"kind": "end", "steps": 4}


def test_a_loop_of_its_own(tmp_path):
    script = "from trl.trainer.ppo_trainer import PPOTrainer\nPPOTrainer().train()\nprint('AFTER')\n"
    done, records = stub(tmp_path, script)
    steps = steps_of(records)
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["loss"] for each in steps] == [0.5] * 4
    assert [round(each["logs"]["objective/kl"], 1) for each in steps] == [0.1, 0.2, 0.3, 0.4]
    assert all(each["seconds"] >= each["generation"] > 0 for each in steps)
    assert not {"TABLE", "CHECKPOINT", "TRAINED", "AFTER"} & set(done.stdout.split())


def test_a_gpu_is_synchronised_and_its_memory_read(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "class cuda:\n"
        "    calls = []\n"
        "    synchronize = staticmethod(lambda index: cuda.calls.append(index))\n"
        "    device_count = staticmethod(lambda: 3)\n"
        "    memory_reserved = staticmethod(lambda index: 7 * (index == 1))\n"
        "    max_memory_allocated = staticmethod(lambda index: 100 + index)\n"
        "    max_memory_reserved = staticmethod(lambda index: 200 + index)\n"
        "    mem_get_info = staticmethod(lambda index: (1000, 5000 + index))\n"
        "    reset_peak_memory_stats = staticmethod(lambda index: None)\n"
        "    get_device_name = staticmethod(lambda device: 'NVIDIA Stub')\n"
        "seeds = [42]\n"
        "initial_seed = lambda: seeds[-1]\n"
        "manual_seed = seeds.append\n"
        "class device:\n"
        "    type, index = 'cuda', 0\n"
        "    def __str__(self): return 'cuda:0'\n"
    )
    script = (
        "import torch\n"
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments()\n"
        "args.device = torch.device()\n"
        "Trainer(args).train()\n"
    )
    done, records = stub(tmp_path, script, before=(tmp_path,))
    assert done.stderr == ""
    assert (records[0]["gpu"], records[0]["device"]) == ("NVIDIA Stub", "cuda:0")
    # The fuller of the two that hold memory of this process; the third is not touched.
    one = steps_of(records)[0]
    assert (one["allocated"], one["reserved"], one["gpu_used"]) == (101, 201, 4001)
    assert "harness-error" not in kinds(records)


# ---- what the harness leaves alone


def test_it_is_inert_without_its_variable(tmp_path):
    script = (
        "import sys\n"
        "print(type(sys.meta_path[0]).__name__, 'json' in sys.modules, 'threading' in sys.modules)\n"
        "from transformers import Trainer\n"
        "print(Trainer.train.__module__, hasattr(Trainer.train, '__wrapped__'))\n"
    )
    done, records = stub(tmp_path, script, probe="", TRL_LINT_PROBE="")
    bare = subprocess.run(
        [sys.executable, "-c", script.splitlines()[0] + "\n" + script.splitlines()[1]], capture_output=True
    )
    assert done.stdout.splitlines()[0] == bare.stdout.decode().strip()
    assert done.stdout.splitlines()[1] == "transformers.trainer False"
    assert records == []


def test_with_it_nothing_heavy_is_imported(tmp_path):
    script = "import sys\nprint([n for n in ('torch', 'transformers', 'trl', 'json', 'typing') if n in sys.modules])\n"
    done, _ = stub(tmp_path, script)
    assert done.stdout == "[]\n"


def test_the_script_is_as_it_was(tmp_path):
    (tmp_path / "data.txt").write_text("beside")
    script = (
        "import inspect, pathlib, pickle, sys\n"
        "from transformers import Trainer\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], pathlib.Path(__file__).with_name('data.txt').read_text())\n"
        "    import transformers.trainer as module\n"
        "    print(type(module.__spec__.loader).__name__, 'resume_from_checkpoint' in str(inspect.signature(Trainer.train)))\n"
        "    print(pickle.loads(pickle.dumps(Trainer)) is Trainer, 'Trainer' in inspect.getsource(Trainer))\n"
    )
    done, records = stub(tmp_path, script, "--lr", "1e-5")
    assert done.stdout == "['--lr', '1e-5'] beside\nSourceFileLoader True\nTrue True\n"
    assert records == []


def test_spawned_children_stay_inert_and_the_parent_trains(tmp_path):
    script = (
        "import multiprocessing, random\n"
        "from transformers import Trainer\n"
        "def work(queue):\n"
        "    queue.put(random.random())\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    workers = [context.Process(target=work, args=(queue,)) for _ in range(2)]\n"
        "    [worker.start() for worker in workers]\n"
        "    print(len({queue.get() for _ in workers}), flush=True)\n"
        "    [worker.join() for worker in workers]\n"
        "    Trainer().train()\n"
    )
    done, records = stub(tmp_path, script)
    assert done.stdout == "2\nUNWOUND\n"  # two workers, two different numbers: not seeded
    assert said(records[-1]) == {"kind": "end", "steps": 4}


def test_workers_that_still_run_are_ended(tmp_path):
    script = (
        "import multiprocessing, time\n"
        "from transformers import Trainer\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))\n"
        "    worker.start()\n"
        "    print(worker.pid, flush=True)\n"
        "    Trainer().train()\n"
    )
    done, records = stub(tmp_path, script)
    assert said(records[-1]) == {"kind": "end", "steps": 4}
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout.split()[0]), 0)


def test_a_child_that_trains_is_measured(tmp_path):
    script = (
        "import multiprocessing\n"
        "from transformers import Trainer\n"
        "def work():\n"
        "    Trainer().train()\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    worker.start(); worker.join(); print(worker.exitcode)\n"
    )
    done, records = stub(tmp_path, script)
    assert done.stdout == "UNWOUND\n0\n"
    assert kinds(records)[-1] == "end"


def test_exit_handlers_run_and_finally_of_the_script_does_not(tmp_path):
    script = (
        "import atexit, tempfile\n"
        "from transformers import Trainer\n"
        "atexit.register(print, 'GOODBYE')\n"
        "folder = tempfile.TemporaryDirectory()\n"
        "print(folder.name)\n"
        "try:\n    Trainer().train()\nfinally:\n    print('SAVING')\n"
    )
    done, _ = stub(tmp_path, script)
    name, *rest = done.stdout.split()
    assert rest == ["UNWOUND", "GOODBYE"]
    assert not os.path.exists(name)


def test_what_hangs_in_ending_ends(tmp_path):
    script = (
        "import atexit, time\nfrom transformers import Trainer\natexit.register(time.sleep, 600)\nTrainer().train()\n"
    )
    done, records = stub(tmp_path, script, TRL_LINT_PROBE_PATIENCE="1")
    assert done.returncode == 0
    assert kinds(records)[-1] == "end"


def test_shuffling_without_a_seed_is_the_same_in_both_variants(tmp_path):
    script = "import random\nfrom transformers import Trainer\nprint(random.random(), flush=True)\nTrainer().train()\n"
    (tmp_path / "b").mkdir()
    one, _ = stub(tmp_path, script)
    two, _ = stub(tmp_path / "b", script)
    assert one.stdout == two.stdout


# ---- the user's own sitecustomize


def test_the_users_own_sitecustomize_runs_too(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nprint('OWN', __name__, sys.modules[__name__].__file__)\n")
    script = "import sitecustomize\nprint(sitecustomize.__file__)\n" + PLAIN
    done, records = stub(tmp_path, script, before=(own,))
    path = own / "sitecustomize.py"
    assert done.stdout.splitlines() == [f"OWN sitecustomize {path}", str(path), "UNWOUND"]
    assert kinds(records)[-1] == "end"
    bare, _ = stub(tmp_path, "", before=(own,), probe="", TRL_LINT_PROBE="")
    assert bare.stdout.startswith("OWN")


def test_an_own_one_that_raises_is_reported_by_python_and_the_probe_goes_on(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    done, records = stub(tmp_path, PLAIN, before=(own,))
    assert "RuntimeError: mine" in done.stderr
    assert kinds(records)[-1] == "end"


def test_an_own_one_that_imports_the_trainer_first(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import transformers.trainer\n")
    _, records = stub(tmp_path, PLAIN, before=(own,))
    assert kinds(records)[-1] == "end"


# ---- our own errors


@pytest.mark.parametrize("probe", ["no json", "[]", '{"steps": 4}', '{"out": "/dev/null/no", "steps": 4}'])
def test_an_error_of_ours_leaves_the_run_as_it_is(tmp_path, probe):
    done, records = stub(tmp_path, PLAIN, probe=probe)
    assert done.returncode == 0
    assert done.stdout.endswith("AFTER 12\n")
    assert "trl-lint probe: " in done.stderr
    assert records == []


def test_a_part_that_fails_takes_no_other_with_it(tmp_path):
    script = (
        "from transformers import Trainer\n"
        "class Odd(Trainer):\n"
        "    _metrics = property(lambda self: 1 / 0)\n"
        "    _total_train_tokens = 'many'\n"
        "class Model:\n"
        "    def parameters(self): raise RuntimeError('meta')\n"
        "trainer = Odd()\ntrainer.model = Model()\ntrainer.train()\n"
    )
    done, records = stub(tmp_path, script)
    assert done.returncode == 0
    assert {each.get("where") for each in records if each["kind"] == "harness-error"} == {"model", "metrics"}
    assert [each["loss"] for each in steps_of(records)] == [1.5] * 4
    assert said(records[-1]) == {"kind": "end", "steps": 4}


def test_a_trainer_without_callbacks_runs_on_unmeasured(tmp_path):
    script = "from transformers import Trainer\nclass Bare(Trainer):\n    add_callback = None\nBare().train()\n"
    _, records = stub(tmp_path, script)
    assert [each["where"] for each in records if each["kind"] == "harness-error"] == ["watch"]
    assert said(records[-1]) == {"kind": "end", "steps": 0}


def test_it_reads_as_python_3_9():
    text = (HARNESS / "sitecustomize.py").read_text()
    ast.parse(text, feature_version=(3, 9))
    imported = {
        (each.module if isinstance(each, ast.ImportFrom) else each.names[0].name).split(".")[0]
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.Import | ast.ImportFrom)
    }
    assert imported <= sys.stdlib_module_names


# ---- real TRL


def interpreters():
    named = os.environ.get("TRL_LINT_TEST_PYTHONS", "")
    if named:
        return named.split(":")
    return [sys.executable] if importlib.util.find_spec("trl") and importlib.util.find_spec("torch") else []


TINY = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

vocab = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *map(chr, range(32, 127))])}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>")),
    pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
)
tokenizer.padding_side = "left"
tokenizer.model_input_names = ["input_ids", "attention_mask"]
config = Qwen2Config(vocab_size=len(vocab), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=2, num_key_value_heads=2, eos_token_id=1, pad_token_id=0, bos_token_id=None)
torch.manual_seed(0)
if os.environ.get("RANK", "0") == "0":  # beside the script; DPO and GRPO load their reference by the model's path
    Qwen2ForCausalLM(config).save_pretrained("tiny-" + os.environ["NAME"])
    tokenizer.save_pretrained("tiny-" + os.environ["NAME"])
common = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=10, save_steps=2,
              report_to="none", use_cpu=True, bf16=False)
"""
SFT = """
from trl import SFTConfig, SFTTrainer
rows = Dataset.from_list([{"text": "words to learn " * (1 + i % 4)} for i in range(64)])
args = SFTConfig(output_dir=out, max_length=64, eval_strategy="steps", eval_steps=2, push_to_hub=True, **common)
trainer = SFTTrainer(tiny, args=args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
"""
DPO = """
from trl import DPOConfig, DPOTrainer
rows = Dataset.from_list([{"prompt": "say ", "chosen": "good " * (1 + i % 3), "rejected": "bad"} for i in range(64)])
args = DPOConfig(output_dir=out, max_length=64, **common)
model = Qwen2ForCausalLM.from_pretrained(tiny)
trainer = DPOTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer)
"""
GRPO = """
from trl import GRPOConfig, GRPOTrainer
def reward(completions, **kwargs):
    return [float(len(set(each))) for each in completions]
rows = Dataset.from_list([{"prompt": "tell me %02d" % i} for i in range(64)])
args = GRPOConfig(output_dir=out, num_generations=2, max_completion_length=8, beta=0.1, steps_per_generation=4, **common)
trainer = GRPOTrainer(tiny, reward_funcs=reward, args=args, train_dataset=rows, processing_class=tokenizer)
"""
RUN = "trainer.train()\ntrainer.save_model(out)\nprint('AFTER')\n"


def real(folder, method, python, **kwargs):
    head = TINY + f"out = {str(folder / 'out')!r}\ntiny = 'tiny-' + os.environ['NAME']\n"
    script = f"import os\nos.chdir({str(folder)!r})\n" + head + method + RUN
    done, ranks = start(
        folder,
        script,
        steps=6,
        python=python,
        timeout=300,
        NAME="a",
        OMP_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="",
        **kwargs,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "AFTER" not in done.stdout
    assert not list((folder / "out").glob("**/*.safetensors"))
    for records in ranks.values():
        assert "harness-error" not in kinds(records), records
        assert [each["step"] for each in steps_of(records)] == [1, 2, 3, 4, 5, 6]
        assert said(records[-1]) == {"kind": "end", "steps": 6}
    return ranks


REAL = pytest.mark.parametrize("python", interpreters() or [pytest.param("", marks=pytest.mark.skip("no TRL here"))])


@REAL
def test_real_sft(tmp_path, python):
    records = real(tmp_path, SFT, python)[0]
    assert records[0]["trainer"] == "SFTTrainer"
    assert records[0]["model"]["layers"] == 2
    assert all(each["tokens"] > 0 and 3 < each["loss"] < 6 and each["samples"] == 4 for each in steps_of(records))


@REAL
def test_real_dpo(tmp_path, python):
    records = real(tmp_path, DPO, python)[0]
    steps = steps_of(records)
    assert round(steps[0]["loss"], 4) == 0.6931  # ln 2: policy and reference are one
    assert all(each["tokens"] > 0 and "rewards/margins" in each["logs"] for each in steps)


@REAL
def test_real_grpo(tmp_path, python):
    records = real(tmp_path, GRPO, python)[0]
    steps = steps_of(records)
    assert records[0]["cycle"] == 2
    assert [each["generation"] > 0 for each in steps] == [True, False] * 3
    assert [each["tokens"] > 0 for each in steps] == [True, False] * 3
    assert all("kl" in each["logs"] for each in steps)
    assert "reward" in steps[0]["logs"]


@REAL
def test_real_run_repeats_to_the_last_digit(tmp_path, python):
    (tmp_path / "b").mkdir()
    one, two = (real(folder, SFT, python)[0] for folder in (tmp_path, tmp_path / "b"))
    for name in ("loss", "tokens"):
        assert [each[name] for each in steps_of(one)] == [each[name] for each in steps_of(two)]


@REAL
def test_real_two_processes(tmp_path, python):
    launcher = [str(Path(python).with_name("torchrun")), "--standalone", "--nproc-per-node", "2"]
    head = "import os, time\ntime.sleep(5 * int(os.environ['RANK']))\n"  # rank 0 writes the model that both load
    ranks = real(tmp_path, head + SFT, python, command=launcher)
    assert set(ranks) == {0, 1}
    assert [each["tokens"] for each in steps_of(ranks[0])] == [each["tokens"] for each in steps_of(ranks[1])]
    assert [each["loss"] for each in steps_of(ranks[0])] != [each["loss"] for each in steps_of(ranks[1])]
