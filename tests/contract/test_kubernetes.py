"""The manifests of docs/operating/kubernetes: rendered by kubectl, validated, compared with the program name by name,
and their containers' commands run with the settings that they are given.

There is no cluster here: folders and ports of this machine stand for the volumes and addresses that one gives to a pod.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import yaml
from pydantic import SecretStr
from typer.main import get_group

from app import VERSION, server
from app.cli.launcher import write_launcher
from app.cli.main import cli
from app.context import audit_pool, default_pool
from app.settings import Settings
from tests.contract.documents import DOCS, ROOT
from tests.contract.test_container import COMPOSE, instructions
from tests.contract.test_operating_pages import commands
from tests.databases import DatabaseFactory

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
MANIFESTS = DOCS / "operating" / "kubernetes"
#: The versions of Kubernetes that the page names.
VERSIONS = ["1.29", "1.37"]
#: Variables of the containers that are no settings of ours.
OTHERS = {"XDG_CACHE_HOME"}
CASES = pytest.mark.parametrize("folder", ["base", "example"])
SIZES = {"Gi": 2**30, "Mi": 2**20}
PATIENCE_S = 90

Object = dict[str, Any]


@cache
def rendered(folder: str) -> tuple[Object, ...]:
    made = subprocess.run([KUBECTL, "kustomize", MANIFESTS / folder], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    return tuple(yaml.safe_load_all(made.stdout))


def of_kind(kind: str, folder: str = "base") -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in rendered(folder) if each["kind"] == kind}


def pods(folder: str = "base") -> dict[str, Object]:
    """The templates of pods, by the component that they are of."""
    owners = {**of_kind("Deployment", folder), **of_kind("Job", folder)}.values()
    return {owner["metadata"]["labels"]["app.kubernetes.io/component"]: owner["spec"]["template"] for owner in owners}


def container(pod: Object) -> Object:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def settings_of(folder: str = "base") -> dict[str, str]:
    (settings,) = of_kind("ConfigMap", folder).values()
    return dict(settings["data"])


def secrets_of(pod: Object) -> dict[str, tuple[str, str]]:
    """The variables that come from Secrets, each with the Secret's name and its key."""
    found = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container(pod)["env"]}
    return {name: (reference["name"], reference["key"]) for name, reference in found.items()}


def selected(selector: Object, folder: str = "base") -> set[str]:
    """The components whose pods have all labels of a selector."""
    wanted = selector.get("matchLabels", selector)
    return {component for component, pod in pods(folder).items() if wanted.items() <= pod["metadata"]["labels"].items()}


def page() -> list[str]:
    return [line for block in commands("kubernetes.md") for line in block.splitlines()]


def size(text: str) -> int:
    return int(text[:-2]) * SIZES[text[-2:]]


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_of_kubernetes(folder: str, version: str) -> None:
    assert len(rendered(folder)) > 10
    for each in rendered(folder):
        assert kubernetes_validate.validate(each, version, strict=True) == version


