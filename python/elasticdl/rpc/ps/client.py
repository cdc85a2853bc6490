"""The parameter servers as a worker sees them: all of them, as one.

Owns what is asked of which PS, deadlines, and in sync mode the order of calls (ticket
from PS 0, then the others; gradients to the others, then PS 0). Called by the worker's
trainer. Must not know what an optimizer is, how a model is built, nor how the PS are
reached: `rpc.ps.calls` has the connections, and calls several PS at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from elasticdl.errors import FencedError, RpcError
from elasticdl.job.heartbeats import PsView
from elasticdl.job.tasks import Ticket
from elasticdl.pauses import growing
from elasticdl.proto import ps_pb2
from elasticdl.rpc.ps.calls import PsCalls
from elasticdl.rpc.ps.tensors import (
    STATE,
    SYNC_WAIT_SECONDS,
    UNTRAINED,
    VALUES,
    WAITING,
    Brought,
    Floats,
    Gradients,
    PulledValues,
    Pushed,
    PushId,
    PushIds,
    PushOrder,
    as_pull,
    gradient_tensors,
    new_source,
    pulled_from_replies,
    untrained_of,
    untrained_tensors,
)
from elasticdl.rpc.ps.view import PsCallView
from elasticdl.rpc.ps.wire import Tensors
from elasticdl.rpc.retry import is_transient
from elasticdl.rpc.task_messages import ticket_to_wire
from elasticdl.rpc.tls.identity import Identity
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import Layout
from elasticdl.tensor.shared_state import SharedState

CALL_SECONDS = 10.0  # a small call takes milliseconds, unless a PS holds its lock
_SLOWEST_BYTES_PER_SECOND = 10e6  # A tenth of a 1 Gbit/s link: slower ones time out.
_PUSH_TRIES = 4  # after three lost answers in a row, wait for the master's view
_PULL_TRIES = 100  # In sync mode versions may move on between the answers of two PS.

_PushAnswer = tuple[ps_pb2.PushReply, Tensors]
_PushAnswers = list[_PushAnswer]
_OnApplied = Callable[[int, int], None] | None


class PsClient:
    """Client of all PS of a job. Thread-safe; pull and push may overlap.

    Every call raises RpcError when a PS is away or late (try again, with a newer
    view if one comes), FencedError when the PS were rewound (give tasks up, pull
    again under the new view), NotInitializedError when one has no parameters
    (`initialize`), RefusedError when the call is wrong.
    """

    def __init__(  # noqa: PLR0913 - who calls, how the PS work, and two for tests
        self,
        *,
        worker: int,
        generation: int,
        sync: bool,
        token: str,
        identity: Identity | None = None,
        lends: bool = True,
        first_admits: bool = False,
        delay_seconds: float = 0.0,
        source: str = "",
    ) -> None:
        """Take the caller's identity, the job's token and the PS's mode.

        `identity`: calls are encrypted with it; None where they are not. `lends`:
        memory, to PS of this machine. `first_admits`: in async mode with a bound on
        staleness, ask PS 0 first, so that a refused gradient is refused by all.
        `delay_seconds` is added to each call, to measure what a slow network costs.
        `source` names this worker's life in the ids of its pushes; "" makes a name
        that nobody else has.
        """
        self._push_ids = PushIds(source or new_source(worker, generation))
        self._calls = PsCalls(
            worker=worker,
            generation=generation,
            token=token,
            identity=identity,
            lends=lends,
            delay_seconds=delay_seconds,
        )
        self._sync = sync
        self._first_admits = first_admits
        # Bytes of the values of each PS: picks one message or a stream.
        self._pull_bytes: dict[int, int] = {}
        # (generation, rewind) of the PS that the last live pull came from: versions
        # of another life of that PS mean nothing.
        self._pulled_from: dict[int, tuple[int, int]] = {}

    def set_view(self, view: PsView) -> None:
        """Take the PS's present addresses; an older revision is ignored.

        Calls in flight to a PS that has moved end with RpcError.
        """
        self._calls.set_view(view)

    @property
    def num_ps(self) -> int:
        """Number of PS in the view; 0 before the first one."""
        return len(self._calls.view.stubs)

    @property
    def rewind(self) -> int:
        """The rewind that calls carry."""
        return self._calls.view.rewind

    def close(self) -> None:
        """Close all connections; calls in flight end with RpcError."""
        self._calls.close()

    # Start

    def is_initialized(self) -> list[bool]:
        """Return, by PS, whether it has parameters."""
        view = self._calls.require_view()
        request = ps_pb2.InitRequest(header=self._calls.header(view))
        return self._calls.each(
            range(len(view.stubs)),
            lambda ps: (
                self._calls.stub(view, ps).probe(request, timeout=CALL_SECONDS).accepted
            ),
        )

    def initialize(  # noqa: PLR0913 - all that PS begin with
        self,
        layout: Layout,
        optimizer_json: str,
        values: Sequence[Floats],
        *,
        versions: Sequence[int] = (),
        rewind: int | None = None,
        state: SharedState | None = None,
        untrained: Callable[[], Mapping[str, Array]] = dict,
        first_step: int = 0,
    ) -> str:
        """Initialize each PS that has no parameters; PS 0 also gets the state.

        PS 0 also gets the weights that no step moves: what `untrained` returns.
        `first_step` is the `PulledValues.first_step` of pulled values.

        `values[i]` is the flat buffer of PS i, pulled at `versions[i]`; without
        versions they are initial values, which no PS of a job that has begun takes.
        The first worker wins; a PS that has a checkpoint to load takes its values from
        there. Returns the optimizer that all PS train with, which is that of a worker
        that came earlier: a PS that comes back gets what the others have.

        Raises RefusedError when a PS already has another layout, FencedError
        when the PS are not at `rewind` (None: any), to which the values belong.
        """
        view = self._calls.require_view()
        if rewind is not None and view.rewind != rewind:
            raise FencedError(f"values of rewind {rewind}, the PS are at {view.rewind}")
        state = state or SharedState()

        def one(ps: int, optimizer_json: str) -> str:
            more = state.values.nbytes if ps == 0 else 0
            self._pull_bytes.setdefault(ps, values[ps].nbytes + more)
            stub = self._calls.stub(view, ps)
            request = ps_pb2.InitRequest(
                header=self._calls.header(view),
                layout_json=layout.to_json(),
                optimizer_json=optimizer_json,
                version=versions[ps] if versions else 0,
                pulled=bool(versions),
                state_json=state.layout.to_json(),
                first_step=first_step if versions else 0,
            )
            reply = stub.probe(request, timeout=CALL_SECONDS)
            if reply.accepted:
                return reply.optimizer_json or optimizer_json
            flat = np.ascontiguousarray(values[ps], np.float32)
            tensors = {VALUES: flat}
            if ps == 0 and state.values.size:
                tensors[STATE] = state.values
            more_of = untrained_tensors(untrained()) if ps == 0 else {}
            reply = stub.init(request, {**tensors, **more_of})
            return reply.optimizer_json or optimizer_json

        # PS do not talk to each other, and workers may differ (the module was edited
        # while the job runs): what one PS has is taken by all, and PS 0 is asked first.
        others = range(1, len(view.stubs))
        in_force = one(0, self._in_force(view) or optimizer_json)
        self._calls.each(others, lambda ps: one(ps, in_force))
        return in_force

    def _in_force(self, view: PsCallView) -> str:
        """Return the optimizer that some PS uses already; "" if none does.

        Raises RpcError if one that is away may be the one that does.
        """
        request = ps_pb2.InitRequest(header=self._calls.header(view))

        def ask(ps: int) -> str | RpcError:
            try:
                stub = self._calls.stub(view, ps)
                return stub.probe(request, timeout=CALL_SECONDS).optimizer_json
            except RpcError as error:
                return error

        answers = self._calls.each(range(len(view.stubs)), ask)
        found = [answer for answer in answers if isinstance(answer, str) and answer]
        if found:
            return found[0]
        for answer in answers:
            if isinstance(answer, RpcError):
                raise answer
        return ""

    # Values

    def pull_untrained(self) -> dict[str, Array]:
        """Return the untrained weights by variable, from PS 0."""
        view = self._calls.require_view()
        request = ps_pb2.PullRequest(
            header=self._calls.header(view), have_version=-1, snapshot=UNTRAINED
        )
        # Of no size that is known: a stream, which may take as long as it moves.
        _, tensors = self._calls.stub(view, 0).pull(
            request, size=0, timeout=CALL_SECONDS
        )
        return untrained_of(tensors)

    def pull(
        self,
        *,
        have: Sequence[int] | None = None,
        snapshot: str = "",
        ticket: Ticket | None = None,
    ) -> PulledValues:
        """Return the values: live ones newer than `have`, or those of a snapshot.

        `have` is `PulledValues.versions` of the pull before. In sync mode the values of
        all PS are of one version; only a snapshot needs `ticket` (ModelVersion).
        """
        for attempt in range(_PULL_TRIES):
            view = self._calls.require_view()
            if snapshot:
                return self._pull_all(view, None, snapshot, ticket_to_wire(ticket))
            if not self._sync or len(view.stubs) == 1:
                return self._pull_all(view, have, "", None)
            pulled = self._pull_sync(view, have)
            if pulled is not None:
                return pulled
            time.sleep(growing(attempt, first=0.001, most=0.05))
        raise RpcError(
            f"pull: the PS moved on {_PULL_TRIES} times while this worker pulled; the "
            "network to one of them is too slow for sync mode"
        )

    def _pull_all(
        self,
        view: PsCallView,
        have: Sequence[int] | None,
        snapshot: str,
        ticket: ps_pb2.Ticket | None,
    ) -> PulledValues:
        answers = self._calls.each(
            range(len(view.stubs)),
            lambda ps: self._pull_one(view, ps, have, snapshot, ticket),
        )
        return pulled_from_replies(answers)

    def _pull_sync(
        self, view: PsCallView, have: Sequence[int] | None
    ) -> PulledValues | None:
        """Pull PS 0, then the others at its version; None if they are ahead of it."""
        first = self._pull_one(view, 0, have, "", None)
        ticket = first[0].ticket
        others = self._calls.each(
            range(1, len(view.stubs)),
            lambda ps: self._pull_one(view, ps, have, "", ticket),
        )
        if any(reply.version != first[0].version for reply, _ in others):
            return None
        return pulled_from_replies([first, *others])

    def _pull_one(
        self,
        view: PsCallView,
        ps: int,
        have: Sequence[int] | None,
        snapshot: str,
        ticket: ps_pb2.Ticket | None,
    ) -> tuple[ps_pb2.PullReply, Brought]:
        life = (view.generations[ps], view.rewind)
        known = (
            have is not None
            and ps < len(have)
            and not snapshot
            and self._pulled_from.get(ps) == life
        )
        request = ps_pb2.PullRequest(
            header=self._calls.header(view),
            have_version=have[ps] if known and have is not None else -1,
            snapshot=snapshot,
            ticket=ticket,
        )
        size = self._pull_size(ps)
        reply, tensors = self._calls.stub(view, ps).pull(
            request, size=size, timeout=self._seconds(size)
        )
        if not snapshot:
            self._pulled_from[ps] = life
        return reply, self._brought_by(ps, tensors)

    def _brought_by(self, ps: int, tensors: Tensors) -> Brought:
        brought = Brought.of(tensors)
        if brought.values.size:
            self._pull_bytes[ps] = brought.nbytes
        return brought

    def _pull_size(self, ps: int) -> int:
        return self._pull_bytes.get(ps, 0)

    # Gradients

    def next_push_id(self) -> PushId:
        """Return the id of the next push; a retry uses the same id."""
        return self._push_ids.next()

    def push(
        self, gradients: Gradients, order: PushOrder, on_applied: _OnApplied = None
    ) -> Pushed:
        """Push the gradients of a batch; in sync mode return when the version is made.

        After an RpcError the same call may be made again: it is applied once. With
        `order.pull` the answer brings the values after it: one way instead of two.
        `on_applied` hears of a PS and its version when that one has answered.
        """
        view = self._calls.require_view()

        def one(ps: int) -> _PushAnswer:
            request = ps_pb2.PushRequest(
                header=self._calls.header(view),
                source=order.push_id.source,
                number=order.push_id.number,
                version=order.versions[ps],
                task_id=order.task_id,
                records_done=order.records_done,
                learning_rate=order.learning_rate or 0.0,
                has_learning_rate=order.learning_rate is not None,
                batch_records=order.batch_records,
                pull=order.pull and not (self._sync and ps),
            )
            tensors = gradient_tensors(gradients.dense[ps], gradients.rows[ps])
            if ps == 0 and order.state is not None:
                request.still.extend(order.state.still)
                tensors[STATE] = order.state.values
            size = sum(tensor.nbytes for tensor in tensors.values())
            back = self._pull_size(ps) if request.pull else 0
            stub = self._calls.stub(view, ps)
            seconds = self._seconds(size + back)
            answer = self._until_made(
                lambda: stub.push(request, tensors, size=back, timeout=seconds), view
            )
            if answer[0].accepted and on_applied is not None:
                on_applied(ps, answer[0].version)
            return answer

        every = range(len(view.stubs))
        if self._sync:
            # The others hold the gradient before PS 0 may name it in a ticket.
            others = self._calls.each(every[1:], one)
            answers = [one(0), *others]
        elif self._first_admits and len(every) > 1:
            first = one(0)
            others = self._calls.each(every[1:], one) if first[0].accepted else []
            answers = [first, *others]
        else:
            answers = self._calls.each(every, one)
        replies = [reply for reply, _ in answers]
        refused = [reply for reply in replies if not reply.accepted]
        return Pushed(
            accepted=not refused,
            version=replies[0].version,
            reason=refused[0].reason if refused else "",
            versions=[reply.version for reply in replies],
            pulled=self._brought(view, answers) if order.pull else None,
        )

    def _brought(self, view: PsCallView, answers: _PushAnswers) -> PulledValues | None:
        """Return the values that came with a push; None unless every PS sent them."""
        first, tensors = answers[0]
        if VALUES not in tensors:
            return None
        got = [(as_pull(first), self._brought_by(0, tensors))]
        if self._sync:
            got += self._calls.each(
                range(1, len(view.stubs)),
                lambda ps: self._pull_one(view, ps, None, "", first.ticket),
            )
            if any(reply.version != first.version for reply, _ in got):
                return None
        elif len(answers) < len(view.stubs):
            return None  # PS 0 alone was asked, and refused
        else:
            got += [
                (as_pull(reply), self._brought_by(ps, tensors))
                for ps, (reply, tensors) in enumerate(answers[1:], 1)
            ]
        for ps in range(len(view.stubs)):
            self._pulled_from[ps] = (view.generations[ps], view.rewind)
        return pulled_from_replies(got)

    def _until_made(
        self, push: Callable[[], _PushAnswer], view: PsCallView
    ) -> _PushAnswer:
        """Repeat a push under its id while its answer is lost or `waiting`."""
        failures = 0
        while True:
            try:
                answer = push()
            except RpcError as error:
                failures += 1
                if (
                    not self._sync
                    or not is_transient(error)
                    or failures == _PUSH_TRIES
                    or self._calls.view is not view
                ):
                    raise
                time.sleep(growing(failures, first=0.05, most=1.0))
            else:
                if answer[0].accepted or answer[0].reason != WAITING:
                    return answer

    def _seconds(self, size: int) -> float:
        waiting = SYNC_WAIT_SECONDS if self._sync else 0.0
        return CALL_SECONDS + waiting + size / _SLOWEST_BYTES_PER_SECOND
