"""Two processes over gloo train as one does, and neither outlives the other."""

import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from moco_core.config import ConfigError, TrainConfig
from moco_core.contrast.group import Group
from moco_core.data.augment import preset_for
from moco_core.nets.encoders import BACKBONES
from moco_core.runs import RunStore, RunWriter, schema
from moco_core.runs.verify import damage
from moco_core.training.distributed import Onlooker
from moco_core.training.loop import train
from moco_core.training.probes import embed, embed_together
from moco_core.training.setup import prepare
from moco_core.training.snapshots import Snapshots
from moco_core.training.views import Views
from tests.training.ranks import RUNS, without_batch_norm
from tests.training.small import SMALL, assert_identical
from tests.training.test_command import ENVIRONMENT, QUICK, wait_for_resume_state, wait_for_step

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def torchrun(root: Path, *words: object) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    command = [sys.executable, *launcher, "-m", "moco_core", "train", "--runs", str(root), *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT
    )


def errors(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "error: " in line and "moco_core FAILED" not in line]


def two_ranks(*words: object) -> list[subprocess.Popen[str]]:
    """`python WORDS` as process 0 and 1 of two, without a launcher that ends one with the other."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=ENVIRONMENT | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]


def write_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """The runs of `ranks.RUNS`, trained by two processes."""
    root = tmp_path_factory.mktemp("together")
    write_images(root / "images")
    for process in two_ranks("-m", "tests.training.ranks", root):
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
    return root


@pytest.mark.parametrize("name", RUNS)
def test_the_dictionary_is_the_same_on_both_ranks_after_every_step(together, name):
    first, second = ((together / f"{name}.rank-{rank}").read_text().splitlines() for rank in range(2))
    steps = (SMALL | RUNS[name])["steps"]
    assert first == second
    assert [int(line.split()[0]) for line in first] == list(range(1, steps + 1))
    assert len({line.split()[1] for line in first}) == steps


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("bare-")])
def test_without_batch_norm_two_processes_learn_as_one(together, tmp_path, monkeypatch, name):
    monkeypatch.setitem(BACKBONES, "resnet18", without_batch_norm)
    config = TrainConfig(**SMALL | RUNS[name], name=name)
    writer = RunWriter.create(tmp_path, config)
    train(writer, prepare(config))
    alone, both = RunStore(tmp_path)[name], RunStore(together)[name]
    assert (alone.info["processes"], both.info["processes"]) == (1, 2)
    history, expected = both.history(), alone.history()
    assert len(history["loss"]) == 50
    for quantity in ("loss", "positive_cosine", "negative_cosine", "encoder_gap", "grad_norm"):
        np.testing.assert_allclose(
            history[quantity], expected[quantity], rtol=1e-4, atol=1e-4, err_msg=quantity
        )
    for column in ("filled", "momentum", "lr", "step"):
        np.testing.assert_array_equal(history[column], expected[column])
    if config.method != "in-batch":
        queue, wanted = both.steps[-1].queue, alone.steps[-1].queue
        np.testing.assert_array_equal(queue.sample_ids, wanted.sample_ids)
        np.testing.assert_array_equal(queue.labels, wanted.labels)
        np.testing.assert_allclose(queue.keys, wanted.keys, atol=1e-4)


@pytest.mark.parametrize("name", ["moco-plain", "moco-split"])
def test_keys_are_encoded_again_in_the_parts_that_they_were_made_in(together, name):
    newest = RunStore(together)[name].steps[-1]
    newly_written = newest.drift["age"] == 0
    assert newly_written.sum() == 16
    assert (1 - newest.drift["cosine_key"][newly_written]).max() < 1e-6


def test_processes_that_read_their_rows_from_disk_train_the_same(together):
    runs = RunStore(together)
    assert_identical(runs["in-memory"], runs["streamed"])


def test_what_two_processes_measure_together_is_what_one_measures(together, tmp_path):
    """Batch norm's running statistics differ between processes; those written are what all evaluate with."""
    both = RunStore(together)["odd-evaluation"]
    for theirs in both.steps:
        setup = prepare(both.config)
        method = setup.method()
        arrays = theirs.arrays(schema.WEIGHTS_FILE)
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        assert set(method.load_state_dict(state).unexpected_keys) == set()
        writer = RunWriter.create(tmp_path, both.config)
        Snapshots(writer, both.config, setup.views, setup.held_out, setup.device).take(method, theirs.step)
        (ours,) = RunStore(tmp_path)[writer.run_id].steps
        assert ours.query.shape == (41, 8)
        for space in ("query", "key", "second_view", "features"):
            np.testing.assert_allclose(getattr(theirs, space), getattr(ours, space), atol=1e-6, err_msg=space)
        assert set(theirs.metrics) - set(ours.metrics) <= {"k_star"}
        assert ours.metrics["knn"]["bank"] == 61
        for name, entry in ours.metrics.items():
            if name == "collapse":
                assert theirs.metrics[name]["verdict"] == entry["verdict"]
            assert theirs.metrics[name] | {"value": 0, "reason": ""} == entry | {"value": 0, "reason": ""}
            assert theirs.metrics[name]["value"] == pytest.approx(entry["value"], rel=1e-6, abs=1e-6), name


