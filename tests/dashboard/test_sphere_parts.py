"""What the sphere page is made of: the message to the browser, curves in bounded memory, the clock, the formulas."""

from __future__ import annotations

import base64
import math

import numpy as np
import pytest

from moco_core.dashboard import sphere_trace
from moco_core.dashboard.palette import class_colour
from moco_core.dashboard.sphere_curves import Series, panels, table
from moco_core.dashboard.sphere_formulas import formulas, number, vectors
from moco_core.dashboard.sphere_lab import PATIENCE, Experiment, Lab
from moco_core.dashboard.sphere_lessons import LESSONS, Settings, lesson_of
from moco_core.dashboard.sphere_scene import arrows
from moco_core.dashboard.sphere_trace import LIMIT, READINGS, Trace
from moco_core.dashboard.sphere_view import KINDS, Arrow, payload
from moco_core.dashboard.sprite import sprite
from moco_core.sphere import SphereMoCo, info_nce, octahedron_loss, pairwise_cosines


def decoded(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


class TestPayload:
    POINTS = np.array([[3.0, 0, 0], [0, 0, -0.5]])

    def test_columns_survive_the_way(self):
        sent = payload(
            self.POINTS, np.array([1, -1]), ["key", "queue"], ("a", "b"), ids=[7, 9], ages=[-1, 4], oldest=63
        )
        np.testing.assert_array_equal(decoded(sent["points"], "<f4").reshape(2, 3), [[1, 0, 0], [0, 0, -1]])
        np.testing.assert_array_equal(decoded(sent["classes"], "<i4"), [1, -1])
        assert [KINDS[i] for i in decoded(sent["kinds"], "<i4")] == ["key", "queue"]
        np.testing.assert_array_equal(decoded(sent["ids"], "<i4"), [7, 9])
        np.testing.assert_array_equal(decoded(sent["ages"], "<i4"), [-1, 4])
        assert sent["colours"] == [class_colour(0), class_colour(1)]
        assert (sent["oldest"], sent["names"], sent["sprite"], sent["arrows"]) == (63, None, None, [])

    def test_arrows_and_thumbnails(self):
        images = np.zeros((2, 8, 8, 1), np.uint8)
        sent = payload(
            self.POINTS,
            np.zeros(2, int),
            "sample",
            ("a",),
            thumbnails=sprite(images),
            arrows=[Arrow(1, np.array([0.5, 0, 0]), "pull")],
        )
        assert sent["sprite"]["uri"].startswith("data:image/png;base64,")
        assert (sent["sprite"]["side"], sent["sprite"]["across"]) == (8, 2)
        assert sent["arrows"] == [{"row": 1, "vector": [0.5, 0.0, 0.0], "label": "pull", "dashed": False}]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"points": np.ones((2, 4))}, "points must be N×3, got 4 columns"),
            ({"points": np.zeros((2, 3))}, "points"),
            ({"points": np.zeros((0, 3))}, "points"),
            ({"points": np.array([[1, 0, np.nan], [1, 0, 0]])}, "points"),
            ({"classes": [0]}, "classes must have one entry for each of the 2 points, got 1"),
            ({"kinds": ["key"]}, "kinds must have one entry"),
            ({"kinds": "star"}, "kinds must be among query, key, queue, sample; got 'star'"),
            ({"ids": [1, 2, 3]}, "ids must have one entry"),
            ({"ages": [1]}, "ages must have one entry"),
            ({"names": ["x"]}, "names must have one entry"),
        ],
    )
    def test_bad_values_are_named(self, change, message):
        good = {"points": self.POINTS, "classes": [0, 0], "kinds": "key", "class_names": ("a",)}
        with pytest.raises(ValueError, match=message):
            payload(**(good | change))


