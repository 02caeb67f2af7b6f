"""Goal: the files that deploy Stelae are valid, agree with each other, and say what the program understands.

Method: the linters of `deploy/check`; then the files are read as data and compared with the server's answers, the
command line and the project's version. No container runs here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from stelae.cli.app import make_app

ROOT = Path(__file__).parent.parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PORT = 8000
PAGE = (ROOT / "docs" / "deploy.md").read_text()
COMMANDS = get_command(make_app()).commands  # type: ignore[attr-defined]
LINTERS = ("hadolint", "yamllint", "check-jsonschema", "kubernetes-validate")
LINTER_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
MISSING_LINTERS = not all(shutil.which(tool, path=LINTER_PATH) for tool in LINTERS)


def documents() -> Iterator[dict[str, Any]]:
    for file in sorted(KUBERNETES.glob("*.yaml")):
        yield from yaml.safe_load_all(file.read_text())


def resource(kind: str, name: str) -> dict[str, Any]:
    return next(d for d in documents() if d["kind"] == kind and d["metadata"]["name"] == name)


def pod_specs() -> list[dict[str, Any]]:
    server = resource("StatefulSet", "stelae-server")["spec"]
    build = resource("CronJob", "stelae-build-users")["spec"]["jobTemplate"]["spec"]
    return [server["template"]["spec"], build["template"]["spec"]]


def containers() -> list[dict[str, Any]]:
    return [c for pod in pod_specs() for c in [*pod.get("initContainers", []), *pod["containers"]]]


def server_container() -> dict[str, Any]:
    return pod_specs()[0]["containers"][0]


def kustomization() -> dict[str, Any]:
    return yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions of each stage of the Dockerfile, its base stages' included."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.split()
            current = found[name] = list(found.get(base, []))
        elif instruction != "ARG":
            current.append((instruction, rest.strip()))
    return found


def last(stage: str, instruction: str) -> str:
    return [rest for name, rest in stages()[stage] if name == instruction][-1]


def commands() -> list[list[str]]:
    """Every command line of `stelae` in the files and in docs/deploy.md, without the leading `stelae`."""
    return [
        json.loads(last("service", "CMD")),
        compose()["services"]["builder"]["command"],
        *(container["args"] for container in containers()),
        *(line.split() for line in re.findall(r"run --rm builder ([^`\n]+)", PAGE)),
    ]


@pytest.mark.skipif(MISSING_LINTERS, reason="the extra dev brings hadolint and the other linters")
def test_linters_find_nothing() -> None:
    environment = {**os.environ, "PATH": LINTER_PATH}
    done = subprocess.run([ROOT / "deploy" / "check"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("line", commands(), ids=" ".join)
def test_command_lines_are_understood(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(rest.split("=") for rest in last("service", "ENV").split() if rest.startswith("STELAE_"))
    assert all({"name": n, "value": v} in c["env"] for c in containers() for n, v in variables.items())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert COMMANDS[line[0]].make_context(line[0], line[1:]).params["warehouse"] == "/warehouse"


def test_flags_on_the_page_exist() -> None:
    known = {flag for command in COMMANDS.values() for parameter in command.params for flag in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)`", PAGE)) <= known


def test_probes_are_answered_by_the_server(tmp_path: Path) -> None:
    from stelae.service.app import create_app
    from stelae.service.options import ServerOptions
    from stelae.snapshot.warehouse import Warehouse

    names = ("startup", "readiness", "liveness")
    probes = {name: server_container()[f"{name}Probe"]["httpGet"]["path"] for name in names}
    assert probes == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
    assert "/livez" in last("service", "HEALTHCHECK")

    async def statuses() -> list[int]:
        app = create_app(ServerOptions(data_folder=tmp_path / "tablets"), Warehouse(tmp_path))
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async with app.running():
            async with asyncio.timeout(30):
                while not app.ready:
                    await asyncio.sleep(0.01)
            for path in probes.values():
                scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
                await app(scope, receive, send)
        return [message["status"] for message in sent if message["type"] == "http.response.start"]

    assert asyncio.run(statuses()) == [200, 200, 200], "a warehouse without tables is ready too"


@pytest.mark.parametrize("target", ["service", "builder"])
def test_images_run_without_root_and_stop_when_asked(target: str) -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last(target, "USER"))
    # Exec form below an init: SIGTERM reaches the program, no shell in between.
    assert json.loads(last(target, "ENTRYPOINT")) == ["tini", "--", "stelae"]
    assert isinstance(json.loads(last(target, "CMD")), list)


def test_pods_have_no_privileges_and_the_images_user() -> None:
    user, group = map(int, last("service", "USER").split(":"))
    assert last("builder", "USER") == last("service", "USER")
    for pod in pod_specs():
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (user, group, group)
        assert pod["automountServiceAccountToken"] is False
    for container in containers():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"].keys() == {"requests", "limits"}


def test_one_port_everywhere() -> None:
    for line in (json.loads(last("service", "CMD")), server_container()["args"]):
        assert line[line.index("--port") + 1] == str(PORT)
        assert line[line.index("--host") + 1] == "0.0.0.0"
    assert last("service", "EXPOSE") == str(PORT)
    assert f":{PORT}/livez" in last("service", "HEALTHCHECK")
    assert [p.rsplit(":", 1)[1] for p in compose()["services"]["server"]["ports"]] == [str(PORT)]
    assert [p["containerPort"] for p in server_container()["ports"]] == [PORT]
    for document in documents():
        if document["kind"] == "Service":
            assert [(p["port"], p["targetPort"]) for p in document["spec"]["ports"]] == [(PORT, "http")]


def test_images_have_one_name_and_the_projects_version() -> None:
    services = compose()["services"]
    assert services["server"]["image"] == f"stelae-service:{VERSION}"
    assert services["builder"]["image"] == f"stelae-builder:{VERSION}"
    tags = {image["name"]: image["newTag"] for image in kustomization()["images"]}
    assert tags == {"stelae-service": VERSION, "stelae-builder": VERSION}
    assert {c["image"] for c in containers()} == set(tags)
    assert {s["build"]["target"] for s in services.values()} <= set(stages())


def test_kustomization_names_every_file() -> None:
    generated = [name for generator in kustomization()["configMapGenerator"] for name in generator["files"]]
    named = {"kustomization.yaml", *kustomization()["resources"], *generated}
    assert named == {path.name for path in KUBERNETES.iterdir()}


def test_selectors_match_the_servers_pods() -> None:
    server = resource("StatefulSet", "stelae-server")["spec"]
    labels = server["template"]["metadata"]["labels"]
    assert server["selector"]["matchLabels"] == labels
    assert server["serviceName"] == "stelae-server-headless"
    assert resource("Service", "stelae-server-headless")["spec"]["clusterIP"] == "None"
    for name in ("stelae-server", "stelae-server-headless"):
        assert resource("Service", name)["spec"]["selector"] == labels
    assert resource("PodDisruptionBudget", "stelae-server")["spec"]["selector"]["matchLabels"] == labels
    build = resource("CronJob", "stelae-build-users")["spec"]["jobTemplate"]["spec"]["template"]
    assert build["metadata"]["labels"] != labels, "a Service would send requests to builds"


def test_every_volume_and_claim_exists() -> None:
    claims = {d["metadata"]["name"] for d in documents() if d["kind"] == "PersistentVolumeClaim"}
    for pod in pod_specs():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounted = {m["name"] for c in [*pod.get("initContainers", []), *pod["containers"]] for m in c["volumeMounts"]}
        assert mounted == set(volumes)
        used = [v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
        assert {claim["claimName"] for claim in used} <= claims


def test_overlay_for_object_stores_patches_the_warehouse() -> None:
    """The page's JSON patches go by position."""
    overlay = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
    touched = 0
    for patch in overlay["patches"]:
        operations = yaml.safe_load(patch["patch"])
        if "target" not in patch:
            assert operations["metadata"]["name"] == "stelae-warehouse"
            continue
        for operation in operations:
            if operation["op"] == "add":
                continue
            value: Any = next(d for d in documents() if d["kind"] == patch["target"]["kind"])
            for step in operation["path"].removesuffix("/value").strip("/").split("/"):
                value = value[int(step) if isinstance(value, list) else step]
            assert value["name"] in ("warehouse", "STELAE_WAREHOUSE")
            touched += 1
    mounts = sum(m["name"] == "warehouse" for c in containers() for m in c["volumeMounts"])
    assert touched == len(containers()) + mounts + len(pod_specs()), "variables, mounts and volumes"


def test_containers_have_time_to_stop() -> None:
    from stelae.service.options import DEFAULTS

    line = server_container()["args"]
    drain_s = float(line[line.index("--drain") + 1])
    assert pod_specs()[0]["terminationGracePeriodSeconds"] > drain_s + DEFAULTS.shutdown_grace_s
    assert int(compose()["services"]["server"]["stop_grace_period"].removesuffix("s")) > DEFAULTS.shutdown_grace_s


def test_builds_never_overlap_and_give_up() -> None:
    spec = resource("CronJob", "stelae-build-users")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] > 0
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0


def test_example_table_is_one_that_builds_name() -> None:
    from stelae.schema.sql import parse_create_table

    name, _, if_not_exists = parse_create_table((KUBERNETES / "users.sql").read_text())
    assert if_not_exists, "the CronJob creates it every night"
    for line in commands():
        if line[0] == "build":
            assert line[1] == str(name)
