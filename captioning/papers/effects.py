"""Claims of papers compared with measured effects of one row over another.

A measured effect is the mean difference of two rows over their common seeds, with the p-value of a
paired t-test. The judgement depends only on sign and p-value (`judgement`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from captioning.papers.cells import Cells, Results, table_digits
from captioning.papers.paper import Effect, Item, Paper, Row, Way
from captioning.papers.steps import tasks_of
from captioning.results.table_formats import markdown_lines, note_marks, numbered_lines

SURE = 0.05  # p of an effect that is more than the seeds' spread
JUDGEMENTS = ("agrees", "too small to tell", "contradicted", "not measured")
SEEDS = (0, 1, 2)  # of the runs that would decide

HEAD = f"""# The papers' claims, and the effects measured here
Compare each claim of the papers with the records, and see which runs would decide the claim.

```
captioning paper list --effects    # this page; one paper: captioning paper toca --effects
```

We measured no row at the size of its paper. The scales `flickr8k` and `miniworld` are small; the
page of each paper lists the differences. An effect at small size may be absent at full size, and
an effect at full size may be absent here.

- **published**: the score of the changed row minus the score of the row it is compared with; in
  brackets, the difference in percent of the latter. None of the five papers gives a spread over
  seeds, so a published difference may itself be chance.
- **here**: the mean of this difference over the seeds that both rows have, ± its sample standard
  deviation.
- **p**: the p-value of a two-sided paired t-test over these seeds. With three seeds, p < {SURE:g}
  requires nearly equal differences.
- **could show**: the smallest effect that would have p < {SURE:g} with this spread and this number
  of seeds. One seed cannot show any effect.
- **agrees**: p < {SURE:g}, and the effect has the paper's sign. **contradicted**: p < {SURE:g}, and
  the effect has the opposite sign, or the paper reports no difference. **too small to tell**: all
  other measured effects. The judgement ignores the size of an effect, as models and data differ.
- **would decide**: the runs of both rows at full size with three seeds; the estimated hours of
  these runs and of the runs they depend on; and the GPU memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Measured effect at one scale.

    Attributes:
        values: difference of each seed that both rows have, in the paper's unit.
        base: mean of the baseline row over these seeds.
        digits: number of decimals, as on the paper's page.
    """

    values: tuple[float, ...]
    base: float
    digits: int = 2

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of a paired t-test; None for one seed."""
        if self.deviation is None:
            return None
        error = self.deviation / math.sqrt(len(self.values))
        if error == 0:
            return float(self.mean == 0)
        return t_p_value(self.mean / error, len(self.values) - 1)

    @property
    def smallest(self) -> float | None:
        """Smallest effect with p < `SURE` at this spread; None for one seed."""
        if self.deviation is None:
            return None
        low, high = 0.0, 1e3  # of t, which is 12.7 for two seeds
        while high - low > 1e-6:
            middle = (low + high) / 2
            is_sure = t_p_value(middle, len(self.values) - 1) < SURE
            low, high = (low, middle) if is_sure else (middle, high)
        return high * self.deviation / math.sqrt(len(self.values))


def t_p_value(t: float, degrees: int) -> float:
    """Two-sided p-value of Student's t.

    Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4.

    Args:
        degrees: degrees of freedom, at least 1.
    """
    angle, is_odd = math.atan2(abs(t), math.sqrt(degrees)), degrees % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for power in range(is_odd, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    inside = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + inside) if is_odd else inside)


def judgement(sign: int, found: Found | None) -> str:
    """Judge a measured effect against the published one; returns one of `JUDGEMENTS`.

    Args:
        sign: sign of the published effect: 1, -1, or 0 if the paper sees none, with which no effect
            can agree.
    """
    if found is None:
        return "not measured"
    p_value = found.p_value
    if p_value is None or p_value >= SURE:
        return "too small to tell"
    return "agrees" if found.mean * sign > 0 else "contradicted"


def effects_page(papers: Sequence[Paper], results: Results) -> list[str]:
    """Page of all papers' effects: counts of judgements, then a table per paper."""
    counts, num_tested, tables = [], 0, list[str]()
    for paper in papers:
        found = [
            (effect, of) for effect in paper.effects for of in _by_scale(paper, effect, results)
        ]
        judged = [judgement(published_sign(paper, effect), of) for effect, (_, of) in found]
        num_tested += sum(of is not None and of.p_value is not None for _, (_, of) in found)
        counts.append([paper.id, *(str(judged.count(name)) for name in JUDGEMENTS)])
        tables += [f"## {paper.title}", f"[Tables and runs]({paper.id}.md)", ""]
        tables += [*effect_lines(paper, results), ""]
    chance = (
        f"{num_tested} of these judgements have a p-value. If no effect existed, about "
        f"{SURE * num_tested:.0f} p-values would be below {SURE:g} by chance."
    )
    return [HEAD, "", *markdown_lines(["paper", *JUDGEMENTS], counts), "", chance, "", *tables]


