"""Names from outside are shown as they are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.dashboard.text import duration, lines_html, number, numeral, plain, plain_html, tick_html


@given(st.text())
def test_plain_takes_no_character_away(text: str) -> None:
    escaped = plain(text)
    assert "\n" not in escaped
    unescaped = "".join(c for i, c in enumerate(escaped) if not (c == "\\" and _escapes(escaped, i)))
    assert unescaped == " ".join(text.split())


def test_plain_shows_what_is_no_character() -> None:
    assert plain("runs-\udcff") == "runs\\-?"


def _escapes(text: str, index: int) -> bool:
    """Whether the backslash at `index` is itself not escaped, and so escapes what follows."""
    before = 0
    while index - before > 0 and text[index - before - 1] == "\\":
        before += 1
    return before % 2 == 0


def test_long_lines_are_broken_between_words_and_lose_nothing() -> None:
    assert lines_html("a short one", 11) == "a short one"
    assert lines_html("a short  one & more", 11) == "a short one<br>&amp; more"
    assert lines_html("<b>" * 5, 9) == "&lt;b&gt;" * 3 + "<br>" + "&lt;b&gt;" * 2
    assert lines_html("", 9) == ""


def test_names_beside_an_axis_are_cut_before_they_are_escaped() -> None:
    assert tick_html("of  24 letters, as it is.") == "of 24 letters, as it is."
    assert tick_html("of 25 letters, and so cut") == "of 25 letters, and so c…"
    assert tick_html("<b>" * 9) == "&lt;b&gt;" * 7 + "&lt;b…"


def test_markup_is_taken_literally() -> None:
    assert plain("*a* [b](c) $d$ :red[e] <b>") == r"\*a\* \[b\]\(c\) \$d\$ \:red\[e\] \<b\>"
    assert plain_html("<b>a & b</b>\nc") == "&lt;b&gt;a &amp; b&lt;/b&gt; c"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (99, "99 s"),
        (100, "2 min"),
        (5400, "90 min"),
        (7200, "2 h"),
        (9000, "2.5 h"),
        (4e5, "5 d"),
    ],
)
def test_durations_in_their_largest_fitting_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-3.876, ".2f", "−3.88"),
        (0.5, "+.1f", "+0.5"),
        (-1e-5, ".1e", "−1.0×10⁻⁵"),
        (1.2e13, ".3g", "1.2×10¹³"),
        (-1e-5, "z.2f", "0.00"),
    ],
)
def test_negative_numbers_have_a_minus_sign(value: float, form: str, text: str) -> None:
    assert numeral(value, form) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000"), (-0.25, "−0.250"), (2353.4482, "2,353.448"), (0.0000147, "1.5×10⁻⁵"), (math.nan, "–")],
)
def test_a_number_never_hides_what_it_is(value: float, text: str) -> None:
    assert number(value) == text
