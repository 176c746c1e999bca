"""What a run is to be: from a recipe, a folder, a file and the command line, in this order."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from interp.checks import no_such
from interp.config import TransformerConfig
from interp.runs import read_config
from interp.tasks import Task, make, options_of
from interp.training import TrainingOptions
from interp.training.recipes import induction

SECTIONS = ("model", "task", "training")
Sections = dict[str, dict[str, Any]]


def default_sections() -> Sections:
    """Those of the demo's two-layer model, its sizes left to the task."""
    recipe = induction()
    model = {
        name: getattr(recipe.config, name)
        for name in ("n_layers", "n_heads", "d_model", "positional")
    }
    return {"model": model, "task": {"name": recipe.task.name}, "training": dict(recipe.options)}


def sections_of_folder(folder: Path) -> Sections:
    """Those that a run was begun with."""
    described = read_config(folder)
    task = described.get("task", {})
    return {
        "model": described["model"],
        "task": {"name": task.get("name"), **task.get("options", {})},
        "training": described.get("training", {}),
    }


def sections_of_file(path: Path, *, beside: Sequence[str] = ()) -> Sections:
    """Those of a TOML (or JSON) file with tables model, task and training.

    Args:
        path: The file.
        beside: Further tables that it may have.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is neither, or a folder, or has other tables.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: wanted a TOML or JSON file")
    read = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        found = read(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: wanted a text file in UTF-8 ({error})") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: broken ({error})") from error
    tables = (*SECTIONS, *beside)
    wrong = not isinstance(found, dict) or sorted(set(found) - set(tables))
    if wrong or not all(isinstance(table, dict) for table in found.values()):
        raise ValueError(f"{path}: wanted tables {', '.join(tables)}; got {', '.join(found)}")
    return found


def sections_of_pairs(pairs: Sequence[str]) -> Sections:
    """Those of `section.name=value` pairs; a value is JSON, or else text.

    Raises:
        ValueError: A pair is of another form, or a list or dict in it is not JSON.
    """
    found: Sections = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = key.partition(".")
        if not equals or not dot or section not in SECTIONS:
            raise ValueError(
                f"--set wants model.NAME=VALUE, task.NAME=… or training.NAME=…, got {pair!r}"
            )
        found.setdefault(section, {})[name] = _value(value)
    return found


def check_axes(table: Mapping[str, Any], sections: Sections) -> None:
    """Refuse a sweep's names, and the settings below it, that no run knows.

    Args:
        table: The axes, as `interp.training.grid.planned` takes them.
        sections: What all runs begin with.

    Raises:
        ValueError: A name is misspelt.
    """
    given = {section: list(values) for section, values in sections.items()}
    axes: dict[str, list[str]] = {}
    for axis in table:
        section, dot, name = axis.partition(".")
        if dot and section not in SECTIONS:
            raise ValueError(no_such("sweep", section, SECTIONS))
        if dot:
            axes.setdefault(section, []).append(name)
    begun = merged(default_sections(), sections)["task"]["name"]
    _check_names(given, tasks=[begun], where="")
    _check_names(axes, tasks=table.get("task.name", [begun]), where="sweep.")


def _check_names(names: Mapping[str, list[str]], *, tasks: Sequence[Any], where: str) -> None:
    """Refuse a name of a section that none knows; of a task's, that none of these tasks knows."""
    known = {
        "model": [field.name for field in fields(TransformerConfig)],
        "task": ["name", *dict.fromkeys(name for task in tasks for name in options_of(str(task)))],
        "training": [field.name for field in fields(TrainingOptions)],
    }
    for section, wanted in names.items():
        for name in wanted:
            if name not in known[section]:
                raise ValueError(no_such(f"{where}{section}", name, known[section]))


def merged(*layers: Mapping[str, Mapping[str, Any]]) -> Sections:
    """Later ones win; another task brings its own options."""
    result: Sections = {section: {} for section in SECTIONS}
    for layer in layers:
        for section, values in layer.items():
            if section == "task" and values.get("name") not in (None, result["task"].get("name")):
                result["task"] = {}
            result[section] |= values
    return result


def built(sections: Sections) -> tuple[TransformerConfig, Task, dict[str, Any]]:
    """Config, task and training options; what the task knows of the model is filled in.

    Raises:
        ValueError: A name or a value that can't be.
    """
    options = dict(sections["task"])
    task = make(str(options.pop("name")), **options)
    sizes = {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx, "bos_token": task.bos_token}
    config = TransformerConfig.from_dict(sizes | sections["model"])
    TrainingOptions.of(sections["training"])
    return config, task, sections["training"]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip()[:1] in ("[", "{"):  # meant as a list or dict, and no text
            raise ValueError(f"--set wants JSON (not TOML), got {text!r} ({error})") from error
        return text
