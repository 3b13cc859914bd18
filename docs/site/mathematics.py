"""Formulas as MathML, which browsers draw without a library."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml


def add_mathml(app: Any) -> None:
    """Adds the renderer `mathml` to Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula" tabindex="0">{_mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(text: str, as_block: bool) -> str:
    for command, known in _SAME.items():
        text = text.replace(command, known)
    return str(latex2mathml.tex2mathml(text, as_block=as_block))


_SAME = {r"\dots": r"\ldots", r"\;": r"\ ", r"\qquad": r"\quad\quad", r"\big": ""}
"""Commands that docutils does not know, by others with the same meaning."""
