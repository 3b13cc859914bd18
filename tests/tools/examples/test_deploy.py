"""The files of examples/deploy name paths, ports, options and figures that the server has."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import kerasformer
from kerasformer.cli import app
from kerasformer.tools.server import ServerOptions
from kerasformer.tools.server.application import application
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.running import _SHUTDOWN_SECONDS
from kerasformer.tools.server.served_models import ServedModels
from tests.extras import need

httpx = need("httpx")

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def read(name: str) -> dict[str, Any]:
    (content,) = yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))
    return dict(content)


def instruction(name: str) -> list[str]:
    """Returns the words of the last instruction of the Dockerfile with this name, in JSON."""
    return list(json.loads(re.findall(rf"^{name} (\[.+\])$", DOCKERFILE, re.MULTILINE)[-1]))


COMPOSE = read("compose.yaml")["services"]["kerasformer"]
POD = read("kubernetes/deployment.yaml")["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
(KSERVE,) = read("kserve.yaml")["spec"]["predictor"]["containers"]


def get(path: str) -> httpx.Response:
    """Returns the answer of a server with one figure."""
    measurements = Measurements()
    measurements.waiting.labels("model").set(3)
    server = application(ServedModels([]), Limits(), measurements)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(server)
        async with httpx.AsyncClient(transport=transport, base_url="http://pod") as client:
            return await client.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (instruction("CMD"), "/models"),
        (COMPOSE["command"], COMPOSE["volumes"][0]["target"]),
        (CONTAINER["args"], CONTAINER["volumeMounts"][0]["mountPath"]),
        (KSERVE["args"], "/mnt/models"),
    ],
    ids=["Dockerfile", "compose", "kubernetes", "kserve"],
)
def test_the_command_line_is_accepted(
    arguments: list[str], folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[list[str], ServerOptions]] = []
    monkeypatch.setattr(
        "kerasformer.tools.server.serve", lambda sources, options, ready: calls.append((sources, options))
    )
    program, *words = [*instruction("ENTRYPOINT"), *arguments]
    result = CliRunner().invoke(app, words)
    assert program == "kerasformer" and result.exit_code == 0, result.output
    (((source,), options),) = calls
    assert source.partition("=")[2].startswith(folder)
    assert (options.host, options.port) == ("0.0.0.0", ServerOptions().port)


def test_ports() -> None:
    port = ServerOptions().port
    assert f"\nEXPOSE {port}\n" in DOCKERFILE and f"http://127.0.0.1:{port}/health" in DOCKERFILE
    assert COMPOSE["ports"][0].endswith(f":{port}")
    assert [CONTAINER["ports"][0]["containerPort"], KSERVE["ports"][0]["containerPort"]] == [port, port]
    name = CONTAINER["ports"][0]["name"]
    probes = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["port"] for probe in probes} == {name}
    assert read("kubernetes/service.yaml")["spec"]["ports"][0]["targetPort"] == name
    paths = {probe["path"] for probe in (*probes, KSERVE["readinessProbe"]["httpGet"])}
    assert {path: get(path).json() for path in paths} == {"/health": {"status": "ok"}}


def test_the_autoscaler_follows_a_figure_of_the_server() -> None:
    autoscaler, monitor = read("kubernetes/autoscaler.yaml")["spec"], read("kubernetes/prometheus.yaml")["spec"]
    (metric,) = autoscaler["metrics"]
    name = metric["pods"]["metric"]["name"]
    adapter = yaml.safe_load(read("kubernetes/prometheus-adapter.yaml")["data"]["config.yaml"])
    (rule,) = adapter["rules"]
    assert rule["name"]["as"] == name and re.fullmatch(rule["name"]["matches"], name)
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == CONTAINER["ports"][0]["name"]
    series = rule["seriesQuery"].partition("{")[0]
    assert re.search(rf'^{series}{{model="model"}} 3.0$', get(endpoint["path"]).text, re.MULTILINE)
    assert autoscaler["scaleTargetRef"]["name"] == read("kubernetes/deployment.yaml")["metadata"]["name"]
    # A replica refuses requests before it has as many waiting as the autoscaler wants, if this is more than the limit.
    assert 0 < int(metric["pods"]["target"]["averageValue"]) < ServerOptions().max_waiting


def test_requests_can_end() -> None:
    pause = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["spec"]["terminationGracePeriodSeconds"] > _SHUTDOWN_SECONDS + pause
    assert int(COMPOSE["stop_grace_period"].removesuffix("s")) > _SHUTDOWN_SECONDS


def test_the_image_has_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    engines = re.findall(r"^# (\w+) for bundles .*, or (\w+) for", DOCKERFILE, re.MULTILINE)[0]
    assert {"serve", *engines} <= project["project"]["optional-dependencies"].keys()
    assert '".[serve,${ENGINE}]"' in DOCKERFILE and "ARG ENGINE=litert" in DOCKERFILE
    patterns = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    copied = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    tables = project["tool"]["setuptools"]
    folders = {Path(folder).parts[0] for folder in tables["package-dir"].values()}
    assert copied == folders | {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert all((ROOT / name).exists() for name in copied)
    assert f"kerasformer:{kerasformer.__version__}" == COMPOSE["image"]
    for container in (CONTAINER, KSERVE):
        assert container["image"].endswith(f"/{COMPOSE['image']}")
