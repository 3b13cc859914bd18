"""A page for each third-party runtime that bundles are exported for."""

from __future__ import annotations

import inspect
from pathlib import Path

from docs.site.docstrings import markdown
from docs.site.staging import ROOT, code_block
from docs.site.tables import contents, listed, table
from kerasformer.bundle.tested import Tested, runtimes
from kerasformer.export import TARGETS


def pages() -> dict[str, str]:
    """Returns the pages of all targets and their index, by name."""
    tested = runtimes()
    rows = [(f"[{name}]({name}.md)", target.summary, target.format or "any") for name, target in TARGETS.items()]
    index = (
        "# Targets\n\nA target is a third-party runtime that needs more than the plain bundle, or less: "
        "`model.export(folder, target=…)`.\n\n"
    )
    written = {f"targets/{name}": _page(tested[name]) for name in TARGETS}
    return {"targets/index": index + table(["target", "runtime", "format"], rows) + contents(TARGETS), **written}


def _page(runtime: Tested) -> str:
    target = TARGETS[runtime.name]
    module = inspect.getmodule(type(target))
    text = markdown(module.__doc__)
    source = f"export/{Path(inspect.getfile(type(target))).resolve().relative_to(ROOT / 'export').as_posix()}"
    tasks = [
        (f"`{task}`", ", ".join(f"`{name}`" + _recipes(recipes) for name, recipes in models.items()))
        for task, models in runtime.bundles.items()
    ]
    refused = [
        (f"`{task}`", listed(models), why) for why, found in runtime.refused.items() for task, models in found.items()
    ]
    files = "; an app needs " + listed(target.app_files) + " beside the model" if target.app_files else ""
    return (
        f"""# {runtime.name}

{runtime.summary}. Tested with {runtime.version}.

```python
import kerasformer as kf

model = kf.load("path, hub id or preset")
model.export("out", target="{runtime.name}")
```

```bash
kerasformer export SOURCE out {runtime.option}
```

The bundle has the format {f"`{target.format}`" if target.format else "that is asked for"}{files}. Its card has the
programs that run it.

{text}

## Tested models

A tiny model of the architecture was exported, run with this runtime's own package, and compared with Keras. Names in
parentheses are recipes that were tested beside float32.

{table(["task", "architectures"], tasks)}
"""
        + ("## Refused at export\n\n" + table(["task", "architectures", "reason"], refused) if refused else "")
        + f"""
## Source

`{source}`:

{code_block(ROOT / source)}
"""
    )


def _recipes(recipes: list[str]) -> str:
    further = [name for name in recipes if name != "none"]
    return f" ({', '.join(further)})" if further else ""