def _by_scale(paper: Paper, effect: Effect, results: Results) -> list[tuple[str, Found | None]]:
    """Scales at which an effect is measured; one empty name if there are none."""
    scales = [scale for scale in paper.scales if scale != "full"]
    found = [(scale, measured(paper, effect, scale, results)) for scale in scales]
    return [(scale, of) for scale, of in found if of is not None] or [("—", None)]


def effect_lines(paper: Paper, results: Results) -> list[str]:
    """Lines on a paper's effects by scale, with numbered causes."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for effect in paper.effects:
        head, last = (
            [effect.claim, _published(paper, effect)],
            _would_decide(paper, effect, results),
        )
        for scale, found in _by_scale(paper, effect, results):
            cause = effect.cause.get(scale)
            marks = note_marks([cause] if cause else [], notes)
            judged = judgement(published_sign(paper, effect), found)
            rows.append([*head, scale, *_numbers(found), f"{judged} {marks}".strip(), last])
            head, last = ["", ""], ""
    columns = [
        "claim",
        "published",
        "scale",
        "here",
        "seeds",
        "p",
        "could show",
        "judgement",
        "would decide",
    ]
    return [*markdown_lines(columns, rows), *([""] if notes else []), *numbered_lines(notes)]


def measured(paper: Paper, effect: Effect, scale: str, results: Results) -> Found | None:
    """Effect measured at a scale; None if the rows have no common seed."""
    own = (effect.item, effect.column, *effect.rows)
    item_id, column, *names = effect.here.get(scale, own)
    item, cells = paper.items[item_id], Cells(paper, scale, results)
    place = _column(item, column)
    changed, base = (cells.cell(item, _row(item, name), place) for name in names)
    others = dict(zip(base.seeds, base.values, strict=True))
    both = zip(changed.seeds, changed.values, strict=True)
    pairs = [(value, others[seed]) for seed, value in both if seed in others]
    if not pairs:
        return None
    values = tuple(value - other for value, other in pairs)
    digits = table_digits(item.columns[place])
    return Found(values=values, base=statistics.fmean(other for _, other in pairs), digits=digits)


def published_sign(paper: Paper, effect: Effect) -> int:
    """Sign of the published effect: 1, -1, or 0 if the paper sees no difference.

    Raises:
        ValueError: the paper gives neither numbers nor a direction.
    """
    if effect.sign is not None:
        return effect.sign
    changed, base = _published_values(paper, effect)
    if changed is None or base is None:
        raise ValueError(
            f"{paper.file.name}: effects.{effect.id}: the paper has no numbers for it; "
            "give direction"
        )
    return (changed > base) - (changed < base)


def _row(item: Item, name: str) -> Row:
    return next(row for row in item.rows if row.name == name)


def _column(item: Item, name: str) -> int:
    return next(place for place, column in enumerate(item.columns) if column.name == name)


def _published_values(paper: Paper, effect: Effect) -> list[float | None]:
    item = paper.items[effect.item]
    place = _column(item, effect.column)
    return [_row(item, name).published[place] for name in effect.rows]


def _published(paper: Paper, effect: Effect) -> str:
    changed, base = _published_values(paper, effect)
    if changed is None or base is None:
        words = {1: "rises", -1: "falls", 0: "does not change"}
        return f"{effect.column} {words[published_sign(paper, effect)]}; no numbers published"
    return f"{effect.column} {changed - base:+.3g}{_percent(changed - base, base)}"


def _numbers(found: Found | None) -> list[str]:
    if found is None:
        return ["—", "—", "—", "—"]
    spread = "" if found.deviation is None else f" ± {found.deviation:.{found.digits}f}"
    size = f"{found.mean:+.{found.digits}f}"
    p_value = "—" if found.p_value is None else f"{found.p_value:.3f}"
    shows = "—" if found.smallest is None else f"{found.smallest:.{found.digits}f}"
    size += f"{spread}{_percent(found.mean, found.base)}"
    return [size, str(len(found.values)), p_value, shows]


def _percent(value: float, base: float) -> str:
    return f" ({100 * value / base:+.1f}%)" if base else ""


def _would_decide(paper: Paper, effect: Effect, results: Results) -> str:
    """Hours and memory of full-size runs that would decide a claim, including runs they need."""
    item = paper.items[effect.item]
    runs = [str(_row(item, name).run) for name in effect.rows]
    ways = [paper.runs[run].ways.get("full", Way(impossible="")) for run in runs]
    if any(name.startswith("here") for name in effect.rows):
        return "none: the row replaces rows of the paper"
    if any(way.impossible is not None for way in ways):
        return "none: data or code were never released"
    tasks = tasks_of(paper, runs, "full", SEEDS, results)
    hours = sum(task.way.hours or 0 for task in tasks)
    memory = {task.way.memory for task in tasks if task.way.memory}
    most = max(memory, key=lambda text: float(text.split()[0]), default="")
    return " ".join(filter(None, (*(f"`{run}`" for run in runs), f"{hours:,.0f} h", most)))
