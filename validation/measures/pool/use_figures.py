"""The figures of *Use of the pool*: GPU-hours by class, who held them, and the replay."""

from __future__ import annotations

from validation.measures.pool.use_rows_figures import PoolUse, Replayed, pool_use
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, duration, moment, number, percent, plural
from validation.report.svg.bars import Bar, Piece, stacked_bars
from validation.report.svg.drawing import DataTable, Figure

_CRITERIA = ("op.held",)
_CAPTION = "GPU-hours by class of GPUs."
_WORDS = {
    "pool": "Pool, the GPUs that there are",
    "divided": "The same GPUs, divided",
    "silos": "Divided, nobody waits longer than in the pool",
    "smaller": "Pool, waits no longer than divided",
}
_RULE = (
    "First come, first served, in each arrangement alike; limits, priorities and reservations are left out, and "
    "servers take no part: GPUs are had over the network. Shares are whole GPUs by what each class of users held, "
    "which nobody could have known beforehand."
)


def pool_use_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """The page's figures; one empty frame with the reason where there is no record."""
    use = pool_use(documents)
    if use.not_measured:
        return (Figure("pool-hours", _CAPTION, empty=f"Not measured: {use.not_measured}.", criteria=_CRITERIA),)
    return (_hours(use), *_before_and_since(use), _users(use), *(_replayed(one) for one in use.replays))


def _before_and_since(use: PoolUse) -> tuple[Figure, ...]:
    """Utilisation before the pool was used and since, beside what is published of GPUs without a pool."""
    it = use.utilisation
    if it is None:
        return ()
    low, high = (percent(share) for share in it.published)
    rows = []
    for name, ratio, seconds, why in (
        ("Before a GPU of the pool was first leased", it.before, it.before_seconds, it.not_before),
        (f"Since then ({moment(it.pooled)})" if it.pooled else "Since then", it.since, it.since_seconds, it.not_since),
    ):
        shown = f"not measured: {why}" if ratio is None else percent(ratio)
        rows.append((name, shown, duration(seconds) if seconds else NONE, f"Prometheus, {it.series or NONE}"))
    rows.append(("Published, of data centres without a pool", f"{low} to {high}", NONE, it.source))
    words = "Utilisation of all GPUs that monitoring knows: the share of time in which a kernel ran."
    head = ("When", "Utilisation", "By readings of", "Source")
    emulated = " The GPUs are emulated: nothing of hardware follows." if use.emulated else ""
    caption = f"{words} What is published is of others' GPUs, beside which this is shown and not judged.{emulated}"
    return (Figure("pool-before-and-since", caption, None, DataTable(words, head, tuple(rows)), None, _CRITERIA),)


def _hours(use: PoolUse) -> Figure:
    bars, rows, notes = [], [], []
    for one in use.classes:
        pieces: tuple[Piece, ...]
        if one.used_h is None or one.idle_h is None:
            pieces = (Piece("held, use not known", one.held_h, "grey"), Piece("free", one.free_h, "empty"))
            notes.append(f"Used and idle of {one.gpu_class} are not measured: {one.unwatched}.")
        else:
            used = min(one.used_h, one.held_h)
            pieces = (
                Piece("used", used, "full"),
                Piece("held and idle", one.idle_h, "hatched"),
                Piece("free", one.free_h, "empty"),
            )
            if one.used_h > one.held_h:
                notes.append(f"On {one.gpu_class} more ran than was held: programs that Slurm knows nothing of.")
        if one.held_h > one.capacity_h * 1.001:
            notes.append(
                f"Of {one.gpu_class} more was held than there is now: GPUs were taken away, or Slurm takes jobs for "
                "running that are gone (sacctmgr show runawayjobs)."
            )
        bars.append(Bar(one.gpu_class, pieces))
        known = ("not measured" if h is None else number(h) for h in (one.used_h, one.idle_h))
        share = percent(one.held_h / one.capacity_h) if one.capacity_h else NONE
        rows.append(
            (
                one.gpu_class,
                str(one.gpus),
                *map(number, (one.capacity_h, one.held_h)),
                share,
                *known,
                number(one.free_h),
            )
        )
    table = DataTable(
        "GPU-hours. Used: a kernel ran; idle: held beyond that.",
        ("Class of GPUs", "GPUs", "All", "Held", "Held, share", "Used", "Idle", "Free"),
        tuple(rows),
    )
    emulated = " The GPUs are emulated: the figures show that recording works, and nothing of hardware."
    caption = (
        f"{_CAPTION} {moment(use.begin)} to {moment(use.end)}, {duration(use.seconds)}, by Slurm's accounting; GPUs as "
        f"they are now.{emulated if use.emulated else ''} {' '.join(notes)}"
    ).strip()
    svg = stacked_bars(
        "pool-hours-chart",
        "GPU-hours by class of GPUs",
        "; ".join(f"{row[0]}: {row[3]} of {row[2]} held, {row[5]} used, {row[6]} idle, {row[7]} free" for row in rows)
        + ".",
        bars,
        "GPU-hours",
    )
    return Figure("pool-hours", caption, svg, table, None, _CRITERIA)


