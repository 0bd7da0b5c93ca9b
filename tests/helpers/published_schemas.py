"""Published schemas of job files, cut down to the fields that we write: names, types and bounds, and no description.

python tests/helpers/published_schemas.py FILES... writes tests/launching/published/*.json anew. FILES are the CRDs of a
checkout (jobset.x-k8s.io_jobsets.yaml, trainer.kubeflow.org_trainjobs.yaml, ..._trainingruntimes.yaml) as SOURCE=FILE,
and one of JSON with SkyPilot's schemas: that of a task, in it those of resources and of a bucket.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from launches_made import FOUR_NODES, launch
from ruamel.yaml import YAML

from dsgen.launching import run_folder

PUBLISHED = Path(__file__).parents[1] / "launching" / "published"
_KEPT = ("type", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
         "anyOf", "oneOf", "additionalProperties", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
         "maxProperties", "uniqueItems")  # fmt: skip


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a file that a launch on four nodes writes."""
    launcher = "skypilot" if name == "task.yaml" else "kubernetes"
    script = "/srv/train.py"
    made = launch(FOUR_NODES, launcher=launcher, hosts=(), image="registry.example/image:1")
    made = attrs.evolve(made, program=attrs.evolve(made.program, script=script))
    text = next(file.text for file in run_folder(made).files if file.name == name)
    return list(YAML(typ="safe").load_all(text))


def cut(schema: Any, values: list[Any]) -> Any:
    """A schema without what none of the values uses; a field that is not used is any."""
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: schema[key] for key in _KEPT if key in schema}
    maps = [value for value in values if isinstance(value, Mapping)]
    if "properties" in schema:
        kept["properties"] = {
            name: cut(inner, [value[name] for value in maps if name in value])
            for name, inner in schema["properties"].items()
            if any(name in value for value in maps) or name in schema.get("required", ())
        }
        kept["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(schema.get("additionalProperties"), Mapping):
        inside = [item for value in maps for item in value.values()]
        kept["additionalProperties"] = cut(schema["additionalProperties"], inside)
    if "items" in schema:
        lists = [value for value in values if isinstance(value, list)]
        kept["items"] = cut(schema["items"], [item for value in lists for item in value])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kept[several] = [cut(one, values) for one in schema[several]]
    return kept


def main(words: list[str]) -> None:
    """Write every file anew."""
    PUBLISHED.mkdir(exist_ok=True)
    for name, source, schema, files in _published(words):
        used = [one for file in files for one in documents(file) if one.get("kind", "task").lower() == name]
        text = json.dumps({"source": source, "schema": cut(schema, used)}, indent=1, sort_keys=True)
        (PUBLISHED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _published(words: list[str]) -> Iterator[tuple[str, str, Any, tuple[str, ...]]]:
    for word in words:
        source, _, file = word.partition("=")
        text = Path(file).read_text("utf-8")
        if file.endswith(".json"):
            yield "task", source, json.loads(text), ("task.yaml",)
            continue
        crd = YAML(typ="safe").load(text)
        (version,) = crd["spec"]["versions"]
        kind = crd["spec"]["names"]["kind"].lower()
        yield kind, source, version["schema"]["openAPIV3Schema"], ("jobset.yaml", "trainjob.yaml")


if __name__ == "__main__":
    main(sys.argv[1:])