class TestTrace:
    def test_keeps_every_step_while_there_is_room(self):
        trace = Trace()
        for step in range(1, LIMIT):
            trace.add(step, (step, 2 * step, 0, 0, 0))
        columns = trace.columns()
        np.testing.assert_array_equal(columns["step"], np.arange(1, LIMIT))
        np.testing.assert_array_equal(columns["positive_cosine"], 2 * np.arange(1, LIMIT))

    def test_beyond_that_it_averages_and_stays_small(self):
        trace, steps = Trace(), 10 * LIMIT + 7
        for step in range(1, steps + 1):
            trace.add(step, (step, 0, 0, 0, 0))
        columns = trace.columns()
        assert len(columns["step"]) <= LIMIT
        assert columns["step"][-1] == steps  # the open stretch is shown too
        assert trace.stretch == 16
        whole = len(columns["step"]) - 1
        np.testing.assert_array_equal(columns["step"][:whole], 16 * np.arange(1, whole + 1))
        np.testing.assert_array_equal(columns["loss"][:whole], 16 * np.arange(1, whole + 1) - 7.5)

    def test_empty(self):
        assert {name: len(column) for name, column in Trace().columns().items()} == dict.fromkeys(
            ("step", *READINGS), 0
        )

    def test_readings(self):
        sphere = SphereMoCo()
        sphere.step()
        step = sphere.step()
        between = pairwise_cosines(sphere.queries)
        assert sphere_trace.readings(sphere, step) == (
            step.loss,
            step.positive_cosine,
            step.mean_negative_cosine,
            between.mean(),
            between.max(),
        )


class TestLab:
    def test_the_clock_pays_out_whole_steps_and_carries_the_rest(self):
        lab = Lab([Settings()], seed=0)
        taken = []
        for tick in range(9):
            lab.tick(100 + tick / 8, rate=20)  # 2.5 steps a tick
            taken.append(lab.experiments[0].sphere.steps)
        assert taken == [0, 2, 5, 7, 10, 12, 15, 17, 20]

    def test_rest_and_long_pauses_are_not_made_up_for(self):
        lab = Lab([Settings()], seed=0)
        lab.tick(0, rate=10)
        lab.rest()
        lab.tick(1000, rate=10)
        assert lab.experiments[0].sphere.steps == 0
        lab.tick(2000, rate=10)
        assert lab.experiments[0].sphere.steps == 10 * PATIENCE

    def test_curves_begin_with_the_first_step_that_has_negatives(self):
        experiment = Experiment(Settings(), seed=0)
        experiment.advance(5)
        columns = experiment.trace.columns()
        np.testing.assert_array_equal(columns["step"], [2, 3, 4, 5])
        assert all(np.isfinite(column).all() for column in columns.values())


def test_lessons_are_found_by_their_settings():
    assert [lesson_of(lesson.settings) for lesson in LESSONS] == list(LESSONS)
    assert lesson_of(Settings(temperature=0.33)) is None


class TestLessonsShowWhatTheySay:
    """Over a few seeds: what the sentences tell to watch is what happens."""

    @staticmethod
    def after(settings: Settings, steps: int = 3000) -> list[Experiment]:
        experiments = [Experiment(settings, seed) for seed in range(4)]
        for experiment in experiments:
            experiment.advance(steps)
        return experiments

    @staticmethod
    def closest(experiments: list[Experiment]) -> list[float]:
        return [float(pairwise_cosines(e.sphere.queries).max()) for e in experiments]

    @staticmethod
    def travel(experiments: list[Experiment], steps: int = 300) -> list[float]:
        """Mean angle, in degrees, that the queries turn by in so many more steps."""
        before = [e.sphere.queries.copy() for e in experiments]
        for experiment in experiments:
            experiment.advance(steps)
        cosines = [np.sum(b * e.sphere.queries, axis=1) for b, e in zip(before, experiments, strict=True)]
        return [float(np.degrees(np.arccos(np.clip(c, -1, 1))).mean()) for c in cosines]

    def test_healthy_comes_to_rest_far_apart(self):
        experiments = self.after(LESSONS[0].settings)
        assert max(self.closest(experiments)) < 0.3
        assert max(self.travel(experiments)) < 5

    def test_no_momentum_never_rests_and_the_pull_is_nothing(self):
        experiments = self.after(LESSONS[1].settings)
        assert all(e.last.positive_cosine == pytest.approx(1) for e in experiments)
        assert all(np.linalg.norm(arrows(e.last)[0].vector) < 1e-12 for e in experiments)
        assert min(self.travel(experiments)) > 15

    def test_tiny_temperature_leaves_classes_close(self):
        assert min(self.closest(self.after(LESSONS[2].settings))) > 0.6

    def test_one_negative_is_slow_and_looks_easy(self):
        short, healthy = self.after(LESSONS[3].settings, 600), self.after(LESSONS[0].settings, 600)
        assert np.mean(self.closest(short)) > np.mean(self.closest(healthy)) + 0.1
        assert np.mean([e.trace.columns()["loss"][-100:].mean() for e in short]) < 0.2

    def test_long_queue_of_quick_keys_never_rests_but_slow_keys_do(self):
        long = LESSONS[4].settings
        slow = Settings(queue_size=long.queue_size, momentum=0.999)
        assert min(self.travel(self.after(long))) > 10
        assert max(self.travel(self.after(slow))) < 5


