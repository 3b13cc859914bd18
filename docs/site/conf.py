"""Configuration of Sphinx. Colours are those of the page of `kerasformer web`, read from its style sheet."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.colours import PAGE, colours  # noqa: E402
from docs.site.mathematics import add_mathml  # noqa: E402

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


def _variables(colour: dict[str, str]) -> dict[str, str]:
    """Returns the variables of the theme."""
    return {
        **{f"kf-{name}": value for name, value in colour.items()},
        "font-stack": 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif',
        "color-brand-primary": colour["accent"],
        "color-brand-content": colour["accent"],
        "color-brand-visited": colour["accent"],
        "color-foreground-primary": colour["text"],
        "color-foreground-secondary": colour["muted"],
        "color-foreground-muted": colour["muted"],
        "color-foreground-border": colour["edge"],
        "color-sidebar-link-text": colour["text"],
        "color-sidebar-link-text--top-level": colour["text"],
        "color-sidebar-caption-text": colour["muted"],
        "color-background-primary": colour["card"],
        "color-background-secondary": colour["page"],
        "color-background-hover": colour["raised"],
        "color-background-border": colour["line"],
        "color-background-item": colour["raised"],
        "color-code-background": colour["page"],
        "color-code-foreground": colour["text"],
        "color-inline-code-background": colour["raised"],
        "color-api-background": colour["raised"],
        "color-api-overall": colour["muted"],
        "color-api-name": colour["accent"],
        "color-api-pre-name": colour["accent"],
        "color-api-keyword": colour["muted"],
        "color-api-paren": colour["muted"],
        "color-highlight-on-target": colour["accent-soft"],
        "color-highlighted-background": colour["mark-1"],
        "color-link-underline": colour["accent"],
        "color-sidebar-search-icon": colour["muted"],
    }


_themes = colours()
html_theme_options = {
    "light_css_variables": _variables(_themes["light"]),
    "dark_css_variables": _variables(_themes["dark"]),
    "navigation_with_keys": True,
}


def setup(app: object) -> None:
    """Adds the renderer of formulas."""
    add_mathml(app)
