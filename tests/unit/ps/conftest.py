"""Real PS with real gRPC servers on loopback, in the test's own process."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from elasticdl.job.heartbeats import PsView
from elasticdl.metrics.registry import PsMetrics
from elasticdl.ps.async_updater import AsyncUpdater
from elasticdl.ps.restore import PsPlace, ShardStore
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.servicer import PsServicer
from elasticdl.ps.sync_updater import SyncFollower, SyncUpdater
from elasticdl.ps.updater import Control, NewUpdater
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.ps.client import PsClient
from elasticdl.rpc.ps.tensors import Gradients, Pushed, PushId, PushOrder
from elasticdl.rpc.server import ThreadedServer, serve
from elasticdl.tensor.placement import GradientKind, Layout, Variable, place
from elasticdl.tensor.shared_state import SharedState, StateShare
from elasticdl.testing.scripted import TOKEN

from tests.unit.ps.optimizers.cases import tree


def sgd(rate: float = 0.5, momentum: float = 0.0) -> str:
    return json.dumps(tree("SGD", learning_rate=rate, momentum=momentum))


VARIABLES = (
    Variable("dense/kernel", (8, 4)),
    Variable("dense/bias", (4,)),
    Variable("table/embeddings", (10, 3), GradientKind.ROWWISE),
    Variable("frozen/scale", (2,), GradientKind.FROZEN),
)
SIZE = 32 + 4 + 30 + 2


class Group:
    """Some PS and what a master would tell them."""

    def __init__(
        self,
        num_ps: int,
        *,
        sync: bool,
        variables: Sequence[Variable] = VARIABLES,
        optimizer: str = "",
        wait_seconds: float = 20.0,
        state: SharedState | None = None,
        **asynchronous: float,
    ) -> None:
        self.num_ps = num_ps
        self.sync = sync
        self.layout = place(variables, num_ps)
        self.optimizer = optimizer or sgd()
        self.state = state or SharedState()
        self.control_figures = Control(quorum=1)
        self.generations = [1] * num_ps
        self.rewind = 0
        self.revision = 0
        self._wait_seconds = wait_seconds
        self._async = {
            "staleness_modulation": False, "max_staleness": 0, "leads_state": True,
        }  # fmt: skip
        self._async.update(asynchronous)
        self.servers: list[ParameterServer] = []
        self.endpoints: list[ThreadedServer] = []
        self.clients: list[PsClient] = []
        for index in range(num_ps):
            server, endpoint = self._start(index)
            self.servers.append(server)
            self.endpoints.append(endpoint)

    def _start(self, index: int) -> tuple[ParameterServer, ThreadedServer]:
        where = PsPlace(index, self.num_ps)
        server = ParameterServer(
            where,
            new_updater=self._updater(index),
            store=ShardStore(where, common_version=self.sync),
        )
        endpoint = serve(
            [ps_wire.handlers(PsServicer(server, PsMetrics()))],
            host="127.0.0.1",
            port=0,
            threads=32,
            token=TOKEN,
        )
        return server, endpoint

    def _updater(self, index: int) -> NewUpdater:
        if not self.sync:
            return lambda parameters, _changed, _pin, control: AsyncUpdater(
                parameters, control=control, **self._async
            )
        if index == 0:
            return lambda parameters, changed, _pin, control: SyncUpdater(
                parameters, changed, control=control, wait_seconds=self._wait_seconds
            )
        return lambda parameters, _changed, pin, _control: SyncFollower(
            parameters, pin=pin
        )

    def begin(self, restore_dir: Path | None = None) -> None:
        for server in self.servers:
            server.begin(rewind=self.rewind, restore_dir=restore_dir)

    def relaunch(
        self,
        index: int,
        restore_dir: Path | None = None,
        min_version: int = 0,
        *,
        handback: bool = False,
    ) -> None:
        """Kill a PS and start it anew under another address."""
        self.servers[index].close()
        self.endpoints[index].stop(0)
        self.servers[index], self.endpoints[index] = self._start(index)
        self.generations[index] += 1
        self.servers[index].begin(
            rewind=self.rewind,
            restore_dir=restore_dir,
            min_version=min_version,
            handback=handback,
        )
        self.tell_clients()

    @property
    def view(self) -> PsView:
        self.revision += 1
        return PsView(
            revision=self.revision,
            addresses=[endpoint.address for endpoint in self.endpoints],
            generations=self.generations,
            rewind=self.rewind,
        )

    def client(self, worker: int = 0, **options: float) -> PsClient:
        client = PsClient(
            worker=worker, generation=1, sync=self.sync, token=TOKEN, **options
        )
        client.set_view(self.view)
        self.clients.append(client)
        return client

    def tell_clients(self) -> None:
        for client in self.clients:
            client.set_view(self.view)

    def control(
        self, *, quorum: int | None = None, scale: float = 1.0, snapshots: tuple = ()
    ) -> None:
        """Tell all PS the same, PS 0 first, as the master's heartbeats would."""
        if quorum is not None:
            self.control_figures = Control(quorum, scale)
        for server in self.servers:
            server.control(self.control_figures, snapshots)

    def initial(self, value: float = 1.0) -> list[np.ndarray]:
        return [
            np.full(self.layout.size(ps), value, np.float32)
            for ps in range(self.num_ps)
        ]

    def ready(self, value: float = 1.0) -> PsClient:
        """Begin, initialize with a constant, and return a client."""
        self.begin()
        client = self.client()
        self.join(client, value)
        self.control(quorum=self.control_figures.quorum)
        return client

    def join(self, client: PsClient, value: float = 1.0) -> None:
        """Say as a worker that begins what it trains, and offer initial values."""
        client.initialize(
            self.layout, self.optimizer, self.initial(value), state=self.state
        )

    def gradients(self, value: float, rows: Sequence[int] = ()) -> Gradients:
        """Gradients of one value everywhere, of the given rows of the table."""
        dense, by_piece = [], []
        for ps in range(self.num_ps):
            dense.append(np.full(self.layout.dense_size(ps), value, np.float32))
            mine = {}
            for index, piece in enumerate(self.layout.pieces[ps]):
                variable = self.layout.variables[piece.variable]
                if variable.kind is not GradientKind.ROWWISE:
                    continue
                ids = [row - piece.start for row in rows
                       if piece.start <= row < piece.end]  # fmt: skip
                if ids:
                    mine[index] = (
                        np.array(ids, np.int64),
                        np.full((len(ids), variable.row_size), value, np.float32),
                    )
            by_piece.append(mine)
        return Gradients(dense, by_piece)

    def push(
        self,
        client: PsClient,
        gradients: Gradients,
        push_id: PushId | str,
        versions: Sequence[int],
        *,
        task: int = 1,
        records: int = 0,
        rate: float | None = None,
        pull: bool = False,
        state: StateShare | None = None,
    ) -> Pushed:
        """Push under an id; a bare name is a source that pushes once."""
        if isinstance(push_id, str):
            push_id = PushId(push_id, 1)
        order = PushOrder(push_id, versions, task, records, rate, 8, pull, state)
        return client.push(gradients, order)

    def whole(self, buffers: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return whole(self.layout, buffers)

    def close(self) -> None:
        for server in self.servers:
            server.close()
        for client in self.clients:
            client.close()
        for endpoint in self.endpoints:
            endpoint.stop(0)


def whole(layout: Layout, buffers: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Variables put together from the PS's buffers."""
    result = {
        v.name: np.full((v.num_rows, v.row_size), np.nan, np.float32)
        for v in layout.variables
    }
    for pieces, buffer in zip(layout.pieces, buffers, strict=True):
        for piece in pieces:
            variable = layout.variables[piece.variable]
            part = buffer[piece.offset : piece.offset + piece.size]
            result[variable.name][piece.start : piece.end] = part.reshape(
                -1, variable.row_size
            )
    return result


@pytest.fixture
def group() -> Iterator[Callable[..., Group]]:
    """Make groups that are closed when the test ends."""
    made: list[Group] = []

    def make(num_ps: int, **options: object) -> Group:
        made.append(Group(num_ps, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for workers that wait in a push."""
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture(name="sgd", scope="session")
def sgd_fixture() -> Callable[..., str]:
    """Serialized SGD of a learning rate and momentum."""
    return sgd
