"""`ddh bench duplicates`: edited copies among other pictures; ours, perceptual hashes, a CNN.

All finders get the same files and remove greedily, as imagededup does: pictures come in the order
of the default keep rule, and each that is still there removes what it takes for its duplicates. A
removal is right if both pictures come from one original, have the same pixels, or are a pair that
was looked at and listed with `--known`. An edit counts as found if its removal is right, or if it
is kept and its original is removed for it.
"""

import csv
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option
from ddh._core.progress import track
from ddh._core.threads import cpu_count, thread_map
from ddh.bench.edits import EDITS
from ddh.bench.options import output_option, seed_option
from ddh.bench.results import Outcome, Store, Table
from ddh.bench.timing import peak, run_isolated, timed
from ddh.codes import search_radius
from ddh.duplicates import find_duplicates
from ddh.duplicates.candidates import RADIUS, PerceptualIndex, code_pairs
from ddh.duplicates.keeping import keep_order
from ddh.duplicates.results import Picture
from ddh.images import ImageFiles, ImageFolder, decode, load_batches, pixel_digest

OURS = "ddh"
NETWORK, SEARCH = "network", "search"
ALIKE = 0.995  # precision at which the peers are compared
MILLION = 1_000_000
Removal = tuple[int, int]  # the kept and the removed file, by their numbers
Seconds = dict[str, float]  # "wall" and "cpu"


@dataclass(frozen=True)
class Trial:
    """The files, the number of the original of each, and the edit that made it ("" for none)."""

    paths: list[Path]
    origin: NDArray[np.int64]
    edit: list[str]


@dataclass(frozen=True)
class Peer:
    """A hash or network: how it measures files, and the thresholds that are tried.

    `measure` also returns the seconds that a network itself has run, without reading pictures.
    """

    name: str
    measure: Callable[[list[Path]], tuple[NDArray[Any], Seconds | None]]
    thresholds: tuple[float, ...]
    default: float


# -- the trial -------------------------------------------------------------------------------------


def make_trial(folder: Path, scratch: Path, originals: int, others: int | None, seed: int) -> Trial:
    """Edited copies of some pictures of a folder, among all of its pictures."""
    rng = np.random.default_rng(seed)
    source = ImageFolder(folder).paths
    if len(source) < 2:
        raise InputError(f"{folder} holds {len(source)} pictures: too few")
    chosen = [source[i] for i in rng.permutation(len(source))]
    chosen = chosen[: None if others is None else originals + others]
    paths, origin, edits = list(chosen), list(range(len(chosen))), [""] * len(chosen)
    for number, path in enumerate(track(chosen[:originals], "Editing", unit="image")):
        image = decode(path)
        for place, edit in enumerate(EDITS):
            content, ending = edit(image, np.random.default_rng((seed, number, place)))
            copy = scratch / f"{number:05}-{edit.name.replace(' ', '-')}{ending}"
            copy.write_bytes(content)
            paths.append(copy)
            origin.append(number)
            edits.append(edit.name)
    return Trial(paths, np.array(origin), edits)


# -- the finders -----------------------------------------------------------------------------------


def ours(trial: Trial) -> list[Removal]:
    """What `find_duplicates` proposes."""
    number = {path: i for i, path in enumerate(trial.paths)}
    return [
        (number[group.keep.path], number[member.picture.path])
        for group in find_duplicates(trial.paths)
        for member in group.members
    ]


def _hashes(name: str) -> Callable[[list[Path]], tuple[NDArray[np.uint8], None]]:
    def measure(paths: list[Path]) -> tuple[NDArray[np.uint8], None]:
        import imagehash
        from PIL import Image

        def one(path: Path) -> NDArray[np.uint8]:
            with Image.open(path) as image:
                return np.packbits(getattr(imagehash, name)(image).hash)

        return np.stack(thread_map(one, paths)), None

    return measure


def _pdq(paths: list[Path]) -> tuple[NDArray[np.uint8], None]:
    import pdqhash

    def one(path: Path) -> NDArray[np.uint8]:
        return np.packbits(pdqhash.compute(np.asarray(decode(path)))[0])

    return np.stack(thread_map(one, paths)), None


