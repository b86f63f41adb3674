"""Names from outside shown as they are: nothing in them is taken for markup."""

import html
import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&@])")


def plain(text: str) -> str:
    """`text` for places that read Markdown, every special character escaped, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def plain_html(text: str) -> str:
    """`text` for places that read HTML: Plotly's titles, legends and hover labels."""
    return html.escape(" ".join(text.split()), quote=False)


def ago(seconds: float) -> str:
    """A duration in its largest unit, e.g. `3 min`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
