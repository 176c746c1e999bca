"""`interp train`: one run, from flags or a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.cli.terminal import print_json

if TYPE_CHECKING:
    from interp.cli.settings import Sections

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Anything else: model.NAME=VALUE, task.NAME=…, training.NAME=…; values are JSON (in "
        "--config: TOML), or else text.",
    ),
]


def attention_kinds() -> str:
    """The kinds of attention, their options, and when to choose each: what --help ends with."""
    from interp.attention import WHEN, options_of

    lines = [
        f"{kind} ({', '.join(options_of(kind)) or '–'}): {when}" for kind, when in WHEN.items()
    ]
    options = """--set 'model.attention_options={"window": 256}'"""
    return "\n\n".join(
        [
            "Kinds of attention, their options, and when to choose them:",
            *lines,
            f"Options: {options}",
        ]
    )


def train_run(
    out: Annotated[str, typer.Option(help="The run folder.")],
    config: Annotated[
        Path | None, typer.Option(help="TOML with tables model, task, training.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="One of `interp tasks`.")] = None,
    layers: Annotated[int | None, typer.Option(help="model.n_layers")] = None,
    heads: Annotated[int | None, typer.Option(help="model.n_heads")] = None,
    d_model: Annotated[int | None, typer.Option(help="model.d_model")] = None,
    d_mlp: Annotated[int | None, typer.Option(help="model.d_mlp; without: no MLP.")] = None,
    attention: Annotated[
        str | None, typer.Option(help="model.attention; the kinds are listed below.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="training.steps")] = None,
    batch_size: Annotated[int | None, typer.Option(help="training.batch_size")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="training.learning_rate")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the weights and of the data.")] = None,
    settings: Set = None,
    resume: Annotated[bool, typer.Option(help="Go on where the folder stopped.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")] = "auto",
    compile_model: Annotated[
        bool,
        typer.Option("--compile", help="torch.compile; not with steer, clamps or sigma_reparam."),
    ] = False,
    micro_batch_size: Annotated[
        int | None, typer.Option(help="Sequences at a time; gradients are added up.")
    ] = None,
    checkpoint_activations: Annotated[
        bool, typer.Option("--checkpoint-activations", help="Less memory, a third more work.")
    ] = False,
    progress: Annotated[bool, typer.Option(help="Show a bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a model on a task and write a run folder; by default the demo's two layers.

    On many devices or processes: torchrun --nproc-per-node N -m interp train …
    """
    import interp
    from interp.cli.settings import built
    from interp.training.workers import is_main

    flags = {
        "model": {
            "n_layers": layers,
            "n_heads": heads,
            "d_model": d_model,
            "d_mlp": d_mlp,
            "attention": attention,
        },
        "task": {"name": task},
        "training": {"steps": steps, "batch_size": batch_size, "learning_rate": learning_rate},
    }
    flags["model"]["init_seed"] = flags["training"]["seed"] = seed
    sections = _sections(
        config, flags, settings or [], folder=Path(out) if resume and out else None
    )
    model, made, options = built(sections)
    run = interp.train(
        model,
        made,
        out=out,
        resume=resume,
        device=device,
        progress=progress,
        compile_model=compile_model,
        micro_batch_size=micro_batch_size,
        checkpoint_activations=checkpoint_activations,
        **options,
    )
    if not is_main():
        return
    last = run.metrics[-1]
    if as_json:
        print_json({"path": run.path, **last})
        return
    typer.echo(_summary(last))
    typer.echo(f"next: interp analyze {run.path}")


def _sections(
    config: Path | None, flags: "Sections", pairs: list[str], *, folder: Path | None
) -> "Sections":
    """What was asked for, over what a folder that is gone on with was begun with."""
    from interp.cli import settings as given

    begun = folder is not None and (folder / "config.json").exists()
    return given.merged(
        given.sections_of_folder(folder) if begun and folder else given.default_sections(),
        given.sections_of_file(config) if config else {},
        {section: _given(values) for section, values in flags.items()},
        given.sections_of_pairs(pairs),
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _summary(last: dict[str, Any]) -> str:
    words = f"step {last['step']}: held-out loss {last['held_out_loss']:.4f} nats"
    return f"{words}, accuracy {last['held_out_accuracy']:.4f}, {last['seconds']:.0f} s"
