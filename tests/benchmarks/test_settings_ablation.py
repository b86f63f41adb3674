"""The plan of the ablation of four settings and its report, without any training."""

import json
from xml.etree import ElementTree

from benchmarks import settings_ablation as ablation
from moco_core.dashboard.sweeps import Outcome, grouped

EVERY = list(ablation.FACTORS)


def groups(fields):
    """A finished run of every experiment; a higher τ has a worse probe."""
    outcomes = [
        Outcome(str(i), str(i), e.config, "finished", 100, {"linear": 1 - e.config.temperature / 2}, "none")
        for i, e in enumerate(ablation.experiments(fields, 100, 2))
    ]
    return grouped(outcomes)


def test_each_setting_varies_alone_and_the_base_is_trained_once():
    configs = [e.config for e in ablation.experiments(EVERY, 100, 2)]
    assert len(set(configs)) == len(configs) == 2 * (1 + 3 + 1 + 4 + 3)
    base = configs[0].to_dict()
    for config in configs:
        changed = {name for name, value in config.to_dict().items() if value != base[name]} - {"seed"}
        assert len(changed) <= 1
        assert changed <= set(EVERY)


def test_one_setting_can_be_taken_alone(tmp_path):
    found = groups(["temperature"])
    assert len(found) == 5
    ablation.write(["temperature"], found, tmp_path, 10)
    text = (tmp_path / "settings_ablation_temperature.md").read_text()
    assert "10 of 10 runs finished" in text
    assert "| 0.5 | 2 | 0.750 ± 0.000 |" in text
    assert "augmentation strength |" not in text


def test_the_report_has_a_table_and_a_panel_for_each_setting(tmp_path, capsys):
    ablation.write(EVERY, groups(EVERY), tmp_path, 24)
    text = (tmp_path / "settings_ablation.md").read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    assert text.count("\n## ") == 4
    assert "\n## Queue size K\n" in text
    assert "span 47.5 points; over seeds its standard deviation is 0.0 points" in text  # τ from 0.05 to 1
    for row in ("| 16384 | 2 | 0.900", "| split | 2 | 0.900", "| 1.0 | 2 | 0.500", "| 1.5 | 2 | 0.900"):
        assert row in text
    data = json.loads((tmp_path / "settings_ablation.json").read_text())
    assert [*data["temperature"]] == ["0.05", "0.1", "0.2", "0.5", "1.0"]
    assert len(data["queue_size"]["4096"]["runs"]) == 2
    svg = ElementTree.fromstring((tmp_path / "settings_ablation.svg").read_text())
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 2 * (4 + 2 + 5 + 4)