def _users(use: PoolUse) -> Figure:
    rows = tuple(
        (u.users, str(u.requests), number(u.held_h), duration(u.mean_wait_s), duration(u.longest_wait_s))
        for u in use.users
    )
    table = DataTable(
        "Waiting times as they were, with all limits and priorities.",
        ("Class of users", "Requests", "GPU-hours held", "Waited, average", "Longest"),
        rows,
    )
    more = [
        f"{plural(count, 'request')} {words}"
        for count, words in (
            (use.running, "still held GPUs at the end"),
            (use.waiting, "still waited"),
            (use.never, "ended without having had one"),
        )
        if count
    ]
    said = f" Besides: {'; '.join(more)}." if more else ""
    return Figure("pool-users", f"Who held the pool.{said}", None, table, None, _CRITERIA)


def won(one: Replayed) -> str:
    """What pooling won, in words."""
    by = {a.name: a for a in one.arrangements}
    pool, divided, silos, smaller = (by[name] for name in ("pool", "divided", "silos", "smaller"))
    pooled, alone = duration(pool.mean_wait_s), duration(divided.mean_wait_s)
    waits = f"{pooled} on average in the pool, {alone} with the same GPUs divided"
    refused = f", where {plural(divided.refused, 'request')} would fit nowhere" if divided.refused else ""
    needs = (
        f"For nobody to wait longer, divided GPUs would have to be {silos.gpus} instead of {pool.gpus}"
        if silos.gpus > pool.gpus
        else f"Divided, {plural(silos.gpus, 'GPU')} would have done: pooling saved none"
    )
    less = f"; to wait as long as with divided ones, {plural(smaller.gpus, 'pooled GPU')} would have done"
    return f"Waiting: {waits}{refused}. {needs}{less}."


def _replayed(one: Replayed) -> Figure:
    id_, title = f"pool-replay-{one.gpu_class}", f"What pooling won, {one.gpu_class}."
    if one.not_measured:
        return Figure(id_, title, empty=f"Not measured: {one.not_measured}.", criteria=_CRITERIA)
    counted = f"{plural(one.requests, 'request')} replayed"
    left = f", the last of {one.requests + one.left_out}" if one.left_out else ""
    rows = [
        (
            _WORDS[a.name],
            str(a.gpus),
            duration(a.mean_wait_s),
            duration(a.p95_wait_s),
            str(a.refused),
            percent(a.held_ratio),
        )
        for a in one.arrangements
    ]
    for share in one.shares:
        alone = "fits nowhere" if share.divided_wait_s is None else duration(share.divided_wait_s)
        pooled = f"{duration(share.pool_wait_s)} in the pool"
        rows.append((f"{share.users}, alone", str(share.divided_gpus), f"{alone}; {pooled}", NONE, NONE, NONE))
        rows.append((f"{share.users}, no longer than in the pool", str(share.silo_gpus), NONE, NONE, NONE, NONE))
    head = ("Arrangement", "GPUs", "Waiting, average", "95 of 100 within", "Fit nowhere", "Held, share")
    table = DataTable("The recorded requests, replayed.", head, tuple(rows))
    bars = [
        Bar(
            f"{_SHORT[a.name]}, {a.gpus}",
            (
                Piece("held", a.held_ratio * a.gpus, "full"),
                Piece("not held", (1 - a.held_ratio) * a.gpus, "empty"),
            ),
        )
        for a in one.arrangements
    ]
    svg = stacked_bars(f"{id_}-chart", f"GPUs of each arrangement, {one.gpu_class}", won(one), bars, "GPUs")
    return Figure(id_, f"{title} {won(one)} {counted}{left}. {_RULE}", svg, table, None, _CRITERIA)


_SHORT = {"pool": "pool", "divided": "divided", "silos": "divided, same waits", "smaller": "pool, same waits"}


FIGURES = (Drawn("pool", 10, lambda documents, verdict: pool_use_figures(documents)),)
