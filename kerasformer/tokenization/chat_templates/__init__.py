"""Chat templates: Jinja templates that convert a conversation to the text that a model was trained on."""

from kerasformer.tokenization.chat_templates.files import DEFAULT, ChatTemplates, pair_template, read_templates
from kerasformer.tokenization.chat_templates.rendering import Message, Rendered, render

__all__ = ["DEFAULT", "ChatTemplates", "Message", "Rendered", "pair_template", "read_templates", "render"]
