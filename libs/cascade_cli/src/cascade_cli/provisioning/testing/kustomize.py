"""As much of kustomize as deploy/k8s uses, so that its documents can be checked where there is no kustomize.

Held to the real one by a test that runs where kubectl is installed. Anything that this does not know is refused.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

_KNOWN = {
    "apiVersion", "kind", "resources", "namespace", "replicas", "configMapGenerator", "images", "patches",
}  # fmt: skip
_WITHOUT_NAMESPACE = {"Namespace"}
_MERGED_BY_NAME = {"containers", "initContainers", "env", "volumes"}


def rendered(directory: Path) -> list[Document]:
    """The documents that `kubectl kustomize directory` prints, in no certain order."""
    documents = _rendered(directory)
    generated: dict[str, str] = {}
    for document in documents:
        if document.pop("generated", False):
            name = document["metadata"]["name"]
            digest = hashlib.sha256(json.dumps(document["data"], sort_keys=True).encode()).hexdigest()[:10]
            generated[name] = document["metadata"]["name"] = f"{name}-{digest}"
    for document in documents:
        for parent, key in _config_map_references(document):
            parent[key] = generated.get(parent[key], parent[key])
    return documents


def _rendered(directory: Path) -> list[Document]:
    kustomization: Document = yaml.safe_load((directory / "kustomization.yaml").read_text("utf-8"))
    unknown = set(kustomization) - _KNOWN
    if unknown:
        raise NotImplementedError(f"{directory}: {sorted(unknown)}")
    documents: list[Document] = []
    for resource in kustomization.get("resources", []):
        path = (directory / resource).resolve()
        documents += _rendered(path) if path.is_dir() else _read(path)
    for generator in kustomization.get("configMapGenerator", []):
        _generate(documents, generator, directory)
    for patch in kustomization.get("patches", []):
        _patch(documents, patch)
    if namespace := kustomization.get("namespace"):
        _set_namespace(documents, namespace)
    for replicas in kustomization.get("replicas", []):
        for document in documents:
            if document["kind"] in ("Deployment", "StatefulSet") and _name(document) == replicas["name"]:
                document["spec"]["replicas"] = replicas["count"]
    for image in kustomization.get("images", []):
        _set_image(documents, image)
    return documents


def _read(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document is not None]


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _generate(documents: list[Document], generator: Document, directory: Path) -> None:
    values = dict(literal.split("=", 1) for literal in generator.get("literals", []))
    values |= {name: (directory / name).read_text("utf-8") for name in generator.get("files", [])}
    if generator.get("behavior") == "merge":
        (found,) = [
            one for one in documents if one["kind"] == "ConfigMap" and _name(one) == generator["name"]
        ]
        found["data"] |= values
        return
    documents.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generator["name"]},
            "data": values,
            "generated": True,
        }
    )


def _patch(documents: list[Document], patch: Document) -> None:
    target = patch["target"]
    content = yaml.safe_load(patch["patch"])
    chosen = [
        document
        for document in documents
        if document["kind"] == target["kind"] and _name(document) == target.get("name", _name(document))
    ]
    if not chosen:
        raise LookupError(f"nothing to patch: {target}")
    for document in chosen:
        if isinstance(content, list):
            for operation in content:
                _apply(document, copy.deepcopy(operation))
        else:
            _merge(document, copy.deepcopy(content))


def _apply(document: Document, operation: Document) -> None:
    """One operation of RFC 6902."""
    *way, last = [
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].removeprefix("/").split("/")
    ]
    node: Any = document
    for part in way:
        node = node[int(part)] if isinstance(node, list) else node[part]
    key: Any = int(last) if isinstance(node, list) else last
    match operation["op"]:
        case "replace":
            node[key]  # must be there
            node[key] = operation["value"]
        case "add" if isinstance(node, dict):
            node[key] = operation["value"]
        case other:
            raise NotImplementedError(other)


def _merge(into: Document, patch: Document) -> None:
    """A strategic merge patch."""
    for key, value in patch.items():
        present = into.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        elif key in _MERGED_BY_NAME and isinstance(present, list):
            by_name = {item["name"]: item for item in present}
            for item in value:
                if item["name"] in by_name:
                    _merge(by_name[item["name"]], item)
                else:
                    present.append(item)
        else:
            into[key] = value


def _set_namespace(documents: list[Document], namespace: str) -> None:
    for document in documents:
        if document["kind"] not in _WITHOUT_NAMESPACE:
            document["metadata"]["namespace"] = namespace
        for subject in document.get("subjects", []):
            subject["namespace"] = namespace


def _set_image(documents: list[Document], image: Document) -> None:
    for document in documents:
        for container in _containers(document):
            name, _, tag = container["image"].partition(":")
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"


def _containers(document: Document) -> list[Document]:
    template = document.get("spec", {}).get("template", {})
    return [*template.get("spec", {}).get("containers", [])] if isinstance(template, dict) else []


def _config_map_references(document: Document) -> Iterator[tuple[Document, str]]:
    template = document.get("spec", {}).get("template", {})
    for container in _containers(document):
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                yield source["configMapRef"], "name"
    for volume in template.get("spec", {}).get("volumes", []) if isinstance(template, dict) else []:
        if "configMap" in volume:
            yield volume["configMap"], "name"


def without_hashes(documents: list[Document], *, is_generated: Callable[[str], bool]) -> list[Document]:
    """The documents with the hash taken off the names of generated ConfigMaps and of references to them."""
    plain = copy.deepcopy(documents)
    for document in plain:
        if document["kind"] == "ConfigMap" and is_generated(_name(document)):
            document["metadata"]["name"] = _name(document).rsplit("-", 1)[0]
        for parent, key in _config_map_references(document):
            if is_generated(parent[key]):
                parent[key] = parent[key].rsplit("-", 1)[0]
    return plain
