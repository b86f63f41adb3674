"""Names from outside shown as they are: nothing in them is taken for markup."""

import html
import math
import re
import textwrap

from moco_core.runs.schema import readable

LONGEST_TICK = 24
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&@])")


def plain(text: str) -> str:
    """`text` for places that read Markdown, every special character escaped, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(readable(text).split()))


def unmarked(text: str) -> str:
    """Markdown of our own without its marks, for places that show plain text."""
    return re.sub(r"[*_`\\]", "", text)


def plain_html(text: str) -> str:
    """`text` for places that read HTML: Plotly's titles, legends and hover labels."""
    return html.escape(" ".join(text.split()), quote=False)


def tick_html(text: str) -> str:
    """`plain_html` of a name beside an axis, cut to `LONGEST_TICK` letters: longer ones leave no room to draw."""
    line = " ".join(text.split())
    return plain_html(line if len(line) <= LONGEST_TICK else line[: LONGEST_TICK - 1].rstrip() + "…")


def lines_html(text: str, width: int) -> str:
    """`plain_html` on as many lines as it takes when none has more than `width` letters."""
    return "<br>".join(map(plain_html, textwrap.wrap(" ".join(text.split()), width)))


def duration(seconds: float) -> str:
    """A length of time in its largest fitting unit, e.g. `45 s`, `12 min`, `3.5 h`, `4 d`."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 48:
        return f"{hours:.1f}".removesuffix(".0") + " h"
    return f"{hours / 24:.0f} d"


def numeral(value: float, form: str) -> str:
    """A number as `format` writes it, with a minus sign where that puts a hyphen, and ×10⁻⁵ for e-05."""
    mantissa, _, exponent = format(value, form).partition("e")
    power = f"×10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if exponent else ""
    return mantissa.replace("-", "−") + power


def number(value: float) -> str:
    """A number to three decimals, or to two digits where these would show none; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    return numeral(value, ",.3f" if abs(value) >= 0.001 or value == 0 else ".1e")
