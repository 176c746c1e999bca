"""Pictures: arrays in, a plotly figure out.

Every function here takes tensors of any float dtype, arrays or lists, and returns a `Figure`: its
title is the question that it answers, `about(fig)` has the finding in words, the formula and the
sign, and `numbers(fig)` the numbers. NaN is marked and counted, never drawn as 0.
"""

from interp.plots.effects import effect_bars, logit_attribution
from interp.plots.export import numbers, to_csv, to_html, to_json
from interp.plots.figure import About, Figure, about, finish, in_theme, without_title
from interp.plots.formation import heads_by_step
from interp.plots.graph import Edge, circuit, composition_graph
from interp.plots.heads import head_comparison, head_difference, head_heatmap
from interp.plots.interactions import interaction_heatmap
from interp.plots.lens import logit_lens, patching_heatmap
from interp.plots.matrices import composition_heatmap, matrix_heatmap, spectrum
from interp.plots.page import Html, Section, report_page
from interp.plots.patterns import attention, where_to_look
from interp.plots.sprite import attention_thumbnails
from interp.plots.text import visible
from interp.plots.tokens import token_html, token_labels, token_loss
from interp.plots.training import loss_by_position, loss_curve, scores_by_step

__all__ = [
    "About",
    "Edge",
    "Figure",
    "Html",
    "Section",
    "about",
    "attention",
    "attention_thumbnails",
    "circuit",
    "composition_graph",
    "composition_heatmap",
    "effect_bars",
    "finish",
    "head_comparison",
    "head_difference",
    "head_heatmap",
    "heads_by_step",
    "in_theme",
    "interaction_heatmap",
    "logit_attribution",
    "logit_lens",
    "loss_by_position",
    "loss_curve",
    "matrix_heatmap",
    "numbers",
    "patching_heatmap",
    "report_page",
    "scores_by_step",
    "spectrum",
    "to_csv",
    "to_html",
    "to_json",
    "token_html",
    "token_labels",
    "token_loss",
    "visible",
    "where_to_look",
    "without_title",
]