def test_where_labels_are_missing_all_processes_leave_out_the_same(together):
    newest = RunStore(together)["unlabelled"].steps[-1]
    assert newest.step == 12
    assert "alignment" in newest.metrics
    assert "knn" not in newest.metrics


class Shares(Group):
    """Process `rank` of `size`, which notes what it gathers and is given `answers` instead."""

    def __init__(self, rank: int, size: int, answers: list[torch.Tensor] | None = None) -> None:
        self.rank, self.size, self.answers = rank, size, answers
        self.sent: list[torch.Tensor] = []

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        self.sent.append(rows)
        return self.answers[len(self.sent) - 1] if self.answers else torch.cat([rows] * self.size)


@pytest.mark.parametrize("count", [1, 2, 5, 40, 41])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_number_of_images_is_shared_evenly(count, size):
    setup = prepare(TrainConfig(**SMALL | {"eval_size": 50}))
    encoder, images = setup.method().query, setup.held_out.images[:count]
    asked: list[int] = []

    def some(part: slice) -> torch.Tensor:
        asked.append(part.stop - part.start)
        return images[part]

    groups = [Shares(rank, size) for rank in range(size)]
    for group in groups:
        embed_together(encoder, some, count, setup.device, group)
    assert asked == [-(-count // size)] * size
    answers = [torch.cat(sent) for sent in zip(*(group.sent for group in groups), strict=True)]
    whole = embed(encoder, images, setup.device)
    for rank in range(size):
        shared = embed_together(encoder, some, count, setup.device, Shares(rank, size, answers))
        for ours, expected in zip(shared, whole, strict=True):
            assert ours.shape == expected.shape
            np.testing.assert_allclose(ours, expected, atol=0 if size == 1 else 1e-6)


DEAD = """
import torch
from moco_core import cli
from moco_core.contrast.moco import MoCo

remember = MoCo.remember

@torch.no_grad()
def then_die(method, keys, samples, labels, step):
    remember(method, keys, samples, labels, step)
    if step == 5:
        for parameter in method.query.parameters():
            parameter.zero_()

MoCo.remember = then_die
cli.main()
"""


def test_a_network_that_breaks_down_ends_both_ranks_with_one_line(tmp_path):
    words = ("--steps", 100, "--stop-after", 5)
    ranks = two_ranks("-c", DEAD, "train", "--runs", tmp_path, *QUICK, *words)
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    (line,) = errors("".join(said))
    sentence = "embeddings are zero or not finite after step 5: lower lr or raise temperature"
    assert sentence in line
    (run,) = RunStore(tmp_path)
    assert (run.status.state, run.status.error) == ("failed", sentence)
    assert [checkpoint.step for checkpoint in run.steps][-1] < 5


def test_processes_normalise_over_their_own_parts(together, tmp_path):
    """With batch norm, two processes are not one: the plain kind is what differs in the BN-free comparison."""
    config = TrainConfig(**SMALL)
    train(RunWriter.create(tmp_path, config), prepare(config))
    (alone,) = RunStore(tmp_path)
    loss = RunStore(together)["moco-plain"].history()["loss"]
    assert np.abs(loss - alone.history()["loss"])[1:].max() > 1e-3


class Third(Group):
    """Process 1 of 3, as far as its rows go."""

    rank, size = 1, 3

    def own(self, batch):
        return batch[len(batch) // 3 : 2 * len(batch) // 3]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 16}, "batch_size must be a multiple of the 3 processes, got 16"),
        ({"batch_size": 15, "batch_norm": "sync"}, "batch_norm sync needs a GPU for each process"),
        ({"batch_size": 15, "device": "cuda:0"}, "device must be auto, cpu or cuda for several processes"),
    ],
)
def test_what_several_processes_cant_do_is_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        prepare(TrainConfig(**SMALL | settings), Third())


def test_split_batch_norm_of_several_processes_needs_no_eighths():
    assert (
        prepare(TrainConfig(**SMALL | {"batch_size": 15, "batch_norm": "split"}), Third()).batch_norm
        == "plain"
    )


def test_each_process_makes_its_rows_of_the_same_pixels():
    train_set = prepare(TrainConfig(**SMALL)).train
    alone = Views(train_set, preset_for("cifar10"), 15, 3)
    third = replace(alone, group=Third())
    for view in (0, 1):
        indices = alone.batch(4)
        whole = alone.view(indices, 4, view)
        assert (third.view(indices, 4, view) == whole[5:10]).all()


def test_onlookers_write_nothing(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig(**SMALL))
    before = {path: path.read_bytes() for path in writer.path.iterdir()}
    onlooker = Onlooker(writer.path)
    with onlooker.training():
        onlooker.set_status(state="failed", step=3)
        onlooker.describe(device="mine")
        onlooker.append_history([{"step": 1}])
        onlooker.add_seconds(run=1.0)
        onlooker.write_resume(1, {"a": np.zeros(2)})
        onlooker.write_step(1, {}, {})
    assert {path: path.read_bytes() for path in writer.path.iterdir()} == before


def ranks_of(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    children = psutil.Process(launcher.pid).children()
    return {int(child.environ()["RANK"]): child for child in children if "RANK" in child.environ()}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_both_and_the_run_resumes_in_one_process(tmp_path, command, victim):
    launcher = torchrun(tmp_path, *QUICK, "--steps", 100_000, "--checkpoint-minutes", 0.01)
    wait_for_step(tmp_path, 1)
    wait_for_resume_state(tmp_path)
    ranks_of(launcher)[victim].send_signal(signal.SIGKILL)
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode != 0
    assert len(errors(said)) == 1, said
    assert "one of the 2 processes of this run has ended or no longer answers" in errors(said)[0]
    (run,) = RunStore(tmp_path)
    assert run.status.state == "failed"
    assert "resume the run to go on from its last checkpoint" in run.status.error
    assert list(damage(run)) == []
    step = run.resume_state().step
    assert step > 0
    resumed = command(
        "train", "--runs", tmp_path, "--resume", run.id, "--stop-after", step + 2, "--no-project"
    )
    assert resumed.returncode == 0, resumed.stderr
    after = RunStore(tmp_path)[run.id]
    assert (after.status.state, after.status.step) == ("stopped", step + 2)


OUT_OF_MEMORY = """
import os, sys, torch
from moco_core import cli
from moco_core.contrast.queue import KeyQueue

enqueue = KeyQueue.enqueue

def fail_in_time(queue, keys, samples, labels, step):
    if step == 5 and os.environ["RANK"] == "1":
        raise torch.OutOfMemoryError("CUDA out of memory.")
    enqueue(queue, keys, samples, labels, step)

KeyQueue.enqueue = fail_in_time
cli.main()
"""


def test_what_ends_one_rank_is_the_reason_that_the_run_gives(tmp_path):
    ranks = two_ranks("-c", OUT_OF_MEMORY, "train", "--runs", tmp_path, *QUICK, "--steps", 100)
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    sentence = "out of memory: lower batch_size, image_size or queue_size"
    assert [errors(each) for each in said] == [[], [f"error: {sentence}"]]
    (run,) = RunStore(tmp_path)
    assert (run.status.state, run.status.error) == ("failed", f"process 1 of 2: {sentence}")


SILENT = """
import os, sys, time
from datetime import timedelta
from moco_core import cli
from moco_core.contrast.queue import KeyQueue
from moco_core.training import distributed

distributed.PATIENCE = timedelta(seconds=20)  # busy machines start one rank long after the other
enqueue = KeyQueue.enqueue

def stall(queue, keys, samples, labels, step):
    if step == 5 and os.environ["RANK"] == "1":
        time.sleep(600)
    enqueue(queue, keys, samples, labels, step)

KeyQueue.enqueue = stall
cli.main()
"""


def test_nobody_waits_forever_for_a_rank_that_hangs(tmp_path):
    first, hanging = two_ranks("-c", SILENT, "train", "--runs", tmp_path, *QUICK, "--steps", 100)
    try:
        _, said = first.communicate(timeout=120)
    finally:
        hanging.kill()
        hanging.communicate()
    assert first.returncode == 1
    (line,) = errors(said)
    assert "no longer answers" in line
    (run,) = RunStore(tmp_path)
    assert (run.status.state, f"error: {run.status.error}") == ("failed", line)


def test_a_run_goes_on_with_another_number_of_processes(tmp_path, command):
    words = (*QUICK, "--steps", 12, "--snapshots", 3, "--stop-after", 7, "--name")
    train_words = ("-m", "moco_core", "train", "--runs", tmp_path)
    said = [rank.communicate(timeout=120) for rank in two_ranks(*train_words, *words, "two")]
    assert [out for out, _ in said] == [f"{tmp_path / 'two'}\n", ""], said
    assert command("train", "--runs", tmp_path, *words, "one").returncode == 0
    runs = RunStore(tmp_path)
    assert [runs[name].status.step for name in ("one", "two")] == [7, 7]
    written = {name: runs[name].resume_state().arrays("state.safetensors") for name in ("one", "two")}
    assert written["one"].keys() == written["two"].keys()
    assert command("train", "--runs", tmp_path, "--resume", "two", "--no-project").returncode == 0
    for rank in two_ranks(*train_words, "--resume", "one", "--no-project"):
        assert rank.communicate(timeout=120)
        assert rank.returncode == 0
    for name in ("one", "two"):
        run = runs[name]
        assert (run.status.state, run.status.step) == ("finished", 12)
        assert run.history()["step"].tolist() == list(range(1, 13))
        assert run.history()["filled"].tolist() == [0, 16, 32, *[40] * 9]
        assert run.steps[-1].queue.written_steps.min() == 10


def test_two_processes_stopped_and_resumed_end_at_the_same_bits(together):
    assert_identical(RunStore(together)["moco-split"], RunStore(together)["moco-split-resumed"])


def test_a_signal_to_torchrun_leaves_a_checkpoint(tmp_path):
    launcher = torchrun(tmp_path, *QUICK, "--steps", 100_000)
    wait_for_step(tmp_path, 3)
    launcher.send_signal(signal.SIGTERM)
    _, said = launcher.communicate(timeout=120)
    (run,) = RunStore(tmp_path)
    assert run.status.state == "stopped", said
    assert run.steps[-1].step == run.resume_state().step == run.status.step >= 3


def test_an_error_on_both_ranks_is_one_line(tmp_path):
    ranks = two_ranks("-m", "moco_core", "train", "--runs", tmp_path / "runs", "--batch-size", 17)
    out, said = zip(*(rank.communicate(timeout=120) for rank in ranks), strict=True)
    assert sorted(rank.returncode for rank in ranks) == [1, 2]
    assert errors("".join(said)) == ["error: batch_size must be a multiple of the 2 processes, got 17"]
    assert out == ("", "")
    assert not (tmp_path / "runs").exists()


def test_a_sweep_says_that_it_needs_one_process(tmp_path, command, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = command("sweep", "--runs", tmp_path / "runs")
    assert done.returncode == 2
    assert "a sweep runs in one process" in done.stderr