class TestFormulas:
    @pytest.fixture
    def step(self):
        experiment = Experiment(Settings(), seed=0)
        experiment.advance(100)
        return experiment.last

    def test_numbers_are_those_of_the_step(self, step):
        text = formulas(step)
        others = np.exp(step.contrast.cosines[1:] / 0.2).sum()
        positive = math.exp(step.positive_cosine / 0.2)
        assert f"{{{number(positive)} + {number(others)}}}" in text
        assert positive / (positive + others) == pytest.approx(step.contrast.weights[0])
        assert f"L = -\\ln p^+ = {step.loss:.3g}$$" in text
        heaviest = int(np.argmax(step.contrast.weights[1:]))
        age = 64 - heaviest
        assert f"written {age} step" in text
        turned = math.degrees(math.acos(step.contrast.query @ step.query))
        assert f"{number(turned)}^\\circ" in text

    def test_vectors_add_up(self, step):
        rows = {name: np.array(xyz) for name, *xyz in vectors(step).itertuples(index=False)}
        np.testing.assert_allclose(rows["(1−p⁺)·k⁺ (pull)"] + rows["−Σ pᵢ·kᵢ (push)"], rows["g"])
        arrived = rows["q"] + rows["η·t"]
        np.testing.assert_allclose(rows["q after"], arrived / np.linalg.norm(arrived))

    def test_the_first_step_has_nothing_to_tell_apart(self):
        assert "queue was still empty" in formulas(SphereMoCo().step())

    @pytest.mark.parametrize(
        ("value", "written"),
        [(0.25, "0.25"), (1234, r"1.23\cdot10^{3}"), (4.2e-7, r"4.2\cdot10^{-7}"), (0, "0")],
    )
    def test_number(self, value, written):
        assert number(value) == written


class TestCurves:
    def series(self, name: str = "left", chance: float = 4.0) -> Series:
        columns = {"step": np.array([1.0, 2.0])} | {
            reading: np.array([float(i), i + 0.5]) for i, reading in enumerate(READINGS)
        }
        return Series(name, columns, chance, 2.5)

    def test_each_reading_is_drawn_once(self):
        drawn = panels([self.series()])
        lines = [line for panel in drawn for line in panel.lines]
        assert sorted(line.y[0] for line in lines) == [0, 1, 2, 3, 4]
        assert len({line.colour for line in lines}) == 5
        assert [(mark.label, mark.value) for mark in drawn[0].marks] == [("chance", 4.0), ("octahedron", 2.5)]

    def test_a_second_sphere_is_dotted_and_levels_are_shared_where_equal(self):
        drawn = panels([self.series(), self.series("right")])
        assert [line.dotted for line in drawn[0].lines] == [False, True]
        assert len(drawn[0].marks) == 2
        assert len(panels([self.series(), self.series("right", 5.0)])[0].marks) == 4

    def test_table_names_the_sphere(self):
        rows = table([self.series(), self.series("right")])
        assert list(rows.columns) == ["sphere", "step", *READINGS]
        assert rows["sphere"].tolist() == ["left", "left", "right", "right"]


def test_octahedron_loss_is_what_an_octahedron_scores():
    corners = np.vstack([np.eye(3), -np.eye(3)])
    scored = info_nce(corners[0], corners[0], np.repeat(corners, 50, axis=0), 0.3)
    assert scored.loss == pytest.approx(octahedron_loss(300, 0.3))
