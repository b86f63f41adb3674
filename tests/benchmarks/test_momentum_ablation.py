"""The plan of the momentum ablation and its report, without any training."""

import json
from xml.etree import ElementTree

from benchmarks import momentum_ablation as ablation
from moco_core import paper
from moco_core.dashboard.sweeps import Outcome, grouped


def outcomes(accuracy):
    """A finished run of every experiment; `accuracy(config)` is its linear probe's."""
    return [
        Outcome(
            str(i), str(i), e.config, "finished", 100, {"linear": accuracy(e.config), "loss": 3.0}, "none"
        )
        for i, e in enumerate(ablation.experiments(100, 2))
    ]


def as_in_the_paper(config):
    return (paper.MOMENTUM_ABLATION[config.momentum] or 10) / 100


def test_the_plan_covers_the_papers_momenta_and_three_methods_at_equal_k():
    plan = ablation.experiments(1500, 2)
    configs = [experiment.config for experiment in plan]
    assert {c.momentum for c in configs if c.queue_size == 4096 and c.method == "moco"} == set(
        paper.MOMENTUM_ABLATION
    )
    equal = [c for c in configs if c.negatives == 127]
    assert {c.method for c in equal} == {"moco", "memory-bank", "in-batch"}
    assert {c.seed for c in configs} == {0, 1}
    assert len(set(map(str, configs))) == len(configs)
    assert all(c.dataset == "fashion-mnist" and c.steps == 1500 for c in configs)


def momentum_groups(accuracy):
    return [
        g for g in grouped(outcomes(accuracy)) if g.config.method == "moco" and g.config.queue_size == 4096
    ]


def test_the_papers_order_is_recognised():
    groups = momentum_groups(as_in_the_paper)
    assert all(agrees for *_, agrees in ablation.pairs(groups))
    assert ablation.order(groups) == "Of 10 pairs of momenta, 10 are in the paper's order by linear probe."


def test_what_is_not_reproduced_is_said():
    groups = momentum_groups(lambda c: 0.1 if c.momentum == 0.9999 else as_in_the_paper(c))
    text = ablation.order(groups)
    assert "7 are in the paper's order" in text
    assert "Not reproduced: m = 0.9999 over m = 0, m = 0.9999 over m = 0.9, m = 0.9999 over m = 0.99." in text
    assert "no order" in ablation.order(groups[:1])


def test_the_report_is_a_table_a_json_and_a_figure(tmp_path, capsys):
    ablation.write(grouped(outcomes(as_in_the_paper)), tmp_path, 18)
    text = (tmp_path / "momentum_ablation.md").read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    assert "| moco | 0.9 | 4,096 | 2 | 0.552 ± 0.000 |" in text
    assert "fails" in text
    data = json.loads((tmp_path / "momentum_ablation.json").read_text())
    assert [g["config"]["momentum"] for g in data["momentum"]] == list(paper.MOMENTUM_ABLATION)
    assert {g["config"]["method"] for g in data["methods"]} == {"moco", "memory-bank", "in-batch"}
    assert all(pair["agrees"] for pair in data["pairs"])
    svg = ElementTree.fromstring((tmp_path / "momentum_ablation.svg").read_text())
    words = {node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"fails", "0.9999", "memory", "K = 127"} <= words
    dots = list(svg.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) == 10 + 4 + 10  # ours, the paper's, the methods'


def test_the_figure_stands_with_nothing_finished():
    from benchmarks.ablation_figure import figure

    assert ElementTree.fromstring(figure([], [])) is not None
