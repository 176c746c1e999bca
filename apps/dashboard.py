"""The shell: which run, checkpoint, prompt and head, all of them in the address of the page."""

from pathlib import Path

import streamlit as st

from apps import prompts, state
from apps.components import copy_link, go_to, load_ahead
from apps.prompts import Prompt
from apps.sources import Opened, UnreadableError, steps_of
from apps.state import Chosen

VIEWS = Path(__file__).parent / "views"
PAGES = {
    "start": ("Start", ":material/home:"),
    "heads": ("Heads", ":material/grid_on:"),
    "attention": ("Attention", ":material/visibility:"),
    "predictions": ("Predictions", ":material/psychology:"),
    "interventions": ("Interventions", ":material/content_cut:"),
    "circuit": ("Circuit", ":material/account_tree:"),
    "training": ("Training", ":material/show_chart:"),
}


STYLE = """<style>
.stMainBlockContainer { max-width: clamp(1760px, 60vw, 2300px);
  padding-top: 4.2rem; padding-bottom: 4rem; }
.stMainBlockContainer h1 { font-size: 2rem; padding-top: 0; }
[data-testid=stSidebarUserContent] { padding-top: 0.4rem; }
[data-testid=stPageLink] p { white-space: normal; overflow: visible; text-overflow: clip; }
.stButton p { white-space: normal; overflow: visible; text-overflow: clip; }
.st-key-cards [data-testid=stMetricValue] { font-size: clamp(1.5rem, 2vw, 2.25rem); }
@media (min-width: 2400px) {
  [data-testid=stColumn]:first-child:has(.st-key-plot-attention-pattern) { flex: 0 1 48rem; }
}
@media (max-width: 640px) {
  .stMainBlockContainer [data-testid=stHorizontalBlock] { row-gap: 1rem; }
  [class*=st-key-head-] { flex-wrap: wrap; }
  [class*=st-key-head-] > :first-child { flex: 1 0 100%; }
  .st-key-cards [data-testid=stMetricValue] { font-size: 1.6rem; }
  .st-key-cards [data-testid=stMetricLabel] * { white-space: normal; }
  .st-key-cards [data-testid=stHorizontalBlock] { flex-flow: row wrap; }
  .st-key-cards [data-testid=stColumn] { flex: 1 1 calc(50% - 1rem); min-width: calc(50% - 1rem); }
}
</style>"""


def pick_model() -> Opened:
    """The run and the checkpoint."""
    found = state.available()
    names = list(found)
    state.kept("run", names, names[0])
    name = st.selectbox("Run", names, key="run", bind="query-params")
    steps = steps_of(found[name])
    step = None
    if len(steps) > 1:
        state.kept("step", steps, steps[-1])
        step = st.select_slider(
            "Checkpoint (training step)", steps, steps[-1], key="step", bind="query-params"
        )
    elif steps:
        step = steps[0]
    with st.spinner("Reading the model"):
        return state.opened(name, found[name], step)


def next_sample() -> None:
    """Draw another sample."""
    st.session_state["sample"] = int(st.session_state["sample"]) + 1


def pick_prompt(opened: Opened) -> Prompt:
    """What the model reads."""
    kinds = prompts.kinds_of(opened)
    state.kept("prompt", kinds, kinds[0])
    kind = st.segmented_control(
        "Prompt", kinds, default=kinds[0], key="prompt", required=True, bind="query-params",
        width="stretch",
    )  # fmt: skip
    if kind == "sample":
        with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall"):
            number = st.number_input("Sample", 0, 10**6, 0, key="sample", bind="query-params")
            st.button("Another", on_click=next_sample, help="Draw another sample of the task")
        return state.answer(prompts.sample, opened, int(number or 0))
    if kind == "typed":
        first = state.answer(prompts.sample, opened, 0)
        numbers = prompts.has_tokenizer(opened)
        default = " ".join(map(str, first.tokens[:12] if numbers else first.labels[:12]))
        words = st.text_area("Tokens", default, key="typed", bind="query-params", height=96)
        return state.answer(prompts.typed, opened, words or "")
    words = st.text_area("Text", "Once upon a time", key="text", bind="query-params", height=96)
    return state.answer(prompts.text, opened, words or "")


def pick_head(opened: Opened) -> tuple[int, int]:
    """The layer and the head that all pages follow."""
    config = opened.model.config
    layers, heads = list(range(config.n_layers)), list(range(config.n_heads))
    state.kept("layer", layers, layers[-1])
    state.kept("head", heads, 0)
    left, right = st.columns(2)
    layer = left.selectbox("Layer", layers, layers[-1], key="layer", bind="query-params")
    head = right.selectbox("Head", heads, 0, key="head", bind="query-params")
    return int(layer or 0), int(head or 0)


def pick_token(prompt: Prompt) -> int:
    """The token that pages look at; a click on the strip pins another."""
    last = len(prompt.tokens) - 1
    if int(st.session_state.get("pin", 0) or 0) > last:
        st.session_state["pin"] = last
    found = st.number_input("Pinned token", 0, last, last, key="pin", bind="query-params")
    return int(found or 0)


def sidebar() -> Chosen | None:
    """All that is chosen; None, and a sentence on the page, where something can't be shown."""
    with st.sidebar:
        try:
            opened = pick_model()
            prompt = pick_prompt(opened)
        except UnreadableError as error:
            problem = str(error)
        else:
            layer, head = pick_head(opened)
            pinned = pick_token(prompt)
            copy_link()
            load_ahead()
            theme = "dark" if st.context.theme.type == "dark" else "light"
            steps = steps_of(opened.path)
            return Chosen(opened, prompt, layer, head, pinned, theme, steps)
    st.error("This can't be shown. Choose another run or prompt on the left.")
    st.text(problem)
    return None


def main() -> None:
    """Draw the page."""
    st.set_page_config(page_title="interp", page_icon="🔬", layout="wide")
    st.html(STYLE)
    pages = [
        st.Page(VIEWS / f"{name}.py", title=title, icon=icon, default=name == "start")
        for name, (title, icon) in PAGES.items()
    ]
    page = st.navigation(pages)
    chosen = sidebar()
    if chosen is not None:
        state.choose(chosen)
        try:
            page.run()
        except UnreadableError as error:
            st.text(str(error))
    if "go" in st.session_state:
        go_to(*st.session_state.pop("go"))


main()
