"""The site builder, the runtimes that it copies from packages, and the server; without a browser or npm."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

import kerasformer as kf
from kerasformer import bundle
from kerasformer import export as export_package
from kerasformer.bundle import Kind, SpanInfo, TensorInfo
from kerasformer.bundle.sample_texts import examples
from kerasformer.errors import BundleError, ExportMismatchError, InputError, MissingExtraError, SourceError
from kerasformer.export.builder import BundleBuilder
from kerasformer.tokenization import Tokenizer, hard_texts
from kerasformer.tools.web import vendor as runtimes
from kerasformer.tools.web.serve import Handler, server
from kerasformer.tools.web.site import PAGE, build, check_site
from kerasformer.tools.web.token_check import check_tokens
from kerasformer.tools.web.vendor import vendor
from tests import tiny_text
from tests.core.cli.test_cli import main
from tests.foreign.environments import need
from tests.tools.web.sites import edit_manifest, served, tokenizer_json, write_bundle, write_runtimes


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    return write_runtimes(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def site(tmp_path, packages) -> Path:
    bundles = [write_bundle(tmp_path / f"reviews-{kind}", format=kind) for kind in ("onnx", "tflite")]
    story = write_bundle(tmp_path / "story", "text-generation", model_type="gpt2", generation={"do_sample": True})
    return build([*bundles, story], tmp_path / "site", title='"Tom" & <Jerry>', runtime_files=packages)


def test_every_file_is_listed_with_its_checksum(site):
    content = check_site(site)
    listed = [*content["page"], *(file for files in content["runtimes"].values() for file in files)]
    listed += [file for model in content["models"] for engine in model["engines"] for file in engine["files"]]
    for file in listed:
        data = (site / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"]), file["path"]
    # The service worker is not cached, and site.json cannot contain its own checksum.
    written = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert written - {file["path"] for file in listed} == {"service-worker.js", "site.json", "vendor/NOTICE.txt"}


def test_bundles_of_one_model_are_one_entry_with_a_choice_of_engines(site):
    reviews, story = check_site(site)["models"]
    assert (reviews["title"], reviews["task"]) == ("reviews", "text-classification")
    assert [(each["engine"], each["base"]) for each in reviews["engines"]] == [
        ("litert", "models/reviews/litert-int8/"),
        ("onnx", "models/reviews/onnx-int8/"),
    ]
    assert [Path(file["path"]).name for file in reviews["engines"][0]["files"]] == [
        "kerasformer.json",
        "model.tflite",
        "tokenizer.json",
        "tokenizer_config.json",
        "references.json",
        "model_card.txt",
    ]
    assert reviews["engines"][0]["bytes"] == sum(file["bytes"] for file in reviews["engines"][0]["files"])
    assert reviews["examples"] == examples("text-classification") and story["examples"]["inputs"]
    assert (story["generation"], story["engines"][0]["capacity"]) == ({"do_sample": True}, 256)


CARD = """---
license: apache-2.0
language: en
---

# Model Card for **Film reviews**

