"""The command line as a person meets it: exit codes, sentences, and what is left on disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from moco_core.cli import _variants
from moco_core.config import TrainConfig
from moco_core.data import sources
from moco_core.runs import RunError, RunStore, RunWriter, schema
from moco_core.training import command as training_command
from moco_core.training.command import train_new
from tests.data.files import write_images
from tests.synthetic import write_run

QUICK = (
    "--batch-size",
    "16",
    "--queue-size",
    "40",
    "--dim",
    "8",
    "--eval-size",
    "40",
    "--bank-size",
    "60",
    "--no-project",
)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def moco(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moco_core", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENVIRONMENT)


def started(root: Path, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "moco_core", "train", "--runs", str(root), *QUICK, *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def wait_for_step(root: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(run.problem is None and run.status.step >= step for run in RunStore(root)):
            return
        time.sleep(0.1)
    raise AssertionError(f"step {step} was not reached")


def wait_for_resume_state(root: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(root.glob("*/resume/step-*/manifest.json")):
        assert time.monotonic() < deadline, "no resume state was written"
        time.sleep(0.1)


def test_train_prints_the_run_directory_last(tmp_path):
    words = ("--steps", 6, "--snapshots", 2, "--name", "my <b>run</b>", "--project")
    done = moco("train", "--runs", tmp_path, *QUICK, *words)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1])
    run = RunStore(tmp_path)[path.name]
    assert (run.name, run.status.state, run.status.step) == ("my <b>run</b>", "finished", 6)
    assert list((path / schema.CACHE_DIR).iterdir()), "the newest step was projected"
    assert "snapshots" in done.stderr
    assert "queue staleness" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--momentum", "1.5"], "momentum must be at least 0 and at most 1, got 1.5"),
        (["--encoder", "resnet81"], "did you mean 'resnet18'"),
        (["--dataset", "digit"], "did you mean 'digits'"),
        (["--batch-size", "5000"], "batch_size must be at most the"),
        (["--device", "cuda:99"], "device cuda:99 is not there; this machine has"),
        (["--batch-norm", "split", "--batch-size", "30"], "a multiple of 8 for split batch norm, got 30"),
        (["--image-size", "5"], "at least 8 pixels"),
        (["--resume", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_bad_arguments_end_with_2_and_write_nothing(tmp_path, command, words, sentence):
    done = command("train", "--runs", tmp_path / "runs", *words)
    assert done.returncode == 2, done.stderr
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "runs").exists()


def test_images_that_are_not_there_fail_before_anything_is_written(tmp_path, command):
    (tmp_path / "loop").symlink_to("loop")
    for folder in ("/nowhere", "~nobody-of-that-name/x", str(tmp_path / "loop")):
        done = command("train", "--runs", tmp_path / "runs", "--dataset", f"folder:{folder}")
        assert done.returncode == 1
        assert Path(folder).name in done.stderr
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verb", ["runs", "verify"])
def test_a_folder_that_is_not_there_is_said(tmp_path, command, verb):
    done = command(verb, "--runs", tmp_path / "nowhere")
    assert (done.returncode, done.stderr) == (2, f"error: there is no folder {tmp_path}/nowhere\n")


def test_names_that_are_no_utf8_are_taken_as_far_as_they_go(tmp_path):
    name = b"caf\xe9".decode(errors="surrogateescape")
    write_images(tmp_path / name, *(f"{name}/{i:02}.png" for i in range(12)))
    done = moco(
        "train", "--runs", tmp_path, *QUICK, "--batch-size", 4, "--steps", 2, "--dataset", f"folder:{tmp_path}/{name}"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = RunStore(tmp_path)[Path(done.stdout.splitlines()[-1]).name]
    assert run.config.dataset == f"folder:{tmp_path}/caf?"
    assert run.eval_set.class_names == ("caf?",)


def test_a_folder_that_cant_be_made_is_said(tmp_path, command):
    (tmp_path / "file").write_text("")
    done = command("train", "--runs", tmp_path / "file" / "runs", *QUICK, "--steps", 2)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path}/file")


@pytest.mark.parametrize("storage", ["memory", "stream"])
def test_unreadable_files_are_said_and_counted_in_the_run(tmp_path, command, storage):
    write_images(tmp_path / "images", *(f"{name}/{i:02}.png" for name in ("cat", "dog") for i in range(10)))
    (tmp_path / "images" / "cat" / "03.png").write_bytes(b"broken")
    words = ("--dataset", f"folder:{tmp_path}/images", "--storage", storage, "--batch-size", 8)
    done = command("train", "--runs", tmp_path / "runs", *QUICK, *words, "--steps", 2, "--snapshots", 2)
    assert done.returncode == 0, done.stderr
    sentence = "Left out, as unreadable: 1 of the folder's files (cat/03.png: not an image)."
    assert f"warning: {sentence}" in done.stderr
    info = RunStore(tmp_path / "runs")[Path(done.stdout.splitlines()[-1]).name].info
    assert (info["dataset"]["skipped"], info["dataset"]["skipped_files"]) == (1, ["cat/03.png: not an image"])
    assert sentence in info["warnings"]


@pytest.mark.parametrize(("most", "brightest"), [(4095, 15), (65_535, None)])
def test_pictures_of_twelve_bits_in_sixteen_are_said_to_be_dark(tmp_path, command, most, brightest):
    random = np.random.default_rng(0)
    for i in range(20):
        pixels = random.integers(0, most + 1, (16, 16), dtype=np.uint16)
        pixels[4:12, 4:12] = most
        Image.fromarray(pixels).save(tmp_path / f"{i:02}.png")
    words = ("--dataset", f"folder:{tmp_path}", "--image-size", 16, "--batch-size", 8, "--steps", 2)
    done = command("train", "--runs", tmp_path / "runs", *QUICK, *words)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "nearly black" in line]
    start = f"warning: The images are nearly black: their brightest pixel is {brightest} of 255."
    assert [line.startswith(start) for line in said] == ([True] if brightest else [])


def test_memory_that_cant_be_had_is_said(tmp_path):
    done = moco("train", "--runs", tmp_path, *QUICK, "--queue-size", 2**24, "--dim", 65536)  # 4 TiB
    assert done.returncode == 1
    sentence = "out of memory: lower batch_size, image_size or queue_size"
    assert done.stderr.splitlines()[-1] == f"error: {sentence}"
    assert "Traceback" not in done.stderr
    (run,) = RunStore(tmp_path)
    assert (run.status.state, run.status.error) == ("failed", sentence)


def test_memory_that_the_images_cant_have_is_said_before_a_run_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "open_images", lambda *_: torch.empty(2**45, dtype=torch.uint8))  # 32 TiB
    with pytest.raises(RunError) as ended:
        train_new(TrainConfig(device="cpu"), tmp_path)
    assert str(ended.value) == "out of memory: lower batch_size, image_size or queue_size"
    assert list(tmp_path.iterdir()) == []


def test_a_queue_longer_than_the_data_set_is_allowed_with_a_reason(tmp_path, command):
    done = command("train", "--runs", tmp_path, *QUICK, "--queue-size", 5000, "--steps", 2, "--snapshots", 2)
    assert done.returncode == 0
    assert "older keys of its own image among its negatives" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_that_resumes(tmp_path, command, number, code):
    process = started(tmp_path, "--steps", 100_000)
    wait_for_step(tmp_path, 3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    (run,) = RunStore(tmp_path)
    assert out.splitlines()[-1] == str(run.path)
    assert run.status.state == "stopped"
    assert run.steps[-1].step == run.status.step == run.resume_state().step
    words = ("--resume", run.id, "--stop-after", run.status.step + 5, "--no-project")
    done = command("train", "--runs", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert RunStore(tmp_path)[run.id].status.step == run.status.step + 5


def test_a_terminal_that_is_closed_leaves_a_checkpoint(tmp_path):
    terminal = (
        "import pty, signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\npty.spawn(sys.argv[1:])\n"
    )
    command = [*(sys.executable, "-m", "moco_core", "train"), *QUICK]
    process = subprocess.Popen(
        [sys.executable, "-c", terminal, *command, "--runs", str(tmp_path), "--steps", "100000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    wait_for_step(tmp_path, 3)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while (run := next(iter(RunStore(tmp_path)))).status.state == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (run.status.state, run.status.error) == ("stopped", "")
    assert run.steps[-1].step == run.status.step == run.resume_state().step


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_imports_ends_quietly_and_clears_up(tmp_path, number, code):
    (tmp_path / "tyro.py").write_text(
        f"import os, time\ntry:\n os.kill(os.getpid(), {number:d})\n time.sleep(9)\nfinally:\n print('cleared')"
    )
    command = [sys.executable, "-m", "moco_core", "runs"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (code, "cleared\n", "")


def test_stop_after_and_resume_go_on_to_the_end(tmp_path, command):
    done = command("train", "--runs", tmp_path, *QUICK, "--steps", 8, "--snapshots", 2, "--stop-after", 3)
    run_id = Path(done.stdout.splitlines()[-1]).name
    assert RunStore(tmp_path)[run_id].status.state == "stopped"
    changed = command("train", "--runs", tmp_path, "--resume", run_id, "--lr", 0.5)
    assert changed.returncode == 2
    assert "a resumed run keeps its own settings: lr is 0.06 and can't become 0.5" in changed.stderr
    assert command("train", "--runs", tmp_path, "--resume", run_id, "--no-project").returncode == 0
    run = RunStore(tmp_path)[run_id]
    assert (run.status.state, run.history()["step"].tolist()) == ("finished", list(range(1, 9)))
    again = command("train", "--runs", tmp_path, "--resume", run_id)
    assert again.returncode == 2
    assert "there is nothing to resume" in again.stderr


def test_a_run_without_a_saved_state_says_that_it_begins_again(tmp_path, command):
    words = ("--steps", 6, "--snapshots", 2, "--stop-after", 3, "--name", "x")
    assert command("train", "--runs", tmp_path, *QUICK, *words).returncode == 0
    shutil.rmtree(tmp_path / "x" / schema.RESUME_DIR)
    done = command("train", "--runs", tmp_path, "--resume", "x", "--no-project")
    assert done.returncode == 0, done.stderr
    assert "warning: 'x' saved no state to go on from: it begins again\n" in done.stderr
    run = RunStore(tmp_path)["x"]
    assert (run.status.state, run.history()["step"].tolist()) == ("finished", list(range(1, 7)))


def test_a_run_whose_folder_is_deleted_as_it_trains_says_so(tmp_path, command):
    process = started(tmp_path, "--steps", 100_000, "--name", "x")
    wait_for_step(tmp_path, 1)
    (tmp_path / "x").rename(tmp_path / "aside")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"error: the run's folder is gone: {tmp_path}/x"
    assert not (tmp_path / "x").exists()


def test_a_projection_that_is_ended_leaves_the_run_directory_printed(tmp_path):
    code = (
        "import os, signal, sys; from moco_core import cli; from moco_core.training import command as training\n"
        "training.project_newest = lambda outcome: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main()"
    )
    words = ("train", "--runs", str(tmp_path), *QUICK[:-1], "--steps", "2", "--snapshots", "2", "--name", "x")
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=240, env=ENVIRONMENT
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, f"{tmp_path}/x\n")


@pytest.mark.parametrize("step", [-1, 2, 3])
def test_a_stop_that_lies_behind_is_refused(tmp_path, command, step):
    words = ("--steps", 8, "--snapshots", 2, "--stop-after", 3, "--name", "x")
    assert command("train", "--runs", tmp_path, *QUICK, *words).returncode == 0
    done = command("train", "--runs", tmp_path, "--resume", "x", "--stop-after", step)
    assert done.returncode == 2
    assert f"got {step}" in done.stderr
    assert RunStore(tmp_path)["x"].status.step == 3


def test_sweep_tags_its_runs_and_prints_them(tmp_path, command):
    words = ("--over", "momentum", "--values", "0", "0.99", "--steps", 4, "--snapshots", 2)
    done = command("sweep", "--runs", tmp_path, *QUICK, *words)
    assert done.returncode == 0, done.stderr
    runs = list(RunStore(tmp_path))
    assert sorted(run.config.momentum for run in runs) == [0.0, 0.99]
    assert len({run.sweep for run in runs}) == 1
    assert "chance loss" in done.stdout


def test_variants_of_a_sweep_say_their_value_and_seeds_count_up():
    configs = _variants(TrainConfig(seed=3), "temperature", ("0.1", "0.2"), 2)
    assert [(config.temperature, config.seed) for config in configs] == [
        (0.1, 3),
        (0.1, 4),
        (0.2, 3),
        (0.2, 4),
    ]
    assert configs[2].title() == "temperature=0.2 digits m=0.99 K=1024"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--over", "momentm"], "did you mean 'momentum'"),
        (["--over", "queue-size", "--values", "0"], "queue_size must be at least 1"),
        (["--values", "0", "7"], "momentum must be at least 0"),
        (["--values", "x"], "values for momentum must be of type float, got 'x'"),
        (["--seeds", "0"], "seeds must be at least 1"),
    ],
)
def test_a_sweep_is_checked_whole_before_it_starts(tmp_path, command, words, sentence):
    done = command("sweep", "--runs", tmp_path / "runs", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "runs").exists()


def test_runs_and_verify(tmp_path, command):
    path = write_run(tmp_path, "sound")
    damaged = write_run(tmp_path, "damaged")
    listed = json.loads(command("runs", "--runs", tmp_path, "--json").stdout)
    assert {entry["id"] for entry in listed} == {"sound", "damaged"}
    sound = command("verify", "--runs", tmp_path)
    assert (sound.returncode, sound.stdout) == (0, "2 runs checked, 0 damaged files\n")
    file = damaged / "step-00000020" / schema.QUEUE_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    found = command("verify", "--runs", tmp_path)
    assert found.returncode == 1
    assert "damaged/step-00000020/queue.safetensors: checksum differs" in found.stdout
    assert found.stdout.endswith("2 runs checked, 1 damaged file\n")
    alone = command("verify", path.name, "--runs", tmp_path)
    assert (alone.returncode, alone.stdout) == (0, "1 run checked, 0 damaged files\n")
    assert "sound" in command("runs", "--runs", tmp_path).stdout


@pytest.mark.parametrize("words", [("train", "--help"), ("runs", "--json")])
def test_a_reader_that_has_seen_enough_hears_no_complaint(tmp_path, words):
    command = [sys.executable, "-m", "moco_core", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=os.environ | {"MOCO_RUNS": str(tmp_path)}) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_failure_is_written_into_the_run(tmp_path, command):
    writer = RunWriter(write_run(tmp_path, "gone", state="queued", dataset="folder:/nowhere"))
    done = command("train", "--runs", tmp_path, "--resume", writer.run_id)
    assert done.returncode == 1
    status = RunStore(tmp_path)[writer.run_id].status
    assert status.state == "failed"
    assert "/nowhere" in status.error
    assert status.error in done.stderr.replace("\n", " ")


def test_an_interrupt_before_the_first_step_leaves_a_stopped_run(tmp_path, command, monkeypatch):
    writer = RunWriter(write_run(tmp_path, "waiting", state="queued"))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training_command, "prepare", interrupted)
    assert command("train", "--runs", tmp_path, "--resume", writer.run_id).returncode == 130
    assert RunStore(tmp_path)[writer.run_id].status.state == "stopped"
