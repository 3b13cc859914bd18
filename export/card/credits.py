"""What the card of a bundle says about the origin of its weights."""

from __future__ import annotations

from kerasformer.basics.tasks import VARIANTS
from kerasformer.export.card.quoting import code, markdown, yaml
from kerasformer.models.origin import CARD, FACTS, Origin

__all__ = ["CARD", "NONE", "Credits"]
_OF_THE_BASE = ("base_model", "base_model_relation", "base_model_license")


class Credits(Origin):
    """Origin of a model, for the card of a bundle."""

    def front_matter(self, task: str) -> str:
        """Returns the front matter of the bundle's card."""
        lines = ["library_name: kerasformer", f"pipeline_tag: {yaml(VARIANTS.get(task, task))}"]
        for key, texts in self.facts.items():
            lines += [f"{key}: {yaml(texts[0])}"] if len(texts) == 1 else [f"{key}:", *(f"- {yaml(t)}" for t in texts)]
        return "\n".join(["---", *lines, "---", "", ""])

    def summary(self) -> str:
        """Returns a summary of origin and licence for the beginning of the bundle's card."""
        if self.based_on:
            return self._summary_of_fine_tuned()
        if not self.name:
            return ""
        facts = "".join(
            f"; {FACTS[key].lower()}: {', '.join(map(markdown, texts))}" for key, texts in self.facts.items()
        )
        files = [code(name) for name in self.files]
        about = f" [{CARD}]({CARD}) describes the model, its uses and its limits." if self.card else ""
        notice = f" If you distribute this bundle, include {' and '.join(files)}." if files else ""
        unknown = "" if "license" in self.facts or self.legal else " It does not specify a licence: ask its authors."
        return f"The weights are from {code(self.name)}{facts}.{unknown}{about}{notice}\n"

    def _summary_of_fine_tuned(self) -> str:
        """Returns the summary of a model that was fine-tuned, whose base has a licence and uses of its own."""
        facts = self.facts
        own = "".join(
            f"; {FACTS[key].lower()}: {', '.join(map(markdown, texts))}"
            for key, texts in facts.items()
            if key not in _OF_THE_BASE
        )
        licence = f", whose licence is {markdown(facts['base_model_license'][0])}" if _OF_THE_BASE[2] in facts else ""
        text = f"The weights were fine-tuned from {code(self.based_on)}{licence}{own}."
        if self.card:
            text += f" [{CARD}]({CARD}) describes the model, its uses and its limits."
        if files := [code(name) for name in (*self.legal, *([CARD] if self.card else []))]:
            text += f" If you distribute this bundle, include {' and '.join(files)}."
        return text + "\n"


NONE = Credits()
"""Credits of a model that was not loaded from a checkpoint."""
