"""`regard translate RUN`: texts in, translations out, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._answers import Searching, check_choice
from regard.cli._limit import Limit, TooLong, fitted_file, fitted_stdin
from regard.cli._output import Output, emit
from regard.cli.arguments import AsJson
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.decoding import DecodingConfig
    from regard.tasks import Translator

Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or mps.")]
BeamSize = Annotated[int | None, typer.Option(min=1, max=1000, help="Translations kept side by side; 1 is greedy.")]
LengthPenalty = Annotated[
    float | None, typer.Option(min=0, max=10, help="Above 0 prefers longer translations (Wu et al. 2016).")
]
CoveragePenalty = Annotated[
    float | None, typer.Option(min=0, help="Above 0 prefers translations that looked everywhere.")
]
Engine = Annotated[
    str | None, typer.Option(help="What computes: torch, ctranslate2 or onnx; default: what the folder is for.")
]
OverLimit = Annotated[TooLong, typer.Option(help="What to do with a line over the model's limit.")]


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with one text a line; also .gz or .xz.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations here, one a line.")] = None,
    beam_size: BeamSize = None,
    num_best: Annotated[
        int, typer.Option(min=1, max=1000, help="So many of each text: line, score and text, with tabs.")
    ] = 1,
    length_penalty: LengthPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw by chance instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option(min=0.001, max=1000, help="--sample: below 1 safer, above 1 wilder.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help="--sample: only the likeliest so many tokens; 0: all.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.000001, max=1, help="--sample: only tokens that make up this share.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="--sample: the same seed gives the same answer.")] = None,
    align: Annotated[bool, typer.Option("--align", help="Show where each word looked.")] = False,
    layer: Annotated[int | None, typer.Option(help="--align: this layer, from 0; default: mean.")] = None,
    head: Annotated[int | None, typer.Option(help="--align: this head, from 0; default: mean.")] = None,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Copy words without a token from the source.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="Write the whole search here, as JSON.")] = None,
    too_long: OverLimit = TooLong.stop,
    device: Device = "auto",
    engine: Engine = None,
    as_json: AsJson = False,
) -> None:
    """Translate texts, a file or standard input.

    One line out for each line in, in order; an empty line stays empty.

    Example: regard translate runs/dates "3. Mai 2021" --align

    Example: regard translate runs/en-de < news.en > news.de
    """
    if texts and file is not None:
        raise UsageError("Give texts or --file, not both.")
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if not sample and any(value is not None for value in (*sampling.values(), seed)):
        raise UsageError("--temperature, --top-k, --top-p and --seed are for --sample; add it, or leave them out.")
    if sample and (trace is not None or beam_size is not None):
        raise UsageError("--sample draws and does not search, so it goes with neither --beam-size nor --trace.")
    translator = load_translator_on(run, device, engine)
    options = decoding(
        translator,
        sample,
        beam_size,
        num_best=num_best,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        **sampling,
    )
    if align and (layer is not None or head is not None):
        (seen,) = translator.align_token_ids([""], [[]])
        check_choice(layer, head, seen.weights.shape[:2])
    searching = Searching(
        translator, options, _generator(translator, sample, seed), align, replace_unknown, trace is not None
    )
    blocks = _blocks(translator, texts, file, too_long, sample)
    emit(searching, blocks, Output(run, out, trace, as_json, num_best > 1, layer, head))


def load_translator_on(run: Path, device: str, engine: str | None = None) -> Translator:
    """The translator of a run where it is to compute."""
    from regard.tasks import load_translator
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    if engine not in (None, "torch"):
        if device not in ("auto", "cpu"):
            raise UsageError(f"{engine} computes on the CPU here; leave --device out, or take --engine torch.")
        device = "cpu"
    return load_translator(run, device=str(resolve_device(device)), engine=engine)


def decoding(
    translator: Translator, sample: bool = False, beam_size: int | None = None, **options: Any
) -> DecodingConfig:
    """The options of the search; the beam is at least as large as the number of results."""
    if beam_size is None and not sample:
        beam_size = max(translator.config.beam_size, options.get("num_best") or 1)
    if options.get("coverage_penalty") and (sample or beam_size == 1):
        raise UsageError("--coverage-penalty is an option of a beam search: add --beam-size 2 or more")
    return translator.decoding_config(method="sample" if sample else None, beam_size=beam_size, **options)


def _generator(translator: Translator, sample: bool, seed: int | None) -> Any:
    import torch

    if not sample:
        return None
    generator = torch.Generator(translator.device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def _blocks(
    translator: Translator, texts: list[str] | None, file: Path | None, over: TooLong, sample: bool
) -> Iterator[list[str]]:
    if file is not None:
        return fitted_file(file, Limit(translator, over, f"{file}, line"))
    if texts:
        return iter([Limit(translator, over).fitted(texts)])
    return fitted_stdin(Limit(translator, over, "standard input, line"), full=sample)