def test_a_field_that_kubernetes_does_not_have_is_found() -> None:
    spoiled = yaml.safe_load(yaml.safe_dump(of_kind("Deployment")["epsilond-server"]))
    spoiled["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(spoiled, VERSIONS[0], strict=True)


def test_the_page_names_the_versions() -> None:
    assert " and ".join(VERSIONS) in (DOCS / "operating" / "kubernetes.md").read_text()


@CASES
def test_there_is_what_the_page_names_and_no_secret(folder: str) -> None:
    assert set(of_kind("Deployment", folder)) == {"epsilond-server", "epsilond-worker", "epsilond-maintenance"}
    assert set(pods(folder)) == {"server", "worker", "maintenance", "migrate"}
    assert not of_kind("Secret", folder)
    assert {each["metadata"].get("namespace", "epsilond") for each in rendered(folder)} == {"epsilond"}
    text = (DOCS / "operating" / "kubernetes.md").read_text()
    for name in {**of_kind("Deployment", folder), **of_kind("Job", folder), **of_kind("PersistentVolumeClaim", folder)}:
        assert f"`{name}`" in text


@CASES
def test_every_variable_is_a_setting_and_secret_ones_come_from_secrets(folder: str, tmp_path: Path) -> None:
    names = {f"EPSILOND_{name.upper()}" for name in Settings.model_fields}
    private = {
        f"EPSILOND_{name.upper()}"
        for name, field in Settings.model_fields.items()
        if field.annotation in (SecretStr, SecretStr | None)
    } | {"EPSILOND_DATABASE_URL"}
    public = settings_of(folder)
    assert set(public) - names == OTHERS
    # The fence is a file here: its path is no secret, as the address of a database would be.
    assert private & set(public) == {"EPSILOND_FENCE"}
    assert public["EPSILOND_FENCE"].startswith("/")
    for pod in pods(folder).values():
        assert set(secrets_of(pod)) == {"EPSILOND_DATABASE_URL", "EPSILOND_SECRET_KEY", "EPSILOND_DATA_KEY"}
        assert set(secrets_of(pod)) <= names


def test_the_addresses_of_the_settings_are_mounted_and_writable() -> None:
    public = settings_of()
    for component, pod in pods().items():
        mounts = {mount["mountPath"]: mount for mount in container(pod)["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert set(volumes) == {mount["name"] for mount in mounts.values()}, component
        for name, is_written in {
            "EPSILOND_DATA_DIR": True,
            "EPSILOND_FENCE": True,
            "EPSILOND_CHECKPOINT_KEY_FILE": False,
            "XDG_CACHE_HOME": True,
        }.items():
            [over] = [path for path in mounts if Path(path) in Path(public[name]).parents]
            assert mounts[over].get("readOnly", False) is not is_written, (component, name)
        claimed = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in volumes.values()
            if "emptyDir" not in volume and "secret" not in volume
        }
        assert claimed == set(of_kind("PersistentVolumeClaim")) == {"epsilond-data", "epsilond-fence"}
        assert volumes["signatures"]["secret"] == {"secretName": "epsilond-signatures", "defaultMode": 0o440}
    homes = {name: Path(public[name]).parts[:4] for name in ("EPSILOND_DATA_DIR", "EPSILOND_FENCE")}
    assert homes["EPSILOND_DATA_DIR"] != homes["EPSILOND_FENCE"], "the fence is on a volume of its own"


@CASES
def test_every_pod_is_as_unprivileged_as_the_image(folder: str) -> None:
    user, group = map(int, instructions("USER")[0].split(":"))
    assert not of_kind("ServiceAccount", folder)["epsilond"]["automountServiceAccountToken"]
    labels = of_kind("Namespace", folder)["epsilond"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods(folder).values():
        spec, only = pod["spec"], container(pod)
        assert spec["serviceAccountName"] == "epsilond"
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "EPSILOND_PORT would be tcp://..., made of the Service's name"
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": group,
            "fsGroup": group,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(only["resources"]["requests"]) == {"cpu", "memory"}
        assert set(only["resources"]["limits"]) == {"memory"}


def test_the_image_is_that_of_this_version() -> None:
    for pod in pods().values():
        assert container(pod)["image"] == COMPOSE["x-epsilond"]["image"] == f"epsilond:{VERSION}"
    for pod in pods("example").values():
        assert container(pod)["image"] == f"registry.example/epsilond:{VERSION}"


def test_every_command_is_one_of_the_command_line() -> None:
    known = set(get_group(cli).commands)
    found = {component: container(pod)["command"] for component, pod in pods().items()}
    assert found.pop("maintenance") == ["sleep", "infinity"]
    assert all(command[:3] == ["python", "-m", "app"] for command in found.values())
    assert {component: command[3:] for component, command in found.items()} == {
        "migrate": ["migrate"],
        "server": ["serve"],
        "worker": ["worker"],
    }
    assert {command[3] for command in found.values()} <= known


def test_probes_ask_what_the_service_answers() -> None:
    answered = json.loads((ROOT / "openapi.json").read_text())["paths"]
    server_container = container(pods()["server"])
    for probe, path in {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}.items():
        asked = server_container[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "http"}
        assert path in answered


@CASES
def test_the_port_is_one(folder: str) -> None:
    [port] = container(pods(folder)["server"])["ports"]
    assert port == {"name": "http", "containerPort": int(settings_of(folder)["EPSILOND_PORT"])}
    [published] = of_kind("Service", folder)["epsilond"]["spec"]["ports"]
    assert published["targetPort"] == port["name"]
    [rule] = of_kind("NetworkPolicy", folder)["epsilond-server"]["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port["name"]]


@CASES
def test_selectors_select(folder: str) -> None:
    for name, deployment in of_kind("Deployment", folder).items():
        assert selected(deployment["spec"]["selector"], folder) == {name.removeprefix("epsilond-")}
        for spread in deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            assert selected(spread["labelSelector"], folder) == {"server"}
    assert selected(of_kind("Service", folder)["epsilond"]["spec"]["selector"], folder) == {"server"}
    assert selected(of_kind("PodDisruptionBudget", folder)["epsilond-server"]["spec"]["selector"], folder) == {"server"}
    policies = {name: each["spec"] for name, each in of_kind("NetworkPolicy", folder).items()}
    everything = set(pods(folder))
    assert {name: selected(each["podSelector"], folder) for name, each in policies.items()} == {
        "epsilond-nothing": everything,
        "epsilond-server": {"server"},
        "epsilond-database": everything,
    }
    nothing = policies["epsilond-nothing"]
    assert set(nothing["policyTypes"]) == {"Ingress", "Egress"}
    assert not {"ingress", "egress"} & set(nothing)


def test_times_of_a_stop_fit_together() -> None:
    for component in ("server", "worker"):
        drain_s = float(settings_of()["EPSILOND_DRAIN_S"]) if component == "server" else 0.0
        assert pods()[component]["spec"]["terminationGracePeriodSeconds"] >= drain_s + server.STOP_S + 5
    assert (
        float(settings_of()["EPSILOND_DRAIN_S"]) >= 2 * container(pods()["server"])["readinessProbe"]["periodSeconds"]
    )


def test_a_server_has_the_memory_that_its_processes_may_take() -> None:
    numerics, audits = default_pool(), audit_pool()
    taken = 2 * numerics.memory_bytes + audits.memory_bytes
    assert size(container(pods()["server"])["resources"]["limits"]["memory"]) > taken


def test_the_example_narrows_what_the_base_leaves_open() -> None:
    assert "to" not in of_kind("NetworkPolicy")["epsilond-database"]["spec"]["egress"][1]
    [place] = of_kind("NetworkPolicy", "example")["epsilond-database"]["spec"]["egress"][1]["to"]
    assert set(place) == {"namespaceSelector"}
    assert all(each["spec"]["storageClassName"] for each in of_kind("PersistentVolumeClaim", "example").values())
    more = set(settings_of("example")) - set(settings_of())
    assert more == {"EPSILOND_PUBLIC_URL", "EPSILOND_TRUSTED_PROXIES"}


def kept_secrets(folder: Path, database_url: str) -> dict[str, dict[str, bytes]]:
    """Do what the page says of secrets, with the real kubectl that only prints the objects: their contents by name."""
    lines = page()
    first = next(place for place, line in enumerate(lines) if line.startswith("umask"))
    last = max(place for place, line in enumerate(lines) if " create secret " in line)
    function = f'kubectl() {{ {shlex.quote(KUBECTL)} "$@" --dry-run=client --output=yaml; echo ---; }}'
    made = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "\n".join([function, *lines[first : last + 1]])],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "EPSILOND_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    objects = [each for each in yaml.safe_load_all(made.stdout) if each]
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value) for key, value in each["data"].items()}
        for each in objects
    }


