"""Do moving statistics of BatchNormalization keep pace? Jobs against plain Keras.

    python -m tests.soak.moving_statistics                   all cases, three seeds
    python -m tests.soak.moving_statistics --cases async-4   one of them
    python -m tests.soak.moving_statistics --table           what was measured so far

Each case trains the same CNN (norm_model.py) on the same 8,000 images for the same
number of records:

    keras, keras x2, keras x4       `model.fit` with batch B, 2B, 4B
    keras behind 0, 3, 7            one process that puts gradients and statistics in
                                    so many steps after they were computed; with the
                                    same batches in the same order
    gradients, statistics behind 7  the same for one of both alone
    statistics behind 7, no lead    the latter as if shares were put in as they come
    async-N, sync-N                 `elasticdl train` with N workers, batches of B

Steps are counted in batches of B: an async job of n batches makes n versions and n
moves of the statistics; a sync job of N workers n / N versions, of N gradients and N
moves each. So async-N is to be compared with keras, sync-N with `keras xN`, which makes
as many updates of the weights from as many records.

Weights and moving statistics are looked at six times in the second half of each
training (of a job: in its checkpoints). For each, true_statistics.py says how far
moving ones are from the true ones, and the loss on 2,000 other images is computed with
both: the difference is what the statistics cost, whatever the weights are worth. The
table has means over seeds and their standard deviations; `/ Keras` is the ratio of the
errors to those of what the case is compared with, seed by seed. The exit code is 1 when
a job's are above Keras's by more than 5 %, as far as the seeds can tell. A line for
each training goes to outputs/moving_statistics.jsonl; the newest of a case and seed
counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from elasticdl.checkpoint.reshard import load_all
from elasticdl.data.formats.example import encode_example
from elasticdl.data.making.shards import write_shards
from elasticdl.job.spec.job import DataFormat
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import edit_values
from elasticdl.testing.job import JobUnderTest

from tests.soak.true_statistics import Statistics

MODEL = Path(__file__).resolve().parent / "norm_model.py"
RESULTS = Path("outputs/moving_statistics.jsonl")
BATCH = 32
TRAINING, VALIDATION = 8000, 2000
LIMIT_SECONDS = 900.0  # a bound for hung jobs, no claim


@dataclass(frozen=True)
class Case:
    """One way to train."""

    name: str
    mode: str = "keras"  # async, sync
    workers: int = 1
    fold: int = 1  # batches of B in a version
    # Steps that gradients and statistics are late; in a loop of our own, not in `fit`.
    behind: tuple[int, int] | None = None
    lead: bool = True  # late shares, as tensor/shared_state.py does


CASES = [
    Case("keras"),
    *(Case(f"async-{n}", "async", n) for n in (1, 2, 4)),
    *(Case(f"keras behind {n}", behind=(n, n)) for n in (0, 3, 7)),
    Case("gradients behind 7", behind=(7, 0)),
    Case("statistics behind 7", behind=(0, 7)),
    Case("statistics behind 7, no lead", behind=(0, 7), lead=False),
    *(Case(f"keras x{n}", fold=n) for n in (2, 4)),
    *(Case(f"sync-{n}", "sync", n, fold=n) for n in (1, 2, 4)),
]
Images = tuple[np.ndarray, np.ndarray]
Weights = list[np.ndarray]  # in the order of model.weights


@dataclass
class Found:
    """What one training came to; means over the looks, but for the last two."""

    case: str
    seed: int
    steps: int  # batches of B
    versions: int
    staleness: float
    mean: list[float]  # by layer
    variance: list[float]
    ratio: list[float]
    loss: float  # with moving statistics
    loss_true: float
    last_loss: float
    last_loss_true: float


def images(seed: int = 0) -> tuple[Images, Images]:
    """Return training and validation images: digits, shifted and with noise.

    Both parts are made of different digits.
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x, y = x[order].reshape(-1, 8, 8).astype(np.float32) / 16, y[order]
    cut = len(x) * 4 // 5
    return (
        _varied(x[:cut], y[:cut], TRAINING, rng),
        _varied(x[cut:], y[cut:], VALIDATION, rng),
    )


