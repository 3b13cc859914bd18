"""The page in Chromium, on phone and desktop screens, with a mock of the worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kerasformer.bundle import EmbeddingInfo, LanguageInfo, SpanInfo
from tests.grids import grid
from tests.tools.web.sites import ERRORS, SPY, Browser, edit_site, served, write_bundle, write_site

pytestmark = pytest.mark.foreign("web")

REVIEWS, STORIES, PREFIXES = "Film reviews", "Stories", "Prefixes"
TASKS = {
    "token-classification": "Ada Lovelace PER",
    "zero-shot-classification": "travel",
    "zero-shot-token-classification": "Ada Lovelace person",
    "text-ranking": "Charge the battery fully before the first use.\n4.500",
    "sentence-similarity": "0.750",
    "question-answering": "lighthouse",
    "fill-mask": "The capital of France is Paris.",
    "feature-extraction": "Similarity 0.960",
    "summarization": "The boat came back",
    "translation": "The boat came back",
    "text2text-generation": "The boat came back",
}
LANGUAGES = {code: index for index, code in enumerate(("eng_Latn", "zho_Hans", "zho_Hant", "deu_Latn", "quy_Latn"))}
INFO = {
    "zero-shot-classification": {"labels": ("entailment", "neutral", "contradiction")},
    "zero-shot-token-classification": {"spans": SpanInfo(12, 384, "<<ENT>>", "<<SEP>>")},
    "text-ranking": {"labels": ("irrelevant", "relevant")},
    "translation": {"languages": LanguageInfo(LANGUAGES, False, "forced_bos_token_id", "eng_Latn")},
    "text2text-generation": {"task_prefixes": {}},
    "sentence-similarity": {"embedding": EmbeddingInfo(3, normalized=True, prompts={"query": "query: "})},
}
SCREENS = [(360, 740, "light"), (1280, 800, "dark")]
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sites")
    prefixes = {"translation_en_to_de": "translate English to German: ", "translation_en_to_fr": "to French: "}
    bundles = [f"{REVIEWS}={write_bundle(root / f'reviews-{kind}', format=kind)}" for kind in ("tflite", "onnx")]
    bundles.append(f"{STORIES}={write_bundle(root / 'story', 'text-generation', model_type='gpt2')}")
    bundles += [
        str(write_bundle(root / task, task, **{"task_prefixes": prefixes, **INFO.get(task, {})})) for task in TASKS
    ]
    bundles.append(f"{PREFIXES}={write_bundle(root / 'prefixes', 'text2text-generation', task_prefixes=prefixes)}")
    return write_site(root / "site", *bundles, title="Small models")


@pytest.fixture(scope="module")
def url(site):
    with served(site) as address:
        yield address


@pytest.fixture
def small(tmp_path) -> Path:
    """A site with one model, which tests can damage."""
    return write_site(tmp_path / "site", write_bundle(tmp_path / "reviews"))


def example(page: Browser, model: str | None = None) -> str:
    """Chooses the first example and returns its answer."""
    if model:
        page("choose", at="#model", label=model)
    page("click", at="#examples button")
    return page.answered()


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: f"{screen[0]}-{screen[2]}")
def test_every_view_fits_and_is_accessible(chromium, url, screen):
    width, height, scheme = screen
    chromium.open(url, width, height, scheme=scheme)
    chromium.ready()
    assert_good(chromium, "start")
    assert example(chromium).split() == ["POSITIVE", "97.3", "%", "NEGATIVE", "2.7", "%"]
    if width > 900:
        assert_visible(chromium, height)
    chromium("click", at="#about summary")
    assert_good(chromium, "reviews")
    chromium("choose", at="#model", label=STORIES)
    chromium("click", at="#settings summary")
    chromium("click", at="#settings .option:last-child")
    chromium("fill", at="#set-max_new_tokens", text="25")
    assert "The old man looked at the sea and" in example(chromium)
    assert_good(chromium, "stories")
    for task, expected in TASKS.items():
        assert expected in example(chromium, task)
        assert_good(chromium, task)
    assert chromium("console") == []


def assert_visible(page: Browser, height: int) -> None:
    """Checks that input and answer are visible without scrolling, and that the engine comes after the text."""
    parts = ["model", "field-text", "examples", "run", "state", "answer-title", "result"]
    bottoms = page("run", script=f"{parts}.map((id) => document.getElementById(id).getBoundingClientRect().bottom)")
    assert max(bottoms) <= height, dict(zip(parts, bottoms, strict=True))
    assert bottoms[:5] == sorted(bottoms[:5])
    tops = page("run", script="['run', 'engines'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
    assert tops[0] < tops[1] or tops[1] == 0


def assert_good(page: Browser, name: str) -> None:
    assert page("axe") == []
    assert not page("run", script=WIDER), f"{name} is wider than the screen"


STATE = "document.getElementById('state').textContent"


def test_the_first_example_runs_when_the_page_opens(chromium, url):
    chromium.open(url, 1280, 800, scripts=[SPY])
    assert "POSITIVE" in chromium.answered()
    assert chromium("text", at="#question") == chromium("text", at="#examples button")
    assert chromium("run", script=FOCUSED) != "field-text" and chromium("run", script="scrollY") == 0
    assert chromium("text", at="#spoken") == ""  # the user did not start this


@pytest.mark.parametrize(
    ("width", "connection"),
    [
        pytest.param(390, "{}", id="phone"),
        pytest.param(1280, "{saveData: true}", id="saver"),
        pytest.param(1280, "{effectiveType: '3g'}", id="slow", marks=pytest.mark.release),
    ],
)
def test_no_automatic_download_on_metered_connections(chromium, url, width, connection):
    connected = f"Object.defineProperty(Navigator.prototype, 'connection', {{get: () => ({connection})}})"
    chromium.open(url, width, 800, scripts=[SPY, connected])
    chromium.ready()
    first = chromium("text", at="#examples button")
    assert chromium("run", script="document.getElementById('field-text').value") == first
    assert (
        chromium("run", script=STATE).startswith("Not loaded: 0.1 MB") and chromium("run", script="posted.length") == 0
    )
    chromium("click", at="#run")
    chromium.answered()
    chromium("until", script=f"{STATE}.includes('works offline')")
    chromium("reload")
    assert "POSITIVE" in chromium.answered()  # now stored on the device


def test_a_new_question_replaces_a_running_one(chromium, url):
    chromium.open(url, 1280, 800, scripts=[SPY])
    chromium.ready()
    chromium.answered()
    chromium("choose", at="#model", label=STORIES)
    for number in (1, 2, 3):
        chromium("click", at=f"#examples button:nth-child({number})")
    assert chromium.answered().startswith(chromium("text", at="#examples button:nth-child(3)"))
    loads = "posted.filter(({type}) => type === 'load').map(({base}) => base)"
    assert chromium("run", script=f"new Set({loads}).size") == 3  # two engines of the first model were compared
    assert chromium("run", script=f"{loads}.filter((base) => base.includes('stories')).length") == 1


SEED = "document.querySelector('#more-figures div:last-child dd').textContent"
COPIES = "navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }"


def test_an_answer_is_copied_generated_again_and_shared(chromium, url):
    chromium.open(url, scripts=[SPY, COPIES])
    chromium.ready()
    assert "POSITIVE" in example(chromium)
    chromium("click", at="#copy")
    assert chromium("run", script="copied") == "POSITIVE 97.3 %\nNEGATIVE 2.7 %"
    assert chromium("text", at="#copy-status") == "Copied." and not chromium("visible", at="#again")
    chromium("choose", at="#model", label=STORIES)
    chromium("click", at="#settings summary")
    chromium("click", at="#settings .option:last-child")
    chromium("fill", at="#set-max_new_tokens", text="5")
    chromium("fill", at="#set-stop_strings", text="The end & more")
    chromium("fill", at="#field-text", text="Once, 50 % of “it” = #1")
    chromium("click", at="#run")
    text = chromium.answered()
    first = sent(chromium, "run")
    assert first["options"]["seed"] == int(chromium("run", script=SEED))
    chromium("click", at="#copy")
    assert (
        chromium("run", script="copied") == text.removesuffix("\nStopped at the maximum number of new tokens.").rstrip()
    )
    chromium("fill", at="#field-text", text="something else")
    chromium("click", at="#again")
    chromium.answered()
    second = sent(chromium, "run")
    assert second["inputs"] == first["inputs"] and second["options"]["seed"] != first["options"]["seed"]
    chromium("click", at="#share")
    link = chromium("run", script="copied")
    assert link == chromium("run", script="location.href") and link.startswith(f"{url}#model=stories&")
    chromium.open(link, 1280, 800, scripts=[SPY])
    chromium.answered()
    assert {**sent(chromium, "run"), "id": 0} == {**second, "id": 0}
    assert not chromium("visible", at="#again")  # with this seed, the text would be the same
    chromium.open(f"{url}#model=another&text=x")
    assert "a model that this page does not have: another" in chromium.problem()
    assert "POSITIVE" in example(chromium)


def test_text_streams_and_stops(chromium, url):
    chromium.open(url)
    chromium.ready()
    chromium("choose", at="#model", label=STORIES)
    chromium("click", at="#settings summary")
    chromium("fill", at="#set-max_new_tokens", text="255")
    chromium("click", at="#examples button")
    chromium("until", script="document.querySelector('.writing')?.textContent.length > 100")
    assert chromium("run", script="document.getElementById('result').getAttribute('aria-busy')") == "true"
    assert chromium("run", script="document.getElementById('spoken').textContent").endswith(".")  # whole sentences
    assert "generated no text" not in chromium("text", at="#answer")
    assert chromium("text", at="#run") == "Stop"
    chromium("click", at="#run")
    text = chromium.answered()
    assert text.startswith("The old man looked at the sea and") and text.endswith("Stopped by you.")
    figures = ["Speed", "41.5 tokens/s", "Time", "200 ms", "More figures"]
    assert chromium("text", at="#figures").split("\n") == figures
    chromium("click", at="#figures summary")
    assert [line for line in chromium("text", at="#figures").split("\n") if line][5:7] == ["First token after", "42 ms"]
    assert "52.0 MB" in chromium("text", at="#figures")


def test_settings_are_sent_to_the_engine(chromium, url):
    chromium.open(url, scripts=[SPY])
    chromium.ready()
    chromium("choose", at="#model", label=STORIES)
    chromium("click", at="#settings summary")
    assert not chromium("visible", at="#set-temperature") and not chromium("visible", at="#set-num_beams")
    example(chromium)
    greedy = {
        "return_full_text": False,
        "do_sample": False,
        "num_beams": 1,
        "max_new_tokens": 60,
        "repetition_penalty": 1,
    }
    assert sent(chromium, "run")["options"] == greedy | {"no_repeat_ngram_size": 0}
    chromium("click", at="#settings .option:nth-child(2)")
    chromium("fill", at="#set-num_beams", text="3")
    example(chromium)
    assert sent(chromium, "run")["options"] == greedy | {"num_beams": 3, "no_repeat_ngram_size": 0}
    chromium("click", at="#settings .option:last-child")
    for name, value in {
        "temperature": "1.2",
        "top_k": "7",
        "seed": "3",
        "stop_strings": "The end",
        "max_new_tokens": "5",
    }.items():
        chromium("fill", at=f"#set-{name}", text=value)
    example(chromium)
    sampled = {"do_sample": True, "temperature": 1.2, "top_p": 0.95, "top_k": 7, "seed": 3, "stop_strings": ["The end"]}
    assert sent(chromium, "run")["options"] == greedy | sampled | {"max_new_tokens": 5, "no_repeat_ngram_size": 0}
    chromium("fill", at="#set-top_k", text="-1")
    chromium("click", at="#run")
    assert chromium.problem() == "Enter a number from 0 to 1000. Received: -1."
    assert chromium("run", script=FOCUSED) == "set-top_k"


def sent(page: Browser, kind: str) -> dict:
    """Returns the last message of a kind to the worker."""
    return page("run", script=f"posted.findLast(({{type}}) => type === '{kind}')")


def menu(page: Browser, name: str) -> list[str]:
    """Returns the names in a menu; the first one is the label, the second one the chosen language."""
    script = f"""
    (() => {{
      const select = document.getElementById('field-{name}');
      const shown = select ? [select.labels[0], ...select.selectedOptions, ...select.options] : [];
      return shown.map((each) => each.textContent);
    }})()
    """
    return list(page("run", script=script))


def test_languages_are_chosen_in_menus(chromium, url):
    chromium.open(url, scripts=[SPY])
    chromium.ready()
    assert menu(chromium, "src_lang") == menu(chromium, "tgt_lang") == []
    example(chromium, "translation")
    names = ["English", "German", "quy_Latn", "Simplified Chinese", "Traditional Chinese"]
    assert menu(chromium, "src_lang") == ["Source language", "English", *names]
    assert menu(chromium, "tgt_lang") == ["Target language", "Simplified Chinese", *names]
    chromium("choose", at="#field-tgt_lang", label="German")
    example(chromium)
    options = sent(chromium, "run")["options"]
    assert (options["src_lang"], options["tgt_lang"]) == ("eng_Latn", "deu_Latn") and "prefix" not in options
    assert sent(chromium, "load")["task"] == "translation"
    chromium("fill", at="#field-text", text="البيت")  # written from right to left
    direction = "getComputedStyle(document.getElementById('field-text')).direction"
    assert chromium("run", script=direction) == "rtl"
    example(chromium, PREFIXES)
    assert menu(chromium, "src_lang") == [] and menu(chromium, "tgt_lang") == [
        "Target language",
        "German",
        *FROM_ENGLISH,
    ]
    assert sent(chromium, "run")["options"]["tgt_lang"] == "de"
    example(chromium, "summarization")
    assert menu(chromium, "tgt_lang") == [] and "tgt_lang" not in sent(chromium, "run")["options"]


FROM_ENGLISH = ["French", "German"]


def test_classes_are_named_in_the_page(chromium, url):
    chromium.open(url, scripts=[SPY])
    chromium.ready()
    example(chromium, "zero-shot-classification")
    chromium("fill", at="#field-candidate_labels", text=" , ")
    chromium("click", at="#run")
    assert "at least one class" in chromium.problem()
    chromium("fill", at="#field-candidate_labels", text="travel, cooking")
    chromium("fill", at="#field-hypothesis_template", text="This is about .")
    chromium("click", at="#run")
    assert "Put {} once" in chromium.problem()
    chromium("fill", at="#field-hypothesis_template", text="This is about {}.")
    chromium("click", at="#field-multi_label")
    chromium("click", at="#run")
    assert chromium.answered() == "travel\n80.0 %\ncooking\n40.0 %"
    request = sent(chromium, "run")
    template = {"hypothesis_template": "This is about {}.", "multi_label": True}
    assert request["options"] == {"candidate_labels": "travel, cooking", **template}
    assert sent(chromium, "load")["task"] == "zero-shot-classification"
    chromium("click", at="#share")
    link = chromium("run", script="location.href")
    chromium.open(link)
    chromium.ready()
    fields = (
        "[...document.querySelectorAll('#fields input, #fields textarea')].map((each) => each.checked ?? each.value)"
    )
    values = chromium("run", script=fields)
    assert values[1:3] == ["travel, cooking", "This is about {}."]
    assert chromium("run", script="document.getElementById('field-multi_label').checked")


def test_types_of_entities_are_named_in_the_page(chromium, url):
    chromium.open(url, scripts=[SPY])
    chromium.ready()
    example(chromium, "zero-shot-token-classification")
    for types, problem in ((" , ", "at least one type"), ("person, city, person", "each type once")):
        chromium("fill", at="#field-labels", text=types)
        chromium("click", at="#run")
        assert problem in chromium.problem()
    chromium("fill", at="#field-labels", text="many")
    chromium("click", at="#run")
    chromium("until", script="document.getElementById('error-field-labels').checkVisibility()")
    assert "so many names at once" in chromium.problem()
    chromium("fill", at="#field-labels", text="writer,  town ,")
    chromium("click", at="#run")
    assert chromium.answered().split("\n")[-4:] == ["Ada Lovelace – writer", "99.0 %", "London – town", "91.0 %"]
    assert sent(chromium, "run")["options"] == {"labels": ["writer", "town"]}
    assert sent(chromium, "load")["task"] == "zero-shot-token-classification"


def test_texts_are_ranked_and_compared(chromium, url):
    chromium.open(url, scripts=[SPY])
    chromium.ready()
    example(chromium, "text-ranking")
    chromium("fill", at="#field-documents", text="one\n\n  two  \nthree")
    chromium("choose", at="#field-label", label="relevant")
    chromium("click", at="#run")
    assert chromium.answered() == "three\n4.500\ntwo\n1.500\none\n-1.500"
    assert sent(chromium, "run")["inputs"]["documents"] == ["one", "two", "three"]
    assert sent(chromium, "run")["options"] == {"label": "relevant"}
    widths = "[...document.querySelectorAll('.track span')].map((each) => parseFloat(each.style.width))"
    assert chromium("run", script=widths) == [100, 50, 0]
    example(chromium, "sentence-similarity")
    chromium("fill", at="#field-documents", text="one\ntwo\nthree")
    chromium("click", at="#run")
    assert chromium.answered().startswith("one\n0.750\ntwo\n0.450\nthree\n0.150\n\nCosines")
    chromium("choose", at="#field-purpose", label="Compare texts of the same kind")
    chromium("click", at="#run")
    chromium("until", script="document.getElementById('result').innerText.startsWith('three')")
    assert chromium.answered().startswith("three\n0.500\ntwo\n0.300\none\n0.100\n\nCosines")
    assert sent(chromium, "run")["inputs"]["others"] == ["one", "two", "three"]
    chromium("fill", at="#field-documents", text="\n ".join(str(number) for number in range(30)))
    chromium("click", at="#run")
    chromium("until", script="document.querySelectorAll('#result .bar').length === 20")
    assert "The best 20 of 30 texts." in chromium.answered()
    chromium("fill", at="#field-documents", text=" ")
    chromium("click", at="#run")
    chromium("until", script="document.querySelectorAll('#result .bar').length === 0")
    assert chromium.answered() == "Vector of 3 numbers, normalized to length 1: 0.600, 0.800, 0.000, …"


def test_another_engine_opens_its_own_bundle(chromium, url):
    chromium.open(url, 1280, 800, scripts=[SPY])
    chromium.ready()
    example(chromium)
    first = sent(chromium, "load")
    assert (first["engine"], first["base"]) == ("onnx", f"{url}models/film-reviews/onnx-int8/")
    threads = chromium("run", script="posted.filter(({type}) => type === 'load').map(({threads}) => threads)")
    most = min(os.cpu_count() or 1, 4)
    assert threads == [most] * 2 + [1] * (most > 1)  # ONNX Runtime is also tried with one thread
    chromium("click", at="#engine-options .option:nth-child(2)")
    example(chromium)
    second = sent(chromium, "load")
    assert (second["engine"], second["base"]) == ("litert", f"{url}models/film-reviews/litert-int8/")
    assert "LiteRT.js" in chromium("run", script="document.getElementById('facts').textContent")


def test_it_works_offline_after_the_first_use(chromium, small):
    with served(small) as url:
        chromium.open(url)
        chromium.ready()
        assert "Not loaded: 0.1 MB" in chromium("text", at="#state")
        example(chromium)
        chromium("until", script="document.getElementById('state').textContent.includes('works offline')")
    chromium("reload")  # the server has stopped
    chromium.ready()
    chromium("until", script="document.getElementById('state').textContent.includes('works offline')")
    assert "POSITIVE" in example(chromium)
    chromium("click", at="#about summary")
    chromium("click", at="#forget")
    chromium("until", script="document.getElementById('forget').hidden")
    chromium("reload")
    chromium.ready()
    chromium("click", at="#examples button")
    assert "The model could not be loaded" in chromium.problem() and "Are you offline?" in chromium.problem()


def test_a_new_version_of_the_site_is_offered(chromium, tmp_path):
    first, second = write_bundle(tmp_path / "reviews"), write_bundle(tmp_path / "news")
    site = write_site(tmp_path / "site", first)
    with served(site) as url:
        chromium.open(url)
        chromium.ready()
        example(chromium)
        write_site(site, first, second, overwrite=True)
        chromium("reload")
        chromium("until", script="!document.getElementById('update').hidden")
        assert not chromium("visible", at="#model")  # still the old page, with one model
        chromium("click", at="#reload")
        chromium("until", script="document.querySelectorAll('#model option').length === 2", seconds=20)
        # Unchanged files were reused.
        chromium("until", script="document.getElementById('state')?.textContent.includes('works offline')")


FOCUSED = """
(({id, hash, name, parentElement}) => id || hash?.slice(1) || name || parentElement.id)(document.activeElement)
"""


def test_keyboard_use(chromium, url):
    chromium.open(url, 1280, 800)
    chromium.ready()
    chromium.answered()
    order: list[str] = []
    while "about" not in order:
        chromium("press", key="Tab")
        order.append(chromium("run", script=FOCUSED))
        assert chromium("run", script="getComputedStyle(document.activeElement).outlineStyle") != "none", order
    assert order[:2] == ["main", "model"]
    assert order.index("field-text") < order.index("run") < order.index("copy") < order.index("engine")
    chromium("run", script="document.getElementById('field-text').focus()")
    chromium("type", text="A film.")
    chromium("press", key="Control+Enter")
    assert "POSITIVE" in chromium.answered()
    chromium("choose", at="#model", label=STORIES)
    chromium("fill", at="#field-text", text="Once")
    chromium("run", script="document.getElementById('settings').open = true")
    chromium("fill", at="#set-max_new_tokens", text="255")
    chromium("press", key="Control+Enter")
    chromium("until", script="document.querySelector('.writing')?.textContent.length > 10")
    chromium("press", key="Escape")
    assert chromium.answered().endswith("Stopped by you.")


def test_missing_browser_features_are_reported(chromium, url):
    chromium.open(url, scripts=["delete globalThis.WebAssembly"])
    assert "This browser cannot run WebAssembly" in chromium.problem()
    assert not chromium("visible", at="#form")
    assert chromium("axe") == []


@pytest.mark.release
def test_the_model_runs_without_space_on_the_device_with_a_note(chromium, small):
    with served(small) as url:
        chromium.open(url)
        chromium.ready()
        chromium("quota", bytes=1000)
        assert "POSITIVE" in example(chromium)
        chromium("until", script="document.getElementById('state').textContent.includes('not enough space')")


def test_threads_work_without_headers_from_the_server(chromium, small):
    with served(small, plain=True) as url:
        chromium.open(url)
        chromium(
            "until", script="globalThis.crossOriginIsolated"
        )  # the service worker adds the headers, after a reload
        chromium.ready()
        assert chromium("text", at="#notes") == ""
        chromium.open(url, scripts=["delete Navigator.prototype.serviceWorker"])
        chromium("until", script="!document.getElementById('form').hidden")
        assert "One thread only" in chromium("text", at="#notes")
        assert "POSITIVE" in example(chromium)


def test_it_works_under_a_path(chromium, small):
    with served(small.parent, plain=True) as url:
        chromium.open(f"{url}site/")
        chromium("until", script="globalThis.crossOriginIsolated")
        chromium.ready()
        assert "POSITIVE" in example(chromium)
        chromium("until", script="document.getElementById('state').textContent.includes('works offline')")


def test_a_truncated_model_is_reported_and_not_stored(chromium, small):
    model = next(small.rglob("model.tflite"))
    whole = model.read_bytes()
    with served(small, plain=True) as url:
        model.write_bytes(whole[:1000])
        chromium.open(url)
        chromium("until", script="globalThis.crossOriginIsolated")
        chromium.ready()
        chromium("click", at="#examples button")
        assert "model.tflite must have sha256" in chromium.problem()
        model.write_bytes(whole)
        chromium("click", at="#retry")
        assert "POSITIVE" in chromium.answered()


DAMAGE = {
    "no list": (lambda site: (site / "site.json").unlink(), "site.json could not be read: the server answered 404"),
    "no module": (lambda site: (site / "answers.js").unlink(), "could not be loaded"),
    "no JSON": (
        lambda site: (site / "site.json").write_text("{"),
        "site.json is not a list that kerasformer web wrote",
    ),
    "no models": (lambda site: edit_site(site, models=[]), "This page has no models"),
    "no script": (lambda site: (site / "app.js").unlink(), "app.js could not be loaded"),
}


@pytest.mark.parametrize("name", grid(DAMAGE, always=("no list", "no module"), others="release"))
def test_missing_files_of_the_page_are_reported(chromium, small, name):
    damage, message = DAMAGE[name]
    damage(small)
    with served(small, plain=True) as url:
        chromium.open(url)
        assert message in chromium.problem()


@pytest.mark.release
def test_a_missing_worker_is_reported(chromium, small):
    (small / "worker.js").unlink()
    with served(small, plain=True) as url:
        chromium.open(url)
        chromium("until", script="!document.getElementById('form').hidden")
        chromium("click", at="#examples button")
        assert "a file of the page is missing" in chromium.problem()


@pytest.mark.release
def test_opening_the_page_as_a_file_is_reported(chromium, small):
    chromium.open((small / "index.html").as_uri())
    assert "opened as a file" in chromium.problem() and "kerasformer web FOLDER --serve" in chromium.problem()


def test_errors_of_the_engine_are_shown(chromium, url):
    chromium.open(url)
    chromium.ready()
    chromium("choose", at="#model", label=STORIES)
    chromium("fill", at="#field-text", text="an endless prompt")
    chromium("click", at="#run")
    assert "it has 80 tokens (pieces of words), and the model reads at most 64. Shorten it." in chromium.problem()
    assert "truncation" not in chromium.problem()  # an option that the page does not have
    assert chromium("run", script=FOCUSED) == "field-text"
    chromium("fill", at="#field-text", text="Once")
    chromium("click", at="#run")
    assert "The boat came back" in chromium.answered()
    chromium("fill", at="#field-text", text="  ")
    chromium("click", at="#run")
    assert chromium.problem() == "This field is empty. Enter a text, or choose an example."
    assert "The boat came back" in chromium("text", at="#result")  # the last answer remains
    below = "document.getElementById('error-field-text').previousElementSibling"
    assert chromium("run", script=f"[{below}.id, {below}.ariaInvalid, {below}.getAttribute('aria-describedby')]") == [
        "field-text",
        "true",
        "error-field-text",
    ]
    assert chromium("axe") == []
    chromium("fill", at="#field-text", text="impossible")
    assert chromium("run", script=f"{ERRORS}.length") == 0  # typing removes the error
    chromium("click", at="#run")
    assert chromium.problem().startswith("The model cannot generate text with these settings. Change them.")
    assert chromium("visible", at="#settings-fields") and "suppress_tokens" not in chromium(
        "text", at="#error-settings"
    )
    chromium("fill", at="#field-text", text="nothing")
    chromium("click", at="#run")
    assert "The model generated no text." in chromium.answered()
    chromium("choose", at="#model", label="fill-mask")
    chromium("fill", at="#field-text", text="A whole sentence.")
    chromium("click", at="#run")
    assert "Put [MASK] where a word is missing" in chromium.problem()
    chromium("click", at=".gap")
    chromium("click", at="#run")
    assert "Paris" in chromium.answered()


def test_output_of_a_model_is_never_markup(chromium, url):
    chromium.open(url)
    chromium.ready()
    chromium("choose", at="#model", label=STORIES)
    chromium("fill", at="#field-text", text="<img src=x onerror=alert(1)><b>bold</b>")
    chromium("click", at="#run")
    assert chromium.answered().startswith("<img src=x onerror=alert(1)><b>bold</b>")
    assert chromium("run", script="document.querySelectorAll('#result img, #result b').length") == 0