def _network(paths: list[Path]) -> tuple[NDArray[np.float32], Seconds]:
    from ddh._core.arrays import l2_normalize
    from ddh.backbones import OnnxNetwork
    from ddh.train import Extractor

    extractor = Extractor(OnnxNetwork(), "cpu")
    size, own = extractor.batch_size, {"wall": 0.0, "cpu": 0.0}
    found = []
    # nothing is read ahead: only the network runs while it is timed
    for batch in load_batches(ImageFiles(paths), extractor.preprocessing, size, ahead=0):
        features, taken = timed(extractor, batch.pixels)
        found.append(features)
        own = _sum(own, taken)
    return l2_normalize(np.concatenate(found)), own


def _sum(*parts: Seconds) -> Seconds:
    return {clock: sum(part[clock] for part in parts) for clock in ("wall", "cpu")}


_NEAR = tuple(range(0, 13, 2))
PEERS = {
    peer.name: peer
    for peer in (
        Peer("pHash", _hashes("phash"), _NEAR, 10),
        Peer("dHash", _hashes("dhash"), _NEAR, 10),
        Peer("wHash", _hashes("whash"), _NEAR, 10),
        Peer("PDQ", _pdq, (*range(0, 31, 5), 31), 31),
        Peer("CNN", _network, (0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99), 0.9),
    )
}


def remove_greedily(
    order: list[int], near: Callable[[int], NDArray[np.int64]]
) -> Iterator[Removal]:
    """Removals where each picture, in this order, removes what is near and still there."""
    there = np.ones(len(order), bool)
    for kept in order:
        if there[kept]:
            for other in near(kept).tolist():
                if other != kept and there[other]:
                    there[other] = False
                    yield kept, other
            there[kept] = False  # nothing removes what is kept


def near_by(values: NDArray[Any], threshold: float) -> Callable[[int], NDArray[np.int64]]:
    """The pictures within a Hamming distance, or from a cosine on."""
    if values.dtype == np.uint8:
        return lambda i: search_radius(values[i : i + 1], values, int(threshold), 1).indices
    return lambda i: np.flatnonzero(values @ values[i] >= threshold)


# -- scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Of one finder: removals, wrong ones, and the share of each edit that was found."""

    finder: str
    removals: int
    wrong: list[Removal]
    recall: dict[str, float]
    seconds: Seconds
    parts: dict[str, Seconds] = field(default_factory=dict)  # of these, by step

    @property
    def precision(self) -> float:
        """Share of the removals that are right; 1 where there are none."""
        return 1 - len(self.wrong) / self.removals if self.removals else 1.0

    @property
    def mean(self) -> float:
        """Mean recall over the edits."""
        return float(np.mean(list(self.recall.values())))


class Judge:
    """Tells right removals from wrong ones."""

    def __init__(self, trial: Trial, known: set[frozenset[str]]) -> None:
        self._trial, self._known = trial, known
        self._pixels: dict[int, str] = {}

    def right(self, kept: int, removed: int) -> bool:
        """Whether both are one photograph."""
        a, b = int(self._trial.origin[kept]), int(self._trial.origin[removed])
        names = frozenset(self._trial.paths[i].name for i in (a, b))
        return a == b or names in self._known or self._digest(a) == self._digest(b)

    def _digest(self, i: int) -> str:
        if i not in self._pixels:
            self._pixels[i] = pixel_digest(ImageFiles([self._trial.paths[i]]))[0]
        return self._pixels[i]

    def score(
        self,
        name: str,
        removals: list[Removal],
        seconds: Seconds,
        parts: dict[str, Seconds] | None = None,
    ) -> Scores:
        """Precision, and recall by edit."""
        origin = self._trial.origin
        wrong = [pair for pair in removals if not self.right(*pair)]
        good = set(removals) - set(wrong)
        placed = {removed for _, removed in good}
        placed |= {kept for kept, removed in good if removed == origin[kept]}
        found: dict[str, list[bool]] = defaultdict(list)
        for i, edit in enumerate(self._trial.edit):
            if edit:
                found[edit].append(i in placed)
        recall = {edit: float(np.mean(hits)) for edit, hits in found.items()}
        return Scores(name, len(removals), wrong, recall, seconds, parts or {})