def _varied(
    x: np.ndarray, y: np.ndarray, number: int, rng: np.random.Generator
) -> Images:
    chosen = rng.integers(0, len(x), number)
    shifts = rng.integers(0, 3, (number, 2))
    made = np.zeros((number, 14, 14), np.float32)
    grid = np.arange(12) * 8 // 12
    for image, row, (down, right) in zip(made, chosen, shifts, strict=True):
        image[down : down + 12, right : right + 12] = x[row][np.ix_(grid, grid)]
    made += rng.normal(0, 0.15, made.shape).astype(np.float32)
    return made, y[chosen].astype(np.int64)


def write(folder: Path, data: tuple[Images, Images]) -> None:
    """Write both parts as records."""
    for name, (x, y) in zip(("train", "test"), data, strict=True):
        write_shards(
            (
                encode_example({"image": row.ravel(), "label": label})
                for row, label in zip(x, y.tolist(), strict=True)
            ),
            folder / name,
            format=DataFormat.RECORDIO,
            records_per_file=1600,  # whole tasks
        )


def _module():
    spec = importlib.util.spec_from_file_location("norm_model", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """Trains and measures; one model of Keras serves for all measurements."""

    def __init__(self, work: Path, epochs: int, num_ps: int) -> None:
        self._work = work
        self._steps = epochs * TRAINING // BATCH
        self._epochs = epochs
        self._num_ps = num_ps
        self._train, self._test = images()
        write(work / "data", (self._train, self._test))
        self._net = _module()
        self._model = self._new_model(0)
        self._model.compile(loss=self._net.loss)
        self._statistics = Statistics(self._model, self._train[0])

    def run(self, case: Case, seed: int) -> Found:
        """Train once; look at what came of it."""
        versions = self._steps // case.fold
        at = [versions * n // 10 for n in range(5, 11)]
        staleness = float(max(case.behind or (0,)))
        if case.mode != "keras":
            looks, versions, staleness = self._job(case, seed, versions)
        elif case.behind is not None:
            looks = list(self._behind(case, seed, at))
        else:
            looks = self._fit(case, seed, at)
        seen = [self._look(weights) for weights in looks]
        return Found(
            case.name,
            seed,
            self._steps,
            versions,
            staleness,
            mean=[fmean(v) for v in zip(*(s[0] for s in seen), strict=True)],
            variance=[fmean(v) for v in zip(*(s[1] for s in seen), strict=True)],
            ratio=[fmean(v) for v in zip(*(s[2] for s in seen), strict=True)],
            loss=fmean(s[3] for s in seen),
            loss_true=fmean(s[4] for s in seen),
            last_loss=seen[-1][3],
            last_loss_true=seen[-1][4],
        )

    def _new_model(self, seed: int) -> keras.Model:
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        return self._net.custom_model()

    def _look(self, weights: Weights):
        self._model.set_weights(weights)
        loss = self._loss()
        distances = self._statistics.put_true()
        return (
            [d.mean for d in distances],
            [d.variance for d in distances],
            [d.ratio for d in distances],
            loss,
            self._loss(),
        )

    def _loss(self) -> float:
        return float(self._model.evaluate(*self._test, batch_size=1000, verbose=0))

    # -- ways to train -------------------------------------------------------------

    def _fit(self, case: Case, seed: int, at: list[int]) -> list[Weights]:
        model = self._new_model(seed)
        model.compile(optimizer=self._net.optimizer(), loss=self._net.loss)
        looks: list[Weights] = []
        batches = [0]

        def after_batch(batch, logs):
            batches[0] += 1
            if batches[0] in at:
                looks.append(model.get_weights())

        model.fit(
            *self._train,
            batch_size=BATCH * case.fold,
            epochs=self._epochs,
            verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=after_batch)],
        )
        return looks

    def _behind(self, case: Case, seed: int, at: list[int]) -> Iterator[Weights]:
        """Train in one process; what a step makes is put in so many steps later."""
        late_gradients, late_shares = case.behind or (0, 0)
        model = self._new_model(seed)
        optimizer = self._net.optimizer()
        trained = [v.value for v in model.trainable_variables]
        moved = [
            (variable.value, layer.momentum)
            for layer in model.layers
            if isinstance(layer, keras.layers.BatchNormalization)
            for variable in (layer.moving_mean, layer.moving_variance)
        ]

        @tf.function
        def step(x, y):
            before = [tf.identity(v) for v, _ in moved]
            with tf.GradientTape() as tape:
                loss = self._net.loss(y, model(x, training=True))
            gradients = tape.gradient(loss, trained)
            shares = []
            for (variable, keep), old in zip(moved, before, strict=True):
                shares.append(variable - keep * old)
                variable.assign(old)
            return gradients, (shares, before)

        @tf.function
        def put_in(gradients):
            optimizer.apply(gradients)

        @tf.function
        def move(shares, before):
            for (variable, keep), share, old in zip(moved, shares, before, strict=True):
                lead = (1 - keep) * (variable - old) if case.lead else 0.0
                variable.assign(keep * variable + share + lead)

        optimizer.build(model.trainable_variables)
        gradients: deque = deque()
        shares: deque = deque()
        for number, rows in enumerate(self._order(seed), start=1):
            of_step = step(self._train[0][rows], self._train[1][rows])
            gradients.append(of_step[0])
            shares.append(of_step[1])
            if len(gradients) > late_gradients:
                put_in(gradients.popleft())
            if len(shares) > late_shares:
                move(*shares.popleft())
            if number in at:
                yield model.get_weights()

    def _order(self, seed: int) -> Iterator[np.ndarray]:
        """Yield the rows of each batch."""
        rng = np.random.default_rng(seed)
        for _ in range(self._epochs):
            order = rng.permutation(TRAINING)
            yield from (order[i : i + BATCH] for i in range(0, TRAINING, BATCH))

    def _job(self, case: Case, seed: int, versions: int):
        values = ValuesFile.model_validate(
            {
                "kind": "job",
                "job": {
                    "name": f"{case.name}-{seed}",
                    "paused": True,  # until all are there
                    "model": {
                        "definition": "net.custom_model",
                        "files": {"net.py": MODEL.read_text()},
                    },
                    "data": {"training": "data/train", "validation": "data/test"},
                    "training": {
                        "epochs": self._epochs,
                        "batchSize": BATCH,
                        "batchesPerTask": 10,
                        "seed": seed,
                    },
                    "evaluation": {"atEpochEnd": False},
                    "checkpoint": {
                        "everySteps": versions // 10,
                        "everySeconds": 0,
                        "keep": 0,
                    },
                    "ps": {"replicas": self._num_ps, "mode": case.mode},
                    "worker": {"replicas": case.workers, "threads": 1},
                },
            }
        )
        job = JobUnderTest(
            values, self._work / "jobs", self._work, limit_seconds=LIMIT_SECONDS
        )
        with job:
            job.wait_until(
                lambda s: sum(r.phase == "idle" for r in s.replicas) == case.workers,
                "idle workers",
            )
            edit_values(job.job_dir.spec_file, {"job.paused": False})
            report = job.finish()
        found = {}
        for folder in job.job_dir.checkpoints_dir.glob("version-*"):
            whole = load_all(folder)
            if whole.version >= 0.45 * report.version:
                arrays = {**whole.values, **whole.states}
                found[whole.version] = [arrays[v.path] for v in self._model.weights]
        samples = job.handle.history().samples
        newest = max((s.ps["0"] for s in samples if s.ps), key=lambda p: p.pushes)
        looks = [found[version] for version in sorted(found)]
        last = float(report.metrics["loss"])
        self._model.set_weights(looks[-1])
        if abs(last - self._loss()) > 1e-3 * last:
            raise SystemExit(
                f"{case.name}: the job reports the loss {last}, its last checkpoint "
                f"gives {self._loss()}"
            )
        return looks, report.version, newest.staleness_sum / max(1, newest.pushes)


