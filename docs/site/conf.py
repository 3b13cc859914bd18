"""Configuration of Sphinx. Colours are those of the page of `kerasformer web`, read from its style sheet."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.mathematics import add_mathml  # noqa: E402

PAGE = ROOT / "kerasformer" / "web" / "page"

project = "kerasformer"
author = "the authors of kerasformer"
copyright = author
language = "en"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns: list[str] = []
source_suffix = {".md": "markdown"}
root_doc = "index"

myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
nitpicky = False
suppress_warnings = [
    "ref.python",  # types in signatures link by their last name, which several modules may have
    "misc.highlighting_failure",  # outputs of programs are not always a language
    "myst.header",  # pages of the repository and notebooks may begin with a heading of any level
]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_math_renderer = "mathml"

html_theme = "furo"
html_title = "kerasformer"
html_short_title = "kerasformer"
html_logo = str(PAGE / "icons" / "icon.svg")
html_favicon = str(PAGE / "icons" / "icon.svg")
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def _colours() -> tuple[dict[str, str], dict[str, str]]:
    """Returns the custom properties of the page's style sheet for its light and its dark theme."""
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): ([^;]+);", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    )
    return light, {**light, **dark}


def _variables(colours: dict[str, str]) -> dict[str, str]:
    """Returns the variables of the theme."""
    return {
        **{f"kf-{name}": value for name, value in colours.items()},
        "font-stack": 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif',
        "color-brand-primary": colours["accent"],
        "color-brand-content": colours["accent"],
        "color-brand-visited": colours["accent"],
        "color-foreground-primary": colours["text"],
        "color-foreground-secondary": colours["muted"],
        "color-foreground-muted": colours["muted"],
        "color-foreground-border": colours["edge"],
        "color-sidebar-link-text": colours["text"],
        "color-sidebar-link-text--top-level": colours["text"],
        "color-sidebar-caption-text": colours["muted"],
        "color-background-primary": colours["card"],
        "color-background-secondary": colours["page"],
        "color-background-hover": colours["raised"],
        "color-background-border": colours["line"],
        "color-background-item": colours["raised"],
        "color-code-background": colours["page"],
        "color-code-foreground": colours["text"],
        "color-inline-code-background": colours["raised"],
        "color-api-background": colours["raised"],
        "color-api-overall": colours["muted"],
        "color-api-name": colours["accent"],
        "color-api-pre-name": colours["accent"],
        "color-api-keyword": colours["muted"],
        "color-api-paren": colours["muted"],
        "color-highlight-on-target": colours["accent-soft"],
        "color-highlighted-background": colours["mark-1"],
        "color-link-underline": colours["accent"],
        "color-sidebar-search-icon": colours["muted"],
    }


_light, _dark = _colours()
html_theme_options = {
    "light_css_variables": _variables(_light),
    "dark_css_variables": _variables(_dark),
    "navigation_with_keys": True,
}


def setup(app: object) -> None:
    """Adds the renderer of formulas."""
    add_mathml(app)
