"""`interp convert`: somebody's model into a folder of ours, or a HookedTransformer's file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.cli.terminal import print_json

if TYPE_CHECKING:
    from interp.model import Transformer


def convert_model(
    source: Annotated[Path, typer.Argument(help="A file or folder with a model.")],
    out: Annotated[
        Path, typer.Argument(help="A folder of ours, or a .pt file for HookedTransformer 3.x.")
    ],
    config: Annotated[
        Path | None, typer.Option(help="JSON of a HookedTransformer's config.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="How many heads a minGPT model has.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Of a llama2.c model.")] = None,
    step: Annotated[int | None, typer.Option(help="Which checkpoint of a run.")] = None,
    zero_biases: Annotated[
        bool, typer.Option(help="Fill in biases that a HookedTransformer's file lacks.")
    ] = False,
    whole_module: Annotated[
        bool, typer.Option(help="Read a pickled module's tensors, without running its code.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Open a model of any format that is read, and write it anew."""
    from interp.interop import Hints, format_of, open_model

    hints = Hints(
        config=config,
        n_heads=heads,
        tokenizer=tokenizer,
        step=step,
        whole_module=whole_module,
        missing_biases="zero" if zero_biases else "refuse",
    )
    found, model = format_of(source, hints), open_model(source, hints)
    said = {
        "format": found,
        "written": _write(model, out, {"path": str(source), "format": found}),
        "path": out,
        "layers": model.config.n_layers,
        "heads": model.config.n_heads,
        "parameters": sum(x.numel() for x in model.parameters()),
    }
    if as_json:
        print_json(said)
        return
    typer.echo(
        f"{source} ({found}): {said['layers']} layers of {said['heads']} heads, "
        f"{said['parameters']:,} parameters → {out} ({said['written']})"
    )


def _write(model: "Transformer", out: Path, source: dict[str, str]) -> str:
    """Write a model as the suffix says; which format that is."""
    from interp.checkpoint import save
    from interp.interop import save_transformer_lens

    if out.suffix not in (".pt", ".pth"):
        save(model, out, source=source)
        return "interp"
    out.parent.mkdir(parents=True, exist_ok=True)
    save_transformer_lens(model, out)
    return "transformer_lens"
