"""Batches of tensors out of a task's records, through the user's feed.

Owns the choice of plan (feed_plans) and what happens to a record that the feed cannot
parse. Called by the worker, task after task, for the life of the process. Knows
nothing of tasks, files or leases: records are bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from elasticdl.data.formats.row_table import RowTable
from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feed import chain as feed_chain
from elasticdl.model.feed import plans as feed_plans
from elasticdl.model.feed import refusals as feed_refusals
from elasticdl.model.feed.call import fit_features, split_element
from elasticdl.model.feed.default import column_parser, csv_columns, default_parser
from elasticdl.model.feed.plans import FeedPlan
from elasticdl.model.feed.unparsed import BadInput, FeedError, by_name
from elasticdl.model.specs import Shape, shapes_of
from elasticdl.model.user_code import short

log = logging.getLogger(__name__)

# What TensorFlow raises for a record that it cannot parse. The second: it quotes the
# record in its message, and Python fails to read bytes that are no text.
_UNPARSED = (tf.errors.OpError, UnicodeDecodeError)


@dataclass(frozen=True)
class Batch:
    """Some records as tensors; the first axis of each counts records."""

    features: Any
    labels: Any  # with weights a targets.Weighted; None in prediction
    num_records: int
    shapes: tuple[Shape, ...] | None = None  # of all tensors, where they are known


def kind_of(batch: Batch) -> tuple[Shape, ...]:
    """Return a key of a batch's shapes: a new key may cause a new trace."""
    if batch.shapes is not None:
        return batch.shapes
    return shapes_of(batch.features, batch.labels)