def test_the_page_makes_the_secrets_that_the_pods_name(tmp_path: Path) -> None:
    made = kept_secrets(tmp_path, "postgresql://user:password@host/name")
    for pod in pods().values():
        assert {key for name, key in secrets_of(pod).values() if name == "epsilond-secrets"} == set(
            made["epsilond-secrets"]
        )
    signing = Path(settings_of()["EPSILOND_CHECKPOINT_KEY_FILE"])
    assert set(made["epsilond-signatures"]) == {signing.name}
    assert all((tmp_path / "secrets" / name).stat().st_mode & 0o077 == 0 for name in os.listdir(tmp_path / "secrets"))


def test_kubectl_understands_every_command_of_the_page(tmp_path: Path) -> None:
    """Up to the request to the cluster, which is nowhere; and every object that is named is there."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}
    subprocess.run(
        [KUBECTL, "config", "set-context", "here", "--cluster=here"], env=environment, check=True, capture_output=True
    )
    subprocess.run([KUBECTL, "config", "use-context", "here"], env=environment, check=True, capture_output=True)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and nobody listens
        nowhere = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        subprocess.run(
            [KUBECTL, "config", "set-cluster", "here", f"--server={nowhere}"],
            env=environment,
            check=True,
            capture_output=True,
        )
        tried = [line for line in page() if line.startswith("kubectl ") and " create secret " not in line]
        for line in tried:
            words = shlex.split(re.sub(r' [<>] "\$KEPT/.*', "", line))
            told = subprocess.run(
                [KUBECTL, *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            if words[1] == "config":
                assert told.returncode == 0, told.stderr
            else:
                assert re.search(r"connection refused|was refused", told.stderr), (line, told.stderr)
            for kind, name in re.findall(r"(deployment|job)[/ ](epsilond-\w+)", line):
                assert name in of_kind(kind.capitalize()), line
    assert len(tried) > 20


def test_selectors_on_the_page_leave_out_servers_and_workers() -> None:
    [before, again] = [line for line in page() if " apply -k " in line and "--selector" in line]
    assert before == again
    assert "'app.kubernetes.io/component notin (server, worker)'" in before
    left_out = {
        each["metadata"]["name"]
        for each in rendered("example")
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") in ("server", "worker")
    }
    assert left_out == {"epsilond", "epsilond-server", "epsilond-worker"}


@dataclass
class Cluster:
    """Folders and ports of this machine in place of what a cluster gives to a pod."""

    folder: Path
    secrets: dict[str, dict[str, bytes]]
    port: int

    def localized(self, text: str) -> str:
        return re.sub(r"^(?=/(?:var|etc|tmp)/)", str(self.folder), text)

    def environment(self, component: str) -> dict[str, str]:
        pod = pods()[component]
        given = {name: self.localized(value) for name, value in settings_of().items()}
        given |= {name: self.secrets[secret][key].decode() for name, (secret, key) in secrets_of(pod).items()}
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return given | {
            "PATH": path,
            "EPSILOND_HOST": "127.0.0.1",
            "EPSILOND_PORT": str(self.port),
            "EPSILOND_DRAIN_S": "2",
        }

    def start(self, component: str) -> subprocess.Popen[str]:
        command = [sys.executable, *container(pods()[component])["command"][1:]]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment(component),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @contextmanager
    def running(self, component: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start(component)
        try:
            yield process
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output

    def typed(self, line: str) -> str:
        """What a command prints that the page has in a pod, where `/tmp` is a folder of this machine."""
        _, component, command = re.split(r"deployment/epsilond-(\w+) -- ", line)
        command = re.sub(r"(?<= )/tmp/", f"{self.folder}/tmp/", command)
        environment = self.environment(component) | {"KEPT": str(self.folder / "kept")}
        done = subprocess.run(
            ["bash", "-eu", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def asked(self, probe: str) -> int:
        path = container(pods()["server"])[f"{probe}Probe"]["httpGet"]["path"]
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=20).status_code
        except httpx2.TransportError:
            return 0

    def wait_for(self, probe: str, status: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.asked(probe) != status:
            assert time.monotonic() < deadline, f"{probe} is not {status}"
            time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path, postgresql_databases: DatabaseFactory) -> Cluster:
    url = postgresql_databases.empty().replace("postgresql+psycopg://", "postgresql://")
    made = kept_secrets(tmp_path, url)
    for mount in container(pods()["server"])["volumeMounts"]:
        Path(f"{tmp_path}{mount['mountPath']}").mkdir(parents=True, mode=0o770)
    for name, content in made["epsilond-signatures"].items():
        (tmp_path / "etc/epsilond/signatures" / name).write_bytes(content)
    (tmp_path / "kept").mkdir()
    (tmp_path / "bin").mkdir()
    write_launcher(tmp_path / "bin", Path(sys.executable))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Cluster(tmp_path, made, probe.getsockname()[1])


@pytest.mark.thorough
def test_the_pods_commands_and_those_of_the_page_do_what_they_say(cluster: Cluster) -> None:
    typed = [line for line in page() if " exec " in line]
    [first_key, *upgrade] = typed
    with cluster.running("migrate") as migration:
        migration.wait(PATIENCE_S)
        assert migration.returncode == 0
    with cluster.running("server") as process, cluster.running("worker") as worker:
        assert worker.stdout is not None
        # One that is told to stop before it has started ends by the signal.
        assert any("worker_started" in line for line in worker.stdout)
        cluster.wait_for("startup", 200)
        cluster.wait_for("readiness", 200)
        key = re.findall(r"epsilond_\w+", cluster.typed(first_key))[-1]
        base = f"http://127.0.0.1:{cluster.port}"
        with httpx2.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            opened = client.post(
                "/v1/budgets",
                json={
                    "name": "b",
                    "neighboring_relation": "add_or_remove_one",
                    "filter": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                },
                headers={"Idempotency-Key": "one"},
            )
            assert opened.status_code == 201, opened.text
        process.send_signal(signal.SIGTERM)
        cluster.wait_for("readiness", 503)
        assert cluster.asked("liveness") == 200
    for line in upgrade:
        said = cluster.typed(line)
    assert "verify --since" in upgrade[-1]
    assert "valid" in said
    assert {path.name for path in (cluster.folder / "kept").iterdir()} == {
        "epsilond.backup",
        "ledger.ndjson",
        "checkpoint.txt",
    }
    data = cluster.folder / "var/lib/epsilond/data"
    assert data.stat().st_mode & 0o077 == 0
    assert not (data / "fence").exists()
    assert Path(cluster.localized(settings_of()["EPSILOND_FENCE"])).exists()
