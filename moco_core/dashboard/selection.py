"""Which runs and steps are looked at: chosen in widgets, kept in the URL, so that a link opens the same view.

The URL leads. A widget writes its choice there; on each run of the script the widget takes its value from
there. Changing pages clears the URL, so the session remembers the last choice and writes it again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import streamlit as st

from moco_core.analysis.checks import evenly
from moco_core.dashboard.text import plain
from moco_core.runs import Checkpoint, Run, RunStore
from moco_core.runs.writer import slug

RUN = "run"
RUNS = "runs"
STEP = "step"
LEFT = "_left"  # the run in the address when a page chose another one or deleted it, and that moment
CLEARED = "_cleared"  # whether another page was opened, which empties the address
MOST_AT_ONCE = 24  # runs that a page draws before anyone has chosen them
LONGEST_TOAST = 200  # characters of an address that are repeated
SETTLING_SECONDS = 5.0  # until every browser has taken over a new address


def store() -> RunStore:
    """The runs of this app: below `MOCO_RUNS`, or `checkpoints/`."""
    return RunStore()


def run_picker() -> None:
    """The sidebar's choice of the run that the pages show, bound to `run` in the URL."""
    if unlisted := store().problem:
        st.error(f"The folder of runs can't be read: {plain(unlisted)}.")
        return
    st.session_state[CLEARED] = RUN not in st.query_params
    pick_run("Run", param=RUN)


def pick_run(label: str, param: str, *, default: str | None = None) -> str | None:
    """A select box over all runs, bound to `param` in the URL; the id chosen, or None when there are no runs.

    Without a choice it shows the run `default`, or else the newest one that has something to show.
    """
    runs = list(store())
    if not runs:
        st.caption("No runs yet. Start one under **Train**, or bring vectors under **Import**.")
        return None
    names = labels(runs)
    asked = _asked(param)
    if asked and asked not in names:
        st.toast(f"There is no run {plain(asked[:LONGEST_TOAST])} here.")
    chosen = _wanted(param, names) or (default if default in names else None) or _newest_shown(runs)
    key = f"_{param}"
    st.session_state[key] = chosen
    st.selectbox(label, names, format_func=names.__getitem__, key=key, on_change=_take, args=(param, key))
    _publish(param, chosen)
    return chosen


def current_run(param: str = RUN) -> Run | None:
    """The run chosen under `param`; None, with a sentence on the page, when there is none to show."""
    chosen = st.query_params.get(param) or st.session_state.get(_memory(param))
    runs = store()
    if not chosen or chosen not in runs:
        st.info(
            "There are no runs yet. Start one under **Train** in the sidebar, or bring vectors under **Import**."
        )
        return None
    run = runs[chosen]
    if run.problem is not None:
        st.error(f"{plain(run.id)} can't be shown: {plain(run.problem)}.")
        return None
    return run


def run_multipicker(
    label: str = "Runs",
    *,
    runs: Sequence[Run] | None = None,
    default: Collection[str] = (),
) -> list[Run]:
    """A choice of several runs (of `runs`, or all readable ones), bound to repeated `runs` in the URL.

    Without a choice it shows those with the ids `default`, or else the newest run and its sweep.
    """
    offered = [run for run in (store() if runs is None else runs) if run.problem is None]
    if not offered:
        st.info("There are no runs yet that were trained here. Start one under **Train** in the sidebar.")
        return []
    names = labels(offered)
    asked = st.query_params.get_all(RUNS)
    chosen = [run_id for run_id in asked if run_id in names]
    if not chosen and any(asked):
        st.toast(f"None of these runs can be shown here: {plain(', '.join(asked)[:LONGEST_TOAST])}.")
    if not chosen:
        remembered = st.session_state.get(_memory(RUNS))
        chosen = [run_id for run_id in remembered or () if run_id in names]
        if not chosen and remembered != []:  # which someone has emptied
            chosen = [
                run_id for run_id in default or (run.id for run in newest_sweep(offered)) if run_id in names
            ]
    key = f"_{RUNS}"
    st.session_state[key] = chosen
    st.multiselect(
        label,
        names,
        format_func=names.__getitem__,
        key=key,
        on_change=_take,
        args=(RUNS, key),
        help=f"At first those of a sweep, of more than {MOST_AT_ONCE} not all. Any can be added."
        if default
        else None,
    )
    _publish(RUNS, chosen)
    return [run for run in offered if run.id in chosen]


def step_slider(
    run: Run, *, label: str = "Step", param: str = STEP, first: bool = False
) -> Checkpoint | None:
    """A slider over the run's snapshots, bound to `param` in the URL; None, with a sentence, if it has none.

    The newest is shown, and followed while the run trains, or the `first`, until another is chosen. The choice stays
    when another run is picked that has the same step.
    """
    for folder, reason in run.damaged_steps.items():
        st.warning(f"{plain(folder)} is left out: {plain(reason)}.")
    steps = {str(checkpoint.step): checkpoint for checkpoint in run.steps}
    if not steps:
        waiting = "The first one appears once training has begun." if run.status.active else ""
        st.info(f"{plain(run.name)} has no snapshot to show yet. {waiting}")
        return None
    newest = next(reversed(steps))
    chosen = _wanted(param, steps) or (next(iter(steps)) if first else newest)
    if len(steps) == 1 and not run.config.imported:
        st.caption(f"{label} {newest}, the only one so far.")
    elif len(steps) > 1:
        key = f"_{param}"
        st.session_state[key] = chosen
        st.select_slider(label, list(steps), key=key, on_change=_take, args=(param, key))
    _publish(param, None if chosen == newest else chosen)
    return steps[chosen]


