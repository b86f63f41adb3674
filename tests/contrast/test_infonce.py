import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from moco_core.contrast.infonce import info_nce


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=1)


def by_the_formula(q, k_pos, k_neg, temperature):
    """−log of the positive's share, term by term with Python numbers."""
    losses = []
    for i in range(len(q)):
        pos = math.exp(float(q[i] @ k_pos[i]) / temperature)
        neg = sum(math.exp(float(q[i] @ k) / temperature) for k in k_neg)
        losses.append(-math.log(pos / (pos + neg)))
    return sum(losses) / len(losses)


@given(
    batch=st.integers(1, 5),
    negatives=st.integers(0, 7),
    dim=st.integers(2, 6),
    temperature=st.floats(0.05, 5),
    seed=st.integers(0, 1000),
)
def test_equals_the_formula(batch, negatives, dim, temperature, seed):
    q, k_pos, k_neg = (
        unit(batch, dim, seed=seed),
        unit(batch, dim, seed=seed + 1),
        unit(negatives, dim, seed=seed + 2),
    )
    result = info_nce(q, k_pos, k_neg, temperature)
    assert result.logits.shape == (batch, 1 + negatives)
    assert result.loss.item() == pytest.approx(
        by_the_formula(q, k_pos, k_neg, temperature), rel=1e-9, abs=1e-12
    )


def test_closed_form_of_orthogonal_negatives():
    q = torch.tensor([[1.0, 0.0]])
    negatives = torch.tensor([[0.0, 1.0]]).repeat(9, 1)
    loss = info_nce(q, q, negatives, 0.5).loss.item()
    assert loss == pytest.approx(math.log(1 + 9 * math.exp(-2)), rel=1e-6)


def test_equal_cosines_give_chance_loss():
    q = unit(3, 4)
    assert info_nce(q, q, q[:1].repeat(5, 1), 1e6).loss.item() == pytest.approx(math.log(6), rel=1e-5)


def test_no_negatives_no_loss():
    assert (
        info_nce(unit(3, 4), unit(3, 4, seed=1), torch.zeros(0, 4, dtype=torch.float64), 0.2).loss.item() == 0
    )


def test_excluded_pairs_do_not_count():
    q, k = unit(4, 3), unit(4, 3, seed=1)
    excluded = torch.eye(4, dtype=torch.bool)
    rows = [info_nce(q[i : i + 1], k[i : i + 1], k[torch.arange(4) != i], 0.2).loss for i in range(4)]
    assert info_nce(q, k, k, 0.2, excluded).loss.item() == pytest.approx(torch.stack(rows).mean().item())


def test_gradient_is_the_analytic_one():
    q, k_pos, k_neg = unit(1, 5).requires_grad_(), unit(1, 5, seed=1), unit(6, 5, seed=2)
    loss, logits = info_nce(q, k_pos, k_neg, 0.3)
    loss.backward()
    p = logits.detach().softmax(dim=1)[0]
    expected = (-(1 - p[0]) * k_pos[0] + p[1:] @ k_neg) / 0.3
    torch.testing.assert_close(q.grad[0], expected)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"query": torch.zeros(0, 3)}, "query must be B×D"),
        ({"positive": torch.zeros(2, 4)}, "positive must have the query's shape"),
        ({"negatives": torch.zeros(5, 4)}, "negatives must be K×3"),
        ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be"),
    ],
)
def test_bad_input_names_the_argument(change, sentence):
    good = {
        "query": torch.zeros(2, 3),
        "positive": torch.zeros(2, 3),
        "negatives": torch.zeros(5, 3),
        "temperature": 0.2,
    }
    with pytest.raises(ValueError, match=sentence):
        info_nce(**good | change)
