"""MoCo on the sphere: one step by hand, its gradient, its queue, and what comes of 2,000 steps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moco_core.sphere import SphereMoCo, info_nce, pairwise_cosines, tangential


def unit_rows(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    x = rng.normal(size=(rows, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def run(sphere: SphereMoCo, steps: int) -> SphereMoCo:
    for _ in range(steps):
        sphere.step()
    return sphere


contrasts = st.tuples(
    st.integers(2, 16), st.integers(0, 12), st.floats(0.05, 5), st.integers(0, 2**32 - 1)
)  # D, K, τ, seed


class TestOneStep:
    def test_by_hand_with_one_class_and_one_queue_entry(self):
        sphere = SphereMoCo(classes=1, temperature=0.5, momentum=0.9, queue_size=1, step_size=0.3)
        run(sphere, 1)  # nothing to contrast with yet: only the key is enqueued
        sphere.queries[0] = [1, 0, 0]
        sphere.keys[0] = [0.6, 0.8, 0]
        sphere.queue[0] = [0, 0, 1]

        step = sphere.step()

        # Cosines 0.6 and 0; the softmax of (1.2, 0) is (e^1.2, 1) / (e^1.2 + 1).
        p = math.exp(1.2) / (math.exp(1.2) + 1)
        assert step.loss == pytest.approx(-math.log(p), abs=1e-15)
        assert (step.positive_cosine, step.mean_negative_cosine) == (pytest.approx(0.6), 0)
        np.testing.assert_allclose(step.contrast.weights, [p, 1 - p], atol=1e-15)
        # g = (1−p)(k⁺ − k₁) = (1−p)·(0.6, 0.8, −1); its part across q = (1, 0, 0) is (1−p)·(0, 0.8, −1).
        moved = np.array([1, 0.3 * (1 - p) * 0.8, -0.3 * (1 - p)])
        moved /= math.sqrt(1 + (0.3 * (1 - p)) ** 2 * 1.64)
        np.testing.assert_allclose(sphere.queries[0], moved, atol=1e-15)
        key = 0.9 * np.array([0.6, 0.8, 0]) + 0.1 * moved
        np.testing.assert_allclose(sphere.keys[0], key / np.linalg.norm(key), atol=1e-15)
        np.testing.assert_array_equal(sphere.queue, sphere.keys)
        assert (sphere.steps, step.anchor) == (2, 0)

    def test_the_first_has_no_negatives_and_moves_nothing(self):
        sphere = SphereMoCo(seed=3)
        queries = sphere.queries.copy()
        step = sphere.step()
        assert step.loss == 0
        assert math.isnan(step.mean_negative_cosine)
        np.testing.assert_allclose(sphere.queries, queries, atol=1e-15)
        np.testing.assert_array_equal(sphere.queue, sphere.keys[[step.anchor]])

    def test_only_the_anchor_moves(self):
        sphere = run(SphereMoCo(), 50)
        queries, keys = sphere.queries.copy(), sphere.keys.copy()
        anchor = sphere.step().anchor
        others = np.arange(6) != anchor
        np.testing.assert_array_equal(sphere.queries[others], queries[others])
        np.testing.assert_array_equal(sphere.keys[others], keys[others])
        assert not np.array_equal(sphere.queries[anchor], queries[anchor])
        assert not np.array_equal(sphere.keys[anchor], keys[anchor])

    def test_the_key_is_enqueued_after_scoring(self):
        sphere = run(SphereMoCo(queue_size=8), 20)
        before, classes = sphere.queue.copy(), sphere.queue_classes.copy()
        step = sphere.step()
        np.testing.assert_array_equal(step.contrast.negatives, before)
        np.testing.assert_array_equal(step.negative_classes, classes)
        np.testing.assert_array_equal(sphere.queue[-1], sphere.keys[step.anchor])

    def test_what_it_returned_stays_as_it_was(self):
        sphere = run(SphereMoCo(queue_size=8), 20)
        step = sphere.step()
        query, negatives = step.contrast.query.copy(), step.contrast.negatives.copy()
        run(sphere, 1000)
        np.testing.assert_array_equal(step.contrast.query, query)
        np.testing.assert_array_equal(step.contrast.negatives, negatives)

    def test_displacement_is_tangential_and_leads_to_the_new_query(self):
        sphere = run(SphereMoCo(), 30)
        for _ in range(20):
            step = sphere.step()
            assert step.displacement @ step.contrast.query == pytest.approx(0, abs=1e-15)
            arrived = step.contrast.query + step.displacement
            np.testing.assert_allclose(step.query, arrived / np.linalg.norm(arrived), atol=1e-15)


class TestLossAndGradient:
    @given(contrasts)
    @settings(deadline=None)
    def test_direction_is_the_numerical_gradient(self, case):
        dim, negatives, temperature, seed = case
        rng = np.random.default_rng(seed)
        query, positive, *rest = unit_rows(rng, 2 + negatives, dim)
        queue = np.array(rest).reshape(negatives, dim)
        scored = info_nce(query, positive, queue, temperature)
        h = 1e-5 * temperature
        for axis in np.eye(dim):
            up = info_nce(query + h * axis, positive, queue, temperature).loss
            down = info_nce(query - h * axis, positive, queue, temperature).loss
            assert -temperature * (up - down) / (2 * h) == pytest.approx(scored.direction @ axis, abs=1e-6)

    @given(contrasts)
    @settings(deadline=None)
    def test_agrees_with_the_loss_of_training(self, case):
        torch = pytest.importorskip("torch")
        from moco_core.contrast import infonce

        dim, negatives, temperature, seed = case
        rng = np.random.default_rng(seed)
        rows = unit_rows(rng, 2 + negatives, dim)
        query, positive, queue = (torch.from_numpy(x) for x in (rows[:1], rows[1:2], rows[2:]))
        query = query.clone().requires_grad_()
        loss = infonce.info_nce(query, positive, queue, temperature).loss
        loss.backward()
        ours = info_nce(rows[0], rows[1], rows[2:], temperature)
        assert ours.loss == pytest.approx(loss.item(), abs=1e-6)
        np.testing.assert_allclose(-ours.direction / temperature, query.grad[0].numpy(), atol=1e-6)

    def test_weights_are_uniform_at_infinite_temperature(self):
        rng = np.random.default_rng(0)
        query, positive, *queue = unit_rows(rng, 66, 3)
        scored = info_nce(query, positive, np.array(queue), 1e9)
        np.testing.assert_allclose(scored.weights, 1 / 65, atol=1e-9)
        assert scored.loss == pytest.approx(math.log(65))

    def test_the_nearest_negative_takes_all_at_a_tiny_temperature(self):
        rng = np.random.default_rng(0)
        query, *queue = unit_rows(rng, 65, 3)
        scored = info_nce(query, -query, np.array(queue), 1e-6)
        nearest = np.argmax(queue @ query)
        assert scored.weights[1 + nearest] == pytest.approx(1)
        assert scored.loss == pytest.approx((1 + queue[nearest] @ query) / 1e-6)

    def test_tangential_part_is_across(self):
        rng = np.random.default_rng(0)
        vector, (at,) = rng.normal(size=3), unit_rows(rng, 1, 3)
        across = tangential(vector, at)
        assert across @ at == pytest.approx(0, abs=1e-15)
        np.testing.assert_allclose(across + (vector @ at) * at, vector, atol=1e-15)


class TestQueue:
    def test_first_in_first_out(self):
        sphere = SphereMoCo(queue_size=7)
        written: list[np.ndarray] = []
        for _ in range(400):
            anchor = sphere.step().anchor
            written.append(sphere.keys[anchor].copy())
            np.testing.assert_array_equal(sphere.queue, written[-7:])
            assert sphere.queue_classes[-1] == anchor

    def test_shrinks_from_the_old_end_at_once(self):
        sphere = run(SphereMoCo(queue_size=20), 50)
        newest, classes = sphere.queue[-5:].copy(), sphere.queue_classes[-5:].copy()
        sphere.queue_size = 5
        np.testing.assert_array_equal(sphere.queue, newest)
        np.testing.assert_array_equal(sphere.queue_classes, classes)

    def test_grows_by_new_keys_alone(self):
        sphere = run(SphereMoCo(queue_size=5), 50)
        held = sphere.queue.copy()
        sphere.queue_size = 8
        np.testing.assert_array_equal(sphere.queue, held)
        run(sphere, 3)
        np.testing.assert_array_equal(sphere.queue[:5], held)
        assert len(run(sphere, 100).queue) == 8


class TestSettings:
    def test_momentum_one_never_moves_a_key(self):
        sphere = SphereMoCo(momentum=1)
        keys = sphere.keys.copy()
        run(sphere, 500)
        np.testing.assert_array_equal(sphere.keys, keys)
        assert np.abs(sphere.queries - keys).max() > 0.1

    def test_momentum_zero_copies_the_query(self):
        sphere = SphereMoCo(momentum=0)
        for _ in range(500):
            anchor = sphere.step().anchor
            np.testing.assert_array_equal(sphere.keys[anchor], sphere.queries[anchor])

    def test_opposite_query_and_key_leave_the_key_in_place(self):
        sphere = SphereMoCo(classes=1, momentum=0.5, step_size=0)
        sphere.queries[0], sphere.keys[0] = [1, 0, 0], [-1, 0, 0]
        sphere.step()
        np.testing.assert_array_equal(sphere.keys[0], [-1, 0, 0])

    def test_they_act_between_steps(self):
        sphere, twin = run(SphereMoCo(), 100), run(SphereMoCo(), 100)
        np.testing.assert_array_equal(sphere.queries, twin.queries)
        twin.temperature, twin.momentum, twin.queue_size, twin.step_size = 1.5, 0.3, 9, 0.6
        step, other = sphere.step(), twin.step()
        assert step.anchor == other.anchor
        np.testing.assert_array_equal(step.contrast.query, other.contrast.query)
        expected = info_nce(step.contrast.query, step.contrast.positive, step.contrast.negatives[-9:], 1.5)
        assert other.loss == expected.loss
        np.testing.assert_allclose(other.contrast.weights, expected.weights)
        assert np.linalg.norm(other.displacement) == pytest.approx(
            0.6 * np.linalg.norm(tangential(expected.direction, expected.query))
        )

    def test_one_seed_draws_the_same_anchors_at_any_setting(self):
        usual, odd = SphereMoCo(seed=5), SphereMoCo(seed=5, temperature=2, momentum=0, queue_size=3)
        assert [usual.step().anchor for _ in range(200)] == [odd.step().anchor for _ in range(200)]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("temperature", value) for value in (0, -1, math.nan, math.inf)),
            *(("momentum", value) for value in (-0.01, 1.01, math.nan)),
            *(("queue_size", value) for value in (0, -3, 2.5)),
            *(("step_size", value) for value in (-0.1, math.nan, math.inf)),
            *(("classes", value) for value in (0, 1.5)),
            *(("seed", value) for value in (-1, 0.5)),
        ],
    )
    def test_bad_values_are_named(self, name, value):
        with pytest.raises(ValueError, match=f"^{name} must .*got {value}"):
            SphereMoCo(**{name: value})
        if name not in ("classes", "seed"):
            sphere = SphereMoCo()
            before = getattr(sphere, name)
            with pytest.raises(ValueError, match=f"^{name} must .*got {value}"):
                setattr(sphere, name, value)
            assert getattr(sphere, name) == before


def test_vectors_stay_unit_over_100_000_steps():
    sphere = run(SphereMoCo(step_size=2, momentum=0.7), 100_000)
    everything = np.vstack([sphere.queries, sphere.keys, sphere.queue])
    np.testing.assert_allclose(np.linalg.norm(everything, axis=1), 1, atol=1e-12, rtol=0)


@pytest.fixture(scope="module")
def spheres() -> list[SphereMoCo]:
    return [run(SphereMoCo(seed=seed), 2000) for seed in range(20)]


class TestSeparation:
    def test_every_class_finds_its_own_key(self, spheres):
        own = [(s.queries @ s.keys.T).argmax(axis=1).tolist() == list(range(6)) for s in spheres]
        assert sum(own) >= 19

    def test_queries_come_near_to_the_best_that_six_vectors_can_do(self, spheres):
        means = np.array([pairwise_cosines(s.queries).mean() for s in spheres])
        assert (means >= -1 / 5).all()  # no six vectors can do better
        assert means.max() < -0.19
        assert np.median(means) < -0.198

    def test_octahedron_is_the_best(self):
        octahedron = np.vstack([np.eye(3), -np.eye(3)])
        assert pairwise_cosines(octahedron).mean() == pytest.approx(-1 / 5)
        assert pairwise_cosines(octahedron).max() == 0
