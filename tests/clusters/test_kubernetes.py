"""`experiments/launch/kubernetes.yaml` against Kubernetes' own schema; it cannot be run here."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).parents[2] / "experiments" / "launch" / "kubernetes.yaml"
SCHEMA = json.loads(Path(__file__).with_name("kubernetes_schema.json").read_text())
TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}


def problems(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """List what the schema does not allow: wrong types, unknown or missing fields."""
    kinds = schema.get("type", [])
    if "properties" in schema or "additionalProperties" in schema:
        if not isinstance(value, dict):
            yield f"{place} is {value!r}, not an object"
            return
        known = schema.get("properties")
        yield from (f"{place} lacks {n}" for n in schema.get("required", ()) if n not in value)
        for name, held in value.items():
            if known is not None and name not in known:
                yield f"{place}.{name} does not exist"
            else:
                inner = known[name] if known is not None else schema["additionalProperties"]
                yield from problems(held, inner, f"{place}.{name}")
    elif kinds == "array":
        if not isinstance(value, list):
            yield f"{place} is {value!r}, not a list"
            return
        for number, held in enumerate(value):
            yield from problems(held, schema["items"], f"{place}[{number}]")
    elif kinds:
        allowed = [TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        number_as_bool = isinstance(value, bool) and bool not in allowed
        if not any(isinstance(value, kind) for kind in allowed) or number_as_bool:
            yield f"{place} is {value!r}, not {kinds}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{place} is {value!r}, not one of {schema['enum']}"


@pytest.fixture
def documents() -> dict[str, Any]:
    return {held["kind"]: held for held in yaml.safe_load_all(FILE.read_text())}


def test_the_file_is_valid(documents):
    assert set(documents) == {"Service", "Job"}
    for kind, document in documents.items():
        assert list(problems(document, SCHEMA[kind], kind)) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("spec", "completionsMode"), "Indexed", "completionsMode does not exist"),
        (("spec", "parallelism"), "two", "parallelism is 'two'"),
        (("spec", "template", "spec", "containers"), {}, "not a list"),
        (("spec", "template"), None, "template is None, not an object"),
    ],
)
def test_mistakes_are_found(documents, path, value, problem):
    """The control: a misspelt field, a wrong type."""
    job = copy.deepcopy(documents["Job"])
    parent = job
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    (found,) = problems(job, SCHEMA["Job"], "Job")
    assert problem in found


def test_the_numbers_of_processes_agree(documents):
    job = documents["Job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert str(job["parallelism"]) == str(job["completions"]) == variables["JAX_NUM_PROCESSES"]
    assert job["completionMode"] == "Indexed"
    pod, service = variables["JAX_COORDINATOR_ADDRESS"].partition(":")[0].split(".")
    assert pod == f"{documents['Job']['metadata']['name']}-0"
    assert service == documents["Service"]["metadata"]["name"]
    assert service == job["template"]["spec"]["subdomain"]
    selector = documents["Service"]["spec"]["selector"]
    assert selector.items() <= job["template"]["metadata"]["labels"].items()