def sweep_of(run: Run) -> list[str]:
    """Ids of a run and of the runs of its sweep, of a long one `MOST_AT_ONCE`, evenly chosen."""
    others = [other.id for other in store() if run.sweep and other.sweep == run.sweep and other.id != run.id]
    shown = {run.id, *(others[i] for i in evenly(len(others), MOST_AT_ONCE - 1))}
    return [other.id for other in store() if other.id in shown]


def trained_runs() -> list[Run]:
    """The readable runs that were trained: all but those of imported vectors."""
    return [run for run in store() if run.problem is None and not run.config.imported]


def shown_runs() -> set[str]:
    """Ids of the runs chosen under `run` and `runs`: those that a page may be showing."""
    one = st.session_state.get(_memory(RUN))
    return {*chosen_runs(), *([one] if one else [])}


def choose_run(run_id: str) -> None:
    """Make this the run that pages show, as if picked in the sidebar."""
    st.session_state[LEFT] = st.query_params.get(RUN), time.monotonic()
    _publish(RUN, run_id)


def chosen_runs() -> list[str]:
    """Ids under `runs` in the URL, or those last chosen in this session."""
    return st.query_params.get_all(RUNS) or st.session_state.get(_memory(RUNS)) or []


def forget_runs(ids: Collection[str]) -> None:
    """Look away from runs that were deleted here: whoever deleted them need not be told that they are gone."""
    if st.query_params.get(RUN) in ids:
        st.session_state[LEFT] = st.query_params.get(RUN), time.monotonic()
        _publish(RUN, None)
    choose_runs([run_id for run_id in chosen_runs() if run_id not in ids])


def choose_runs(ids: Sequence[str]) -> None:
    """Make these the runs that pages for several runs show, as if picked there; none returns to the default."""
    _publish(RUNS, list(ids) or None)


def newest_sweep(runs: Sequence[Run]) -> list[Run]:
    """The runs of the newest sweep that has something to show; the newest run alone where none has two runs."""
    readable = [run for run in runs if run.problem is None]
    tags = Counter(run.sweep for run in readable if run.sweep)
    swept = [run for run in readable if tags[run.sweep] > 1]
    if not readable:
        return []
    newest = next((run for run in swept if run.steps), None)
    if newest is None:
        return [run for run in readable if run.id == _newest_shown(readable)]
    return [run for run in swept if run.sweep == newest.sweep]


def newest_runs(runs: Sequence[Run]) -> list[Run]:
    """The newest sweep, the newest run that has something to show, and all that train now."""
    readable = [run for run in runs if run.problem is None]
    if not readable:
        return []
    ids = {run.id for run in newest_sweep(readable)} | {_newest_shown(readable)}
    return [run for run in readable if run.id in ids or run.status.active]


def labels(runs: Sequence[Run]) -> dict[str, str]:
    """Run id → what to call it: the name; where names repeat, behind what sets the ids apart."""
    names = Counter(run.name for run in runs)
    return {
        run.id: ("⚠ " if run.problem else "")
        + (run.name if names[run.name] == 1 else f"{_mark(run)} · {run.name}")
        for run in runs
    }


def _wanted(param: str, options: Collection[str]) -> str | None:
    """The value that the URL asks for, else the session's last, if it is among the options.

    An address with a run but without this is one to which someone went back: then nothing had been chosen yet.
    """
    recalled = param == RUN or st.session_state.get(CLEARED, True)
    for value in (_asked(param), st.session_state.get(_memory(param)) if recalled else None):
        if value in options:
            return value
    return None


def _asked(param: str) -> str | None:
    """The value that the URL asks for."""
    asked = st.query_params.get(param)
    left, moment = st.session_state.get(LEFT, (None, 0.0))
    if param == RUN and asked == left and time.monotonic() - moment < SETTLING_SECONDS:
        return None  # a browser that is busy still sends the address from before `choose_run`
    return asked


def _publish(param: str, value: str | list[str] | None) -> None:
    """Put a value in the URL and remember it; None takes it out of both."""
    if value is None:
        st.session_state.pop(_memory(param), None)
        st.query_params.pop(param, None)
        return
    st.session_state[_memory(param)] = value
    asked: Any = st.query_params.get_all(param) if isinstance(value, list) else st.query_params.get(param)
    if asked != value:
        st.query_params[param] = value


def _take(param: str, key: str) -> None:
    """What a widget does when someone changes it."""
    _publish(param, st.session_state[key])


def _memory(param: str) -> str:
    return f"_last:{param}"


def _mark(run: Run) -> str:
    """The number that the id carries behind the name, 1 for the first; the whole id of a run renamed since."""
    made = slug(run.name)
    return "1" if run.id == made else run.id.removeprefix(f"{made}-")


def _newest_shown(runs: Sequence[Run]) -> str:
    readable = [run for run in runs if run.problem is None]
    return next((run for run in readable if run.steps), (readable or runs)[0]).id