Tells [good films](https://example.org) from
`bad` ones. It has two layers.
"""


@pytest.mark.parametrize(
    ("card", "title", "purpose", "license"),
    [
        (CARD, "Film reviews", "Tells good films from bad ones.", "apache-2.0"),
        (CARD.replace("\n", "\r\n"), "Film reviews", "Tells good films from bad ones.", "apache-2.0"),
        ("# Reviews\n\n## Contents\n\nText.", "Reviews", "", ""),
        ("# Reviews\n\n<img src=x onerror=alert(1)> Text.", "Reviews", "", ""),
        (f"# {'long ' * 20}\n\nA sentence.", "reviews", "A sentence.", ""),
        (None, "reviews", "", ""),
    ],
    ids=["whole", "windows", "headings", "html", "long", "none"],
)
def test_the_page_shows_title_purpose_and_licence_of_the_model_card(tmp_path, packages, card, title, purpose, license):
    folder = write_bundle(tmp_path / "reviews", card=card)
    site = build([folder], tmp_path / "site", runtime_files=packages)
    (model,) = check_site(site)["models"]
    assert (model["name"], model["title"], model["purpose"]) == ("reviews", title, purpose)
    assert (model["license"], model["architecture"]) == (license, "BERT")
    expected = "a card" if card is None else card.replace("\r\n", "\n")
    assert (site / model["engines"][0]["card"]).read_text(encoding="utf-8-sig") == expected
    named = build([f"Mine={folder}"], tmp_path / "named", runtime_files=packages)
    assert check_site(named)["models"][0]["title"] == "Mine"


def test_a_model_whose_only_prefix_is_for_summaries_summarizes(tmp_path, packages):
    prefixes = {"summarization": "summarize: "}
    settings = {"task_settings": {"summarization": {"num_beams": 4}}, "is_encoder_decoder": True}
    both = {**prefixes, "translation_en_to_de": "translate English to German: "}
    bundles = [
        write_bundle(tmp_path / name, "text2text-generation", task_prefixes=each, **settings)
        for name, each in {"one": prefixes, "both": both, "none": {}}.items()
    ]
    models = check_site(build(bundles, tmp_path / "site", runtime_files=packages))["models"]
    assert [each["task"] for each in models] == ["summarization", *["text2text-generation"] * 2]
    assert models[0]["generation"] == {"num_beams": 4}


def test_only_the_runtimes_of_the_engines_are_copied(tmp_path, packages):
    site = build([write_bundle(tmp_path / "b", format="onnx")], tmp_path / "site", runtime_files=packages)
    assert list(check_site(site)["runtimes"]) == ["onnx"]
    assert not (site / "vendor" / "litert").exists()
    assert (site / "vendor" / "tokenizers" / "tokenizers.min.mjs").is_file()


def test_names_separate_models(tmp_path, packages):
    first, second = write_bundle(tmp_path / "a"), write_bundle(tmp_path / "b", format="onnx")
    site = build([f"One={first}", f"Two={second}"], tmp_path / "site", runtime_files=packages)
    assert [model["title"] for model in check_site(site)["models"]] == ["One", "Two"]
    site = build([f"One={first}", f"One={second}"], tmp_path / "site", runtime_files=packages, overwrite=True)
    assert [(model["title"], len(model["engines"])) for model in check_site(site)["models"]] == [("One", 2)]


def test_two_bundles_of_one_engine_and_recipe_are_two_models(tmp_path, packages):
    bundles = [write_bundle(tmp_path / name / "story") for name in "ab"]
    models = check_site(build(bundles, tmp_path / "site", runtime_files=packages))["models"]
    assert [model["name"] for model in models] == ["story", "story--2"]


def test_fixed_numbers_of_words_and_labels_make_no_other_model(tmp_path, packages):
    spans = {"onnx": SpanInfo(12, 384, "<<ENT>>", "<<SEP>>"), "tflite": SpanInfo(12, 48, "<<ENT>>", "<<SEP>>", 32)}
    bundles = [
        f"Types={write_bundle(tmp_path / format, 'zero-shot-token-classification', format=format, spans=each)}"
        for format, each in spans.items()
    ]
    (model,) = check_site(build(bundles, tmp_path / "site", runtime_files=packages))["models"]
    assert [engine["engine"] for engine in model["engines"]] == ["litert", "onnx"]


def test_two_recipes_of_one_engine_are_a_choice(tmp_path, packages):
    bundles = [write_bundle(tmp_path / name, recipe=name) for name in ("int8", "int4")]
    (model,) = check_site(build(bundles, tmp_path / "site", runtime_files=packages))["models"]
    assert [engine["recipe"] for engine in model["engines"]] == ["int8", "int4"]


def test_profiles_of_one_model_are_engines_of_one_entry(tmp_path, packages):
    bundles = [write_bundle(tmp_path / profile, format="onnx") for profile in ("ort", "portable")]
    for folder in bundles:
        bundle.write(folder, replace(bundle.read(folder), profile=folder.name))
    [model] = check_site(build(bundles, tmp_path / "site", runtime_files=packages))["models"]
    assert {engine["base"].split("/")[-2]: engine["profile"] for engine in model["engines"]} == {
        "onnx-int8": "ort",
        "onnx-int8-portable": "portable",
    }


NLI = ("contradiction", "neutral", "Entailment")
SCORE = {"labels": ("LABEL_0",), "score_activation": "torch.nn.modules.linear.Identity"}


@pytest.mark.parametrize(
    ("task", "info", "shown"),
    [
        ("text-classification", {}, "text-classification"),
        ("text-classification", {"labels": ("LABEL_0",)}, "text-classification"),
        ("text-classification", SCORE, "text-ranking"),
        ("text-classification", {"labels": NLI}, "zero-shot-classification"),
        ("text-ranking", {"labels": NLI}, "text-ranking"),
        ("zero-shot-classification", {"labels": NLI[1:]}, "zero-shot-classification"),
    ],
)
def test_models_of_pairs_get_the_task_for_which_the_page_has_fields(tmp_path, packages, task, info, shown):
    site = build([write_bundle(tmp_path / "model", task, **info)], tmp_path / "site", runtime_files=packages)
    (model,) = json.loads((site / "site.json").read_text())["models"]
    assert model["task"] == shown and model["examples"] == examples(shown)
    assert model["labels"] == list(info.get("labels", ("NEGATIVE", "POSITIVE")))


def test_the_title_is_escaped(site):
    page = (site / "index.html").read_text()
    assert "<h1>&quot;Tom&quot; &amp; &lt;Jerry&gt;</h1>" in page and "{{" not in page
    assert json.loads((site / "manifest.webmanifest").read_text())["name"] == '"Tom" & <Jerry>'


def test_the_page_names_nothing_outside_its_folder():
    """The page works under any path and without a network, and requests nothing from other servers."""
    for path in [*PAGE.glob("*.*"), *PAGE.glob("icons/*")]:
        text = path.read_text()
        assert not re.findall(r"""(?:src|href|from|import|url)\s*[=(:]?\s*["'(]/""", text), path
        assert set(re.findall(r"https?://[^\s\"'`<)]+", text)) <= {"http://www.w3.org/2000/svg"}, path
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text, path


def test_the_version_changes_with_any_file(site, tmp_path, packages):
    first = check_site(site)["version"]
    assert f'const VERSION = "{first}"' in (site / "service-worker.js").read_text()
    other = write_bundle(tmp_path / "other", recipe="int4")
    assert check_site(build([other], tmp_path / "site2", runtime_files=packages))["version"] != first
    again = build([other], tmp_path / "site3", runtime_files=packages)
    assert check_site(again)["version"] == check_site(tmp_path / "site2")["version"]


def test_a_site_is_replaced_only_on_request(site, tmp_path, packages):
    other = write_bundle(tmp_path / "other")
    with pytest.raises(BundleError, match="a site already exists there.*overwrite=True"):
        build([other], site, runtime_files=packages)
    build([other], site, runtime_files=packages, overwrite=True)
    assert [model["title"] for model in check_site(site)["models"]] == ["other"]
    (site / "robots.txt").write_text("mine")
    build([write_bundle(tmp_path / "third")], site, runtime_files=packages, overwrite=True)
    assert (site / "robots.txt").read_text() == "mine"
    assert not (site / "models" / "other").exists()
    with pytest.raises(BundleError, match="only a site or an empty folder may be replaced"):
        build([other], other, runtime_files=packages, overwrite=True)
    bundle.read(other)


def test_a_failed_build_leaves_the_old_site(site, tmp_path):
    with pytest.raises(SourceError):
        build([write_bundle(tmp_path / "other")], site, runtime_files=tmp_path, overwrite=True)
    assert len(check_site(site)["models"]) == 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_damaged_bundle_is_refused(tmp_path, packages):
    folder = write_bundle(tmp_path / "b")
    edit_manifest(folder, capacity=9)
    with pytest.raises(BundleError, match="was changed after its export"):
        build([folder], tmp_path / "site", runtime_files=packages)
    assert not (tmp_path / "site").exists()


@pytest.mark.foreign("web")
def test_a_bundle_that_the_page_tokenizes_differently_is_refused(tmp_path):
    """If Node is installed. Here, a rule removes punctuation, which the page's library implements differently."""
    packages = need("web").parent
    own = write_bundle(tmp_path / "own")
    backend = tiny_text.wordpiece().backend
    for folder in (own, other := write_bundle(tmp_path / "other")):
        if folder == other:
            backend = Backend.from_str(backend.to_str())
            backend.pre_tokenizer = pre_tokenizers.Punctuation("removed")
        tokenizer = Tokenizer(backend, special_tokens=tiny_text.wordpiece().special_tokens)
        tokenizer.save(folder)
        hard_texts.write(tokenizer, folder)
        bundle.write(folder, replace(bundle.read(folder, check=False), files=bundle.checksums(folder)))
    site = build([own], tmp_path / "site", runtime_files=packages)
    assert list(site.rglob(hard_texts.FILE))
    assert check_tokens(own, site / "library", site / "vendor" / "tokenizers" / "tokenizers.min.mjs")
    with pytest.raises(BundleError, match="reads a text differently from the model's own.* Text: .*Received: .*other"):
        build([other], tmp_path / "refused", runtime_files=packages)
    assert not (tmp_path / "refused").exists()


def test_bundles_that_browsers_cannot_run_are_refused_with_the_reason(tmp_path, packages, monkeypatch):
    with pytest.raises(BundleError, match="the page runs the formats tflite and onnx.*--format tflite"):
        build([write_bundle(tmp_path / "saved", format="saved-model")], tmp_path / "site", runtime_files=packages)
    with pytest.raises(BundleError, match="exported for another runtime: the outputs of forward_16 are probabilities"):
        build([write_bundle(tmp_path / "other", output="probabilities")], tmp_path / "site", runtime_files=packages)
    with pytest.raises(BundleError, match="'entail' and at least one other.*with the classes NEGATIVE, POSITIVE"):
        task = "zero-shot-classification"
        build([write_bundle(tmp_path / "classes", task)], tmp_path / "site", runtime_files=packages)
    with pytest.raises(BundleError, match="needs a tokenizer.*without tokenizer.json"):
        build([write_bundle(tmp_path / "wordless", tokenizer=False)], tmp_path / "site", runtime_files=packages)
    with pytest.raises(BundleError, match="cannot tokenize texts .*M2M100Tokenizer cannot be .*NLLB, mBART or OPUS-MT"):
        other = write_bundle(tmp_path / "m2m", "text2text-generation", tokenizer_class="M2M100Tokenizer")
        build([other], tmp_path / "site", runtime_files=packages)
    adapted = write_bundle(tmp_path / "adapted")
    manifest = bundle.read(adapted)
    (name, signature), matrix = next(iter(manifest.signatures.items())), TensorInfo((2, 8), "float32", Kind.ADAPTER_A)
    signature = replace(signature, inputs={**signature.inputs, "q_lora_A_weight": matrix})
    bundle.write(adapted, replace(manifest, signatures={name: signature}))
    with pytest.raises(BundleError, match="passes no adapters.*adapted, exported with lora_rank"):
        build([adapted], tmp_path / "site", runtime_files=packages)
    monkeypatch.setattr("kerasformer.tools.web.site._MAX_BYTES", 1000)
    with pytest.raises(BundleError, match="file of 2 GiB or more.*model.tflite.*int4"):
        build([write_bundle(tmp_path / "large")], tmp_path / "site", runtime_files=packages)
    with pytest.raises(InputError, match="at least one bundle"):
        build([], tmp_path / "site", runtime_files=packages)


def test_the_import_of_a_package_becomes_a_path(tmp_path, packages):
    vendor(tmp_path, ["litert"], packages)
    notice, code = (tmp_path / "litert" / "index.js").read_text().split("\n")
    assert notice.startswith("// Changed by kerasformer:") and code == 'import x from "./wasm-utils.js";'


@pytest.mark.parametrize("engine", ["litert", "onnx"])
def test_vendor_has_the_licence_of_each_package_that_it_contains(tmp_path, packages, engine):
    copied = vendor(tmp_path, [engine], packages)
    notice = (tmp_path / "NOTICE.txt").read_text()
    expected = {"litert": ["@litertjs/core", "@litertjs/wasm-utils"], "onnx": ["onnxruntime-web"]}[engine]
    names = ["@huggingface/tokenizers", "@huggingface/jinja", *expected]
    assert len(notice.splitlines()) == len(names)
    for name in names:
        line = next(line for line in notice.splitlines() if line.startswith(f"{name} "))
        text = tmp_path / line.rpartition(", see ")[2]
        assert text in copied
        assert re.search("Permission is hereby granted|TERMS AND CONDITIONS FOR USE", text.read_text())
    assert len(list((tmp_path / "licenses").iterdir())) == len(names)


def test_a_package_without_its_licence_is_refused(tmp_path):
    folder = write_runtimes(tmp_path / "packages")
    (folder / "node_modules" / "@huggingface" / "jinja" / "LICENSE").unlink()
    with pytest.raises(SourceError, match="file of the page's runtimes is missing.*jinja/LICENSE"):
        vendor(tmp_path / "vendor", ["litert"], folder)


def test_other_releases_are_refused(tmp_path):
    folder = write_runtimes(tmp_path / "packages")
    about = folder / "node_modules" / "onnxruntime-web" / "package.json"
    about.write_text(about.read_text().replace("1.30.0", "1.17.0"))
    with pytest.raises(SourceError, match=r"onnxruntime-web 1.30.0, received 1.17.0.*npm ci --ignore-scripts"):
        vendor(tmp_path / "vendor", ["onnx"], folder)
    with pytest.raises(SourceError, match="@litertjs/core 2.5.3, received nothing"):
        vendor(tmp_path / "vendor", ["onnx"], tmp_path)


def fake_npm(folder: Path, script: str) -> str:
    """Returns a PATH on which npm is a shell script."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod((folder / "npm").stat().st_mode | stat.S_IEXEC)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_npm_runs_once_and_only_needed_files_are_kept(tmp_path, packages, monkeypatch):
    monkeypatch.setenv("KERASFORMER_CACHE", str(tmp_path / "cache"))
    path = fake_npm(
        tmp_path / "bin",
        f'test "$1 $2" = "ci --ignore-scripts" && cp -r {packages}/node_modules . && touch node_modules/large',
    )
    monkeypatch.setenv("PATH", path)
    vendor(tmp_path / "first", ["litert"])
    cached = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert "litert_wasm_internal.wasm" in cached and "large" not in cached
    (tmp_path / "bin" / "npm").write_text("#!/bin/sh\nexit 1\n")
    vendor(tmp_path / "second", ["onnx"])


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_errors_without_npm_or_network_contain_advice(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", fake_npm(tmp_path / "bin", "echo 'getaddrinfo ENOTFOUND registry' >&2; exit 1"))
    with pytest.raises(SourceError, match="ENOTFOUND registry.*network once.*--runtime-files"):
        vendor(tmp_path / "vendor", ["litert"])
    monkeypatch.setattr(runtimes.shutil, "which", lambda name: None)
    with pytest.raises(MissingExtraError, match="npm.*not installed.*--runtime-files"):
        vendor(tmp_path / "vendor", ["litert"])
    assert not list((tmp_path / "cache").rglob("package.json"))


def test_headers_and_types_of_responses(site):
    with served(site) as url:
        for path, kind in {
            "": "text/html",
            "app.js": "text/javascript",
            "vendor/onnxruntime/ort.wasm.min.mjs": "text/javascript",
            "vendor/litert/wasm/litert_wasm_internal.wasm": "application/wasm",
            "site.json": "application/json",
            "manifest.webmanifest": "application/manifest+json",
            "icons/icon.svg": "image/svg+xml",
        }.items():
            with urllib.request.urlopen(url + path) as response:
                assert response.headers["Content-Type"] == kind, path
                assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
                assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
                assert response.headers["Cache-Control"] == "no-cache"


def answer(url: str, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    """Requests exactly this path, which other clients would normalize."""
    connection = http.client.HTTPConnection("127.0.0.1", int(url.rstrip("/").rsplit(":", 1)[1]), timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_nothing_else_is_served(site, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("secret")
    (site / "out.txt").symlink_to(secret / "key.txt")
    (site / "folder").symlink_to(secret)
    (site / "loop.txt").symlink_to(site / "loop.txt")
    (site / ".hidden").mkdir()
    for path in (".env", ".hidden/key.txt"):
        (site / path).write_text("secret")
    (site / "seen.txt").symlink_to(site / ".env")
    (site / "inside.txt").symlink_to(site / "app.js")
    os.mkfifo(site / "pipe.txt")
    outside = [f"{up}secret/key.txt" for up in ("../", "%2e%2e/", "..%2f", "..%5c", "..\\", "vendor/../../")]
    links = ["out.txt", "folder/key.txt", "loop.txt", ".env", ".hidden/key.txt", "seen.txt", "pipe.txt"]
    odd = ["models/", "models", "app.js%00.txt", "a" * 5000, "/etc/passwd", "/[", "vendor//NOTICE.txt", "C:/x", "%ff"]
    with served(site) as url:
        for path in (*outside, *links, *odd, str(secret / "key.txt")):
            response, body = answer(url, f"/{path}")
            assert response.status == 404 and b"secret" not in body.replace(b"secret/", b""), path
        assert answer(url, "/inside.txt")[1] == (site / "app.js").read_bytes()


@pytest.fixture(scope="module")
def real(tmp_path_factory, packages) -> Iterator[tuple[Path, str]]:
    """A site with realistic sizes and compressibility of code and weights, and its URL."""
    root = tmp_path_factory.mktemp("real")
    site = build([write_bundle(root / "reviews")], root / "site", runtime_files=packages)
    (site / "vendor/litert/wasm/litert_wasm_internal.wasm").write_bytes(b"function " * 1000)
    (site / "models/reviews/litert-int8/model.tflite").write_bytes(random.Random(1).randbytes(10_000))
    with served(site, handler=Handler) as url:
        yield site, url


@pytest.mark.parametrize(
    ("path", "accepted", "compressed"),
    [
        ("app.js", "gzip, deflate, br", True),
        ("vendor/litert/wasm/litert_wasm_internal.wasm", "br;q=1.0, gzip;q=0.5", True),
        ("site.json", "*", True),
        ("index.html", "GZIP", True),
        ("site.json", "gzip;q=0, *", False),
        ("site.json", "br", False),
        ("site.json", "", False),
        ("models/reviews/litert-int8/tokenizer.json", "gzip", False),  # too short
        ("models/reviews/litert-int8/model.tflite", "gzip", False),  # noise
    ],
)
def test_compressible_files_are_compressed_for_clients_that_accept_it(real, path, accepted, compressed):
    site, url = real
    content = (site / path).read_bytes()
    response, body = answer(url, f"/{path}", Accept_Encoding=accepted)
    assert response.headers["Content-Encoding"] == ("gzip" if compressed else None)
    assert response.headers["Vary"] == "Accept-Encoding"
    assert int(response.headers["Content-Length"]) == len(body)
    assert (gzip.decompress(body) if compressed else body) == content
    assert len(body) < 0.9 * len(content) if compressed else len(body) == len(content)
    head, nothing = answer(url, f"/{path}", "HEAD", Accept_Encoding=accepted)
    assert nothing == b"" and dict(head.headers) | {"Date": ""} == dict(response.headers) | {"Date": ""}


def test_only_changed_files_are_sent_again(site):
    with served(site) as url:
        plain, body = answer(url, "/app.js")
        packed, _ = answer(url, "/app.js", Accept_Encoding="gzip")
        assert plain.headers["ETag"] != packed.headers["ETag"]
        for known, headers, status in [
            (plain, {}, 304),
            (packed, {}, 200),  # the browser has compressed bytes and requests plain ones
            (packed, {"Accept_Encoding": "gzip"}, 304),
        ]:
            response, body = answer(url, "/app.js", If_None_Match=f'"x", W/{known.headers["ETag"]}', **headers)
            assert (response.status, bool(body)) == (status, status == 200)
        assert answer(url, "/app.js", If_None_Match="*")[0].status == 304
        since = {"If_Modified_Since": plain.headers["Last-Modified"]}
        assert answer(url, "/app.js", **since)[0].status == 304
        assert answer(url, "/app.js", If_None_Match='"x"', **since)[0].status == 200
        os.utime(site / "app.js", (1, 1))
        assert answer(url, "/app.js", If_None_Match=plain.headers["ETag"], **since)[0].status == 200


@pytest.mark.parametrize(
    ("requested", "status", "part"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-7", 206, slice(-7, None)),
        ("bytes=10-99999999", 206, slice(10, None)),
        ("bytes=-99999999", 206, slice(0, None)),
        ("bytes=99999999-", 416, slice(0, 0)),
        ("bytes=-0", 416, slice(0, 0)),
        ("bytes=7-3", 200, slice(0, None)),
        ("bytes=0-1,4-5", 200, slice(0, None)),
        ("bytes=-", 200, slice(0, None)),
        ("lines=1-2", 200, slice(0, None)),
        (f"bytes={'9' * 5000}-", 200, slice(0, None)),
    ],
)
def test_ranges(real, requested, status, part):
    site, url = real
    content = (site / "app.js").read_bytes()
    response, body = answer(url, "/app.js", Range=requested, Accept_Encoding="gzip")
    assert (response.status, body) == (status, content[part])
    assert int(response.headers["Content-Length"]) == len(body)
    first, last, _ = part.indices(len(content))
    content_range = {206: f"bytes {first}-{last - 1}/{len(content)}", 416: f"bytes */{len(content)}"}.get(status)
    assert (response.headers["Content-Range"], response.headers["Content-Encoding"]) == (content_range, None)
    for tag, expected in ((response.headers["ETag"], status), ('"another"', 200)):
        assert answer(url, "/app.js", Range=requested, If_Range=tag)[0].status == expected


def test_only_complete_sites_are_served(site, tmp_path):
    with pytest.raises(BundleError, match="written by kerasformer web was expected"):
        server(tmp_path)
    with pytest.raises(BundleError, match="It is a bundle: build a site from it with kerasformer web"):
        server(tmp_path / "story")
    (site / "app.js").write_text("")
    with pytest.raises(BundleError, match="missing or truncated: app.js"):
        server(site)
    (site / "site.json").write_text("{}")
    with pytest.raises(SourceError, match="damaged, or was not written by kerasformer web"):
        server(site)


def test_an_occupied_port_is_an_error(site):
    with server(site, port=0) as running, pytest.raises(InputError, match="The server cannot listen on.*--port"):
        server(site, port=running.server_address[1])


def test_the_commands(tmp_path, packages, capsys):
    arguments = ["web", str(write_bundle(tmp_path / "b")), str(tmp_path / "site"), "--runtime-files", str(packages)]
    assert main(*arguments) == 0
    assert f"kerasformer web {tmp_path / 'site'} --serve" in capsys.readouterr().out
    assert len(check_site(tmp_path / "site")["models"]) == 1
    assert main(*arguments) == 1
    assert "a site already exists there" in capsys.readouterr().err
    assert main("web", str(tmp_path / "site")) == 1
    assert "Bundles, and the folder to write, were expected" in capsys.readouterr().err


@pytest.mark.grid
def test_a_checkpoint_is_exported_first_as_small_as_its_answers_allow(tmp_path, packages, monkeypatch, capsys):
    model = kf.zoo.build("bert", "text-classification", vocab_size=3, hidden_dim=8, num_layers=1, num_heads=2)
    model.tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(tokenizer_json()), special_tokens={"unk_token": "[UNK]"})
    checkpoint = model.save_pretrained(tmp_path / "tiny-bert")
    calls = []
    real = export_package.export

    def export(source, folder, **options):
        calls.append((source, options["quantize"], options["target"], options["fallback"]))
        return real(source, folder, **options, lengths=[16])

    verify = BundleBuilder.verify

    def refused(self, recipe):
        if recipe.name == "fp16":
            return verify(self, recipe)
        raise ExportMismatchError("agreement 50 %")

    monkeypatch.setattr(export_package, "export", export)
    monkeypatch.setattr(BundleBuilder, "verify", refused)
    site = tmp_path / "site"
    web = ["web", f"Tiny={checkpoint}", str(write_bundle(tmp_path / "b")), str(site), "--runtime-files", str(packages)]
    assert main(*web) == 0
    assert calls == [(str(checkpoint), "int8", "litert-web", True)]
    printed = capsys.readouterr().out
    assert (
        "The recipe int8 was requested, but its files exceeded its limits, so the export fell back to fp16" in printed
        and "--target litert-web --quantize fp16" in printed
    )
    tiny, other = check_site(site)["models"]
    assert (tiny["title"], tiny["engines"][0]["recipe"], other["title"]) == ("Tiny", "fp16", "b")
    assert main(*web) == 1 and len(calls) == 1  # the existing site is detected before an export
    assert main("web", "no-such-model", str(tmp_path / "other")) == 1
    assert "no model of that name was found" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_serve_prints_its_address_and_advice_for_phones(site):
    command = [sys.executable, "-m", "kerasformer.cli", "web", str(site), "--serve", "--port", "0", "--host", "0.0.0.0"]
    # Background jobs of a shell, and their children, ignore Ctrl+C.
    settings = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **settings) as process:
        try:
            line = process.stdout.readline()
            advice = process.stdout.readline()
            url = re.search(r"http://localhost:\d+/", line).group()
            with urllib.request.urlopen(url) as response:
                assert b"Run" in response.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert "https" in advice and f"adb reverse tcp:{url[17:-1]}" in advice