class Feeder:
    """Turns records into batches; create one per mode and keep it.

    One `batches` call at a time (the calls may come from different threads).
    """

    def __init__(
        self,
        definition: ModelDefinition,
        *,
        mode: str,
        batch_size: int,
        metadata: Metadata,
        skip_bad: bool = False,
    ) -> None:
        """Build the pipeline. Raises UserCodeError if feed breaks the contract.

        Args:
            definition: with its model built.
            mode: `training`, `evaluation` or `prediction`.
            batch_size: records per batch; the last of a task may be smaller.
            metadata: what the reader knows of the records.
            skip_bad: leave records out that feed cannot parse, and list them in
                `bad`; otherwise the first one raises FeedError.
        """
        self._definition = definition
        self._model = definition.model
        self._mode = mode
        self._batch_size = batch_size
        self._metadata = metadata
        self._skip_bad = skip_bad
        self._chosen = False
        self.bad: list[BadInput] = []
        self._plan: FeedPlan | None = None
        self._unseen: list[str] = []
        if definition.feed is not None:
            self._plan = self._pipeline()

    @property
    def order_preserved(self) -> bool:
        """Whether batches hold one element per record, in the records' order."""
        return self._plan is None or self._plan.order_preserved

    def warn_of_unseen(self) -> None:
        """Log which elements cannot be traced to their records, and the consequence.

        Once for a job's main feeder: it is the same line for each.
        """
        if self._definition.feed is None or not self._unseen:
            return
        log.warning(
            "It cannot be seen what %s does with each record: it goes through %s. A "
            "record of which it makes no row counts as trained all the same, and one "
            "of which it makes several counts once (`elasticdl audit` compares rows "
            "with records); a task that is broken off is trained again as a whole; "
            "predictions are written without the numbers of records. With map, "
            "filter, shuffle and batch alone all this is known",
            self._definition.feed.name,
            ", ".join(self._unseen),
        )

    @property
    def plan_name(self) -> str:
        """How records become batches: block, pipeline or rebuilt (for the log)."""
        return type(self._plan).__name__.removesuffix("Plan").lower()

    def batches(self, records: Sequence[bytes]) -> Iterator[Batch]:
        """Yield the batches of one task's records.

        Raises FeedError for a record that cannot be parsed (unless `skip_bad`) and
        UserCodeError when the feed itself raises.
        """
        self.bad = []
        if not records:
            return
        if not self._chosen:
            self._choose(records)
        try:
            if self._skip_bad:
                # Nothing of a task may be given out before all of it has parsed: the
                # second try has the same records less the bad ones.
                yield from list(self._batches(records))
            else:
                yield from self._batches(records)
        except _UNPARSED as error:
            yield from self._without_bad(records, error)

    def _batches(self, records: Sequence[bytes]) -> Iterator[Batch]:
        if self._plan is None:
            raise RuntimeError("no plan was chosen")
        for element in self._plan.elements(records):
            yield self._batch(element)

    def together(
        self, tasks: Sequence[Sequence[bytes]]
    ) -> Iterator[list[Batch]] | None:
        """Return the batches of each of several short tasks from one call.

        They are those that `batches` gives for one task after another. None where that
        must be asked instead: no plan is chosen yet, the feed does not run in blocks,
        there are too many records for one, or one of them does not parse.
        """
        if not isinstance(self._plan, feed_plans.BlockPlan) or not self._chosen:
            return None
        try:
            made = self._plan.together(tasks)
        except _UNPARSED:
            return None
        if made is None:
            return None
        self.bad = []
        return self._together(made)

    def _together(self, made: Iterator[list[tuple[int, Any]]]) -> Iterator[list[Batch]]:
        # Slices of one tensor have the same shapes, but for their lengths.
        shapes: dict[int, tuple[Shape, ...] | None] = {}
        for task in made:
            batches = []
            for records, element in task:
                batch = self._batch(element, records, shapes.get(records))
                shapes[records] = batch.shapes
                batches.append(batch)
            yield batches

    def _batch(
        self,
        element: Any,
        records: int | None = None,
        shapes: tuple[Shape, ...] | None = None,
    ) -> Batch:
        features, labels = split_element(element, self._mode)
        features = fit_features(self._model, features)
        if records is None:
            records = int(tf.nest.flatten(features)[0].shape[0])
        # A new tensor's shape is looked up once; here that is not the step's time.
        shapes = shapes or shapes_of(features, labels)
        return Batch(features, labels, records, shapes)

    def _without_bad(
        self, records: Sequence[bytes], error: Exception
    ) -> Iterator[Batch]:
        bad = self._find_bad(records)
        if not bad:
            what = "feed"
            raise UserCodeError(self._definition.code.describe(what, error)) from error
        if not self._skip_bad:
            raise FeedError(bad[0]) from error
        if len(bad) == len(records):
            log.warning("feed could parse none of %d records", len(records))
        places = {b.index for b in bad}
        kept = [r for i, r in enumerate(records) if i not in places]
        batches = list(self._batches(kept)) if kept else []
        self.bad = bad
        yield from batches

    def _find_bad(self, records: Sequence[bytes]) -> list[BadInput]:
        if self._plan is None:
            raise RuntimeError("no plan was chosen")
        bad: list[BadInput] = []
        for index, record in enumerate(records):
            try:
                for _ in self._plan.elements([record]):
                    pass
            except _UNPARSED as error:
                bad.append(BadInput(index, self._reason(error)))
                if not self._skip_bad:
                    break
        return bad

    def _reason(self, error: Exception) -> str:
        if isinstance(error, UnicodeDecodeError):
            return "it does not parse, and its bytes are no text that could be shown"
        if self._definition.feed is not None:
            return short(error)
        return by_name(short(error), csv_columns(self._metadata))

    # Choosing the plan.

    def _choose(self, records: Sequence[bytes]) -> None:
        """Choose the fastest plan with the same result as the user's feed."""
        self._chosen = True
        if self._definition.feed is None:
            parser = default_parser(self._model, self._metadata, records, self._mode)
            signature = [tf.TensorSpec([None], tf.string)]
            self._plan = feed_plans.BlockPlan(
                function=tf.function(
                    parser, input_signature=signature, autograph=False
                ),
                batch_size=self._batch_size,
                shuffle=False,
                seed=self._definition.seed,
                order_preserved=True,
                columns=self._column_parser(records),
            )
            return
        block = self._block_plan(records)
        if block is not None:
            self._plan = block
        log.debug("feed in mode %s runs as %s", self._mode, self.plan_name)

    def _column_parser(
        self, records: Sequence[bytes]
    ) -> Callable[[RowTable], Any] | None:
        if not isinstance(records, RowTable):
            return None
        return column_parser(self._model, self._metadata, records, self._mode)

    def _pipeline(self) -> FeedPlan:
        feed = self._definition.feed
        if feed is None:
            raise RuntimeError("the model module has no feed")
        variable, source = feed_plans.record_source()
        result = feed(source, self._mode, self._metadata)
        self._source, self._result = source, result
        chain = feed_chain.chain_of(result, source)
        feed_refusals.refuse_endless(result, source, feed.name)
        feed_refusals.refuse_dropping(result, source, feed.name)
        self._unseen = feed_chain.unseen(result, source)
        kind = feed_chain.batches_itself(result, source, feed.name)
        if feed_chain.keeps_nothing(chain):
            return feed_plans.PipelinePlan(
                variable,
                feed_plans.batched(result, kind, self._batch_size),
                order_preserved=feed_chain.keeps_order(chain),
            )

        def make(dataset: Any) -> Any:
            fed = feed(dataset, self._mode, self._metadata)
            again = feed_chain.batches_itself(fed, dataset, feed.name)
            return feed_plans.batched(fed, again, self._batch_size)

        return feed_plans.RebuiltPlan(make)

    def _block_plan(self, records: Sequence[bytes]) -> FeedPlan | None:
        chain = feed_chain.chain_of(self._result, self._source)
        spec = self._result.element_spec
        one = feed_chain.block_function(chain, spec)
        if one is None:
            return None
        block = feed_chain.vectorise(one, spec)
        try:
            with feed_chain.unlogged():
                agrees = feed_chain.agrees(one, block, records)
            if not agrees:
                log.info("feed gives other values in blocks: it runs by record")
                return None
        except _UNPARSED:
            return None  # a bad record among the first; the pipeline will name it
        except (ValueError, TypeError, NotImplementedError) as error:
            first, *_ = str(error).splitlines() or [""]
            log.info("feed cannot run in blocks: it runs by record (%s)", first)
            return None
        return feed_plans.BlockPlan(
            function=block,
            batch_size=self._batch_size,
            shuffle=feed_chain.has_shuffle(chain),
            seed=self._definition.seed,
            order_preserved=not feed_chain.has_shuffle(chain),
        )