def measure_peer(peer: Peer, trial: Trial, order: list[int], judge: Judge) -> list[Scores]:
    """At its own threshold, and at the widest one with the wanted precision on this very data."""
    (values, network), seconds = timed(peer.measure, trial.paths)
    scores = {}
    for threshold in peer.thresholds:
        removals, search = timed(
            lambda t=threshold: list(remove_greedily(order, near_by(values, t)))
        )
        parts = ({} if network is None else {NETWORK: network}) | {SEARCH: search}
        sign = "<=" if values.dtype == np.uint8 else ">="
        name = f"{peer.name} {sign} {threshold:g}"
        scores[threshold] = judge.score(name, removals, _sum(seconds, search), parts)
    precise = [one for one in scores.values() if one.precision >= ALIKE]
    best = max(precise, key=lambda one: one.mean, default=None)
    own = scores[peer.default]
    return [own] if best is None or best is own else [own, best]


# -- a million codes -------------------------------------------------------------------------------


def million(rows: int, seed: int) -> dict[str, dict[str, float]]:
    """Candidate pairs among stored perceptual codes, and one picture added to them."""
    rng = np.random.default_rng(seed)
    bits = rng.random((rows, 64)) < 0.5
    copies = rng.integers(0, rows, rows // 20)
    bits[rng.permutation(rows)[: len(copies)]] = bits[copies] ^ (
        rng.random((len(copies), 64)) < 0.05
    )
    bits[:, 0] = False
    codes = np.packbits(bits, axis=1)
    pairs, seconds = timed(lambda: sum(len(first) for first, _, _ in code_pairs(codes)))
    index = PerceptualIndex(codes)

    def one_more(i: int) -> None:
        index.add(codes[i : i + 1])
        index.near(codes[i])

    times = [timed(one_more, i)[1]["wall"] for i in range(20)]
    return {
        "groups": {"rows": rows, "pairs": pairs, **seconds, "peak MB": peak()},
        "one more": {"milliseconds": 1000 * float(np.median(times))},
    }


# -- the command -----------------------------------------------------------------------------------


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
    help="Any folder of pictures.",
)  # fmt: skip
@click.option("--originals", default=300, help="Pictures that are edited.")
@click.option("--distractors", type=int, help="Other pictures; all of the folder by default.")
@click.option("--peers", default=",".join(PEERS), help="Separated by commas; none: ours alone.")
@click.option(
    "--known", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV of pairs of file names that are true duplicates of the folder itself.",
)  # fmt: skip
@click.option("--rows", default=0, help=f"Also time so many stored codes, such as {MILLION}.")
@output_option
@seed_option
@json_option
@quiet_option
def duplicates(
    data: Path, originals: int, distractors: int | None, peers: str, known: Path | None, rows: int,
    output: Path, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Precision, recall by edit and seconds of `ddh dedup`, of perceptual hashes and of a CNN.

    \b
    ddh bench duplicates --data photos/
    ddh bench duplicates --data photos/ --originals 50 --distractors 500 --peers pHash,PDQ
    ddh bench duplicates --data photos/ --peers none --rows 1000000
    """
    chosen = _peers(peers)
    store = Store(output)
    with tempfile.TemporaryDirectory() as scratch:
        trial = make_trial(data, Path(scratch), originals, distractors, seed)
        judge = Judge(trial, _known(known))
        removals, seconds = timed(ours, trial)
        scores = [judge.score(OURS, removals, seconds)]
        order = keep_ordering(trial.paths)
        for peer in track(chosen, "Peers", unit="peer"):
            scores += measure_peer(peer, trial, order, judge)
        sheet = store.folder("duplicates") / "wrong.png"
        _draw_wrong(trial, scores[0], sheet)
    tables = [_recall_table(scores, trial), *bound_table(scores)]
    details: dict[str, Any] = {"wrong": {
        one.finder: [[trial.paths[i].name for i in pair] for pair in one.wrong] for one in scores
    }}  # fmt: skip
    if rows:
        details["codes"] = run_isolated(million, {"rows": rows, "seed": seed})
        tables.append(_million_table(details["codes"]))
    Outcome(
        bench="duplicates",
        title="Duplicates",
        protocol=[
            f"{min(originals, len(trial.paths))} originals of {data.name} with {len(EDITS)} edits "
            f"each, among {trial.edit.count(''):,} pictures; seed {seed}",
            f"{cpu_count()} CPUs; seconds of all steps, from files to removals",
        ],
        tables=tables,
        records=[
            {"finder": one.finder, "removals": one.removals, "wrong": len(one.wrong),
             "precision": one.precision, "mean recall": one.mean, **one.seconds,
             **{f"{part} {clock}": taken for part, seconds in one.parts.items()
                for clock, taken in seconds.items()},
             **one.recall}
            for one in scores
        ],
        details=details,
    ).publish(store, as_json)  # fmt: skip


def _peers(names: str) -> list[Peer]:
    chosen = [] if names == "none" else names.split(",")
    if unknown := set(chosen) - PEERS.keys():
        raise InputError(f"peers are {', '.join(PEERS)} or none, not {', '.join(sorted(unknown))}")
    return [PEERS[name] for name in chosen]


def _known(file: Path | None) -> set[frozenset[str]]:
    if file is None:
        return set()
    with file.open(newline="") as stream:
        return {frozenset(row[:2]) for row in csv.reader(stream)}


def keep_ordering(paths: list[Path]) -> list[int]:
    """The numbers of the files in the order of the default keep rule."""
    from PIL import Image

    def measure(path: Path) -> Picture:
        state = path.stat()
        with Image.open(path) as image:
            size, name = image.size, image.format or ""
        return Picture(path, *size, state.st_size, state.st_mtime_ns, "", name)

    order = keep_order("pixels")
    pictures = thread_map(measure, paths)
    return sorted(range(len(paths)), key=lambda i: order(pictures[i]))


def _recall_table(scores: list[Scores], trial: Trial) -> Table:
    names = list(dict.fromkeys(edit for edit in trial.edit if edit))
    rows = [
        ["precision", *(f"{one.precision:.4f}" for one in scores)],
        ["wrong", *(f"{len(one.wrong):,} of {one.removals:,}" for one in scores)],
        ["mean recall", *(f"{one.mean:.3f}" for one in scores)],
        *([edit, *(f"{one.recall[edit]:.3f}" for one in scores)] for edit in names),
        ["seconds", *(f"{one.seconds['wall']:.1f}" for one in scores)],
        ["CPU seconds", *(f"{one.seconds['cpu']:.1f}" for one in scores)],
    ]
    for part in (NETWORK, SEARCH):
        for clock, title in (("wall", "seconds"), ("cpu", "CPU seconds")):
            cells = [f"{one.parts[part][clock]:.1f}" if part in one.parts else "" for one in scores]
            if any(cells):
                rows.append([f"of these, {part}: {title}", *cells])
    note = f"Peers at their own threshold and at the best with a precision of {ALIKE} or more here."
    return Table("Recall by edit", ["", *(one.finder for one in scores)], rows, note)


def bound_table(scores: list[Scores]) -> list[Table]:
    """Whether ours takes at most the time of pHash and of the network, where both were measured."""
    hashes = [one for one in scores if one.finder.startswith("pHash ")]
    networks = [one.parts[NETWORK] for one in scores if NETWORK in one.parts]
    if not hashes or not networks:
        return []
    own = next(one.seconds for one in scores if one.finder == OURS)
    bound = _sum(hashes[0].seconds, networks[0])
    times = {hashes[0].finder: hashes[0].seconds, NETWORK: networks[0], "sum": bound, OURS: own}
    rows = [[name, *(f"{taken[clock]:.1f}" for clock in bound)] for name, taken in times.items()]
    rows.append(
        ["ddh within the sum", *("yes" if own[clock] <= bound[clock] else "no" for clock in bound)]
    )
    note = "The network alone, without reading pictures and without its search."
    return [Table("Time beside pHash and a network", ["", "seconds", "CPU seconds"], rows, note)]


def _million_table(found: dict[str, dict[str, float]]) -> Table:
    groups, one = found["groups"], found["one more"]
    return Table(
        f"{int(groups['rows']):,} stored perceptual codes, {RADIUS} bits, eight turns",
        ["all pairs, seconds", "CPU seconds", "peak MB", "one more, ms"],
        [[f"{groups['wall']:.1f}", f"{groups['cpu']:.1f}", f"{groups['peak MB']:.0f}",
          f"{one['milliseconds']:.1f}"]],
    )  # fmt: skip


def _draw_wrong(trial: Trial, scores: Scores, sheet: Path) -> None:
    """The wrong removals, to be looked at."""
    from ddh.images import SheetRow, contact_sheet

    def tile(i: int) -> Any:
        return decode(trial.paths[i], at_least=160)

    rows = [
        SheetRow(tile(kept), [tile(removed)], [trial.paths[removed].name],
                 caption=trial.paths[kept].name)
        for kept, removed in scores.wrong[:40]
    ]  # fmt: skip
    if rows:
        contact_sheet(rows, sheet, tile=160)