def table(found: list[Found]) -> str:
    """Return means over seeds, and their standard deviations, as Markdown."""
    by_case = _by_case(found)
    lines = [
        "| training | seeds | versions | behind | error of means, sd | error of "
        "variances, ln | / Keras | loss, moving | loss, true | cost |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        rows = by_case[case.name]
        if not rows:
            continue
        every = list(rows.values())
        layers = range(len(every[0].mean))
        cells = [
            case.name,
            str(len(rows)),
            str(round(fmean(r.versions for r in every))),
            f"{fmean(r.staleness for r in every):.1f}",
            ", ".join(_spread([r.mean[n] for r in every]) for n in layers),
            ", ".join(_spread([r.variance[n] for r in every]) for n in layers),
            _spread(_ratios(case, by_case), 2),
            _spread([r.loss for r in every]),
            _spread([r.loss_true for r in every]),
            _spread([r.loss - r.loss_true for r in every]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def farther(found: list[Found]) -> list[str]:
    """Return the jobs whose errors are above plain Keras's by more than 5 %.

    As far as seeds can tell: by two standard errors.
    """
    names = []
    for case in CASES:
        ratios = _ratios(case, _by_case(found))
        if case.mode != "keras" and len(ratios) > 1:
            error = stdev(ratios) / len(ratios) ** 0.5
            if fmean(ratios) - 2 * error > 1.05:
                names.append(case.name)
    return names


def _by_case(found: list[Found]) -> dict[str, dict[int, Found]]:
    """Return what came of each case and seed last."""
    by_case: dict[str, dict[int, Found]] = {case.name: {} for case in CASES}
    for one in found:
        by_case[one.case][one.seed] = one
    return by_case


def _ratios(case: Case, by_case: dict[str, dict[int, Found]]) -> list[float]:
    ours, theirs = by_case[case.name], by_case[_peer(case)]
    return [_against(ours[seed], theirs[seed]) for seed in ours if seed in theirs]


def _peer(case: Case) -> str:
    """Return the name of what a case is compared with."""
    if case.behind is not None:
        return "keras behind 0"
    return "keras" if case.fold == 1 else f"keras x{case.fold}"


def _against(one: Found, keras_one: Found) -> float:
    """Return the errors of one, by those of plain Keras from the same initial values.

    The mean over both kinds of error and all layers.
    """
    ours = [*one.mean, *one.variance]
    theirs = [*keras_one.mean, *keras_one.variance]
    return fmean(a / b for a, b in zip(ours, theirs, strict=True))


def _spread(values: list[float], digits: int = 3) -> str:
    if not values:
        return ""
    mean = f"{fmean(values):.{digits}f}"
    return mean + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--epochs", type=int, default=5, help="of 250 batches")
    parser.add_argument("--ps", type=int, default=1, help="parameter servers of a job")
    parser.add_argument(
        "--table", action="store_true", help="train nothing, show what is recorded"
    )
    args = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    if not args.table:
        with tempfile.TemporaryDirectory(prefix="elasticdl-statistics-") as work:
            bench = Bench(Path(work), args.epochs, args.ps)
            for seed in range(args.first, args.first + args.seeds):
                for case in CASES:
                    if case.name in args.cases:
                        one = bench.run(case, seed)
                        with RESULTS.open("a") as file:
                            file.write(json.dumps(asdict(one)) + "\n")
                        print(one, flush=True)
    lines = RESULTS.read_text().splitlines()
    found = [Found(**json.loads(line)) for line in lines]
    found = [one for one in found if one.steps == args.epochs * TRAINING // BATCH]
    print(table(found))
    for name in (beyond := farther(found)):
        print(f"{name}: farther from the true statistics than plain Keras")
    return bool(beyond)


if __name__ == "__main__":
    sys.exit(main())
