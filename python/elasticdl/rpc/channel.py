"""Channels: how every gRPC connection of ElasticDL is set up.

Owns limits, keepalive and reconnect back-off of both sides, and whether a connection is
encrypted. Called by the clients in `rpc`, `runner.local.runner` and the servers. Knows
nothing of services.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import grpc
import grpc.aio

from elasticdl.job.names import Role
from elasticdl.rpc.tls.identity import Identity, channel_credentials
from elasticdl.rpc.tls.renewed import RenewedChannel
from elasticdl.rpc.token import Carrier

# Metric states and lists of shards are the largest messages; values go in chunks.
MAX_MESSAGE_BYTES = 256 << 20
# gRPC's own limit would refuse the calls of a thousand workers at once.
_MOST_PENDING_CALLS = 1_000_000
_KEEPALIVE_MS = 5_000  # A peer whose machine is gone is noticed in 8 seconds.
_KEEPALIVE_TIMEOUT_MS = 3_000

Options = list[tuple[str, int]]


def client_options() -> Options:
    """Return the options of every client channel.

    A peer that was relaunched under its old address has to be found within half a
    second, so back-off is capped; a peer that hangs (SIGSTOP) is found by keepalive.
    """
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Not a pause: what one attempt to connect may take. A busy machine needs a
        # second where an idle one needs a millisecond.
        ("grpc.min_reconnect_backoff_ms", 3_000),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        # Replicas are reached directly, whatever proxy the environment names.
        ("grpc.enable_http_proxy", 0),
        # Channels of one process would otherwise share a connection to one address.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def server_options() -> Options:
    """Return the options of every server; they allow the clients' keepalive."""
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        # gRPC cancels calls at random once a thousand wait for a thread or a loop that
        # is busy. Replicas call once and wait: more than two each are never there.
        ("grpc.server.max_pending_requests", _MOST_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING_CALLS),
        # A port that another process holds is an error, never shared with it.
        ("grpc.so_reuseport", 0),
    ]


@dataclass(frozen=True)
class Peer:
    """The server expected at an address, and this process's own identity.

    No identity: calls are not encrypted, as on one machine.
    """

    role: Role = Role.MASTER
    index: int = 0
    identity: Identity | None = None


def connect(address: str, token: str, peer: Peer = Peer()) -> grpc.Channel:
    """Return a channel to `host:port`; it connects at the first call.

    Its calls carry the job's token; they have no other form but `future`.
    """
    identity = peer.identity
    if identity is None:
        channel = grpc.insecure_channel(address, options=client_options())
        return cast("grpc.Channel", Carrier(channel, token))
    options = [*client_options(), _expected(identity, peer)]
    renewed = RenewedChannel(
        identity,
        lambda shown: grpc.secure_channel(
            address, channel_credentials(shown), options=options
        ),
    )
    return cast("grpc.Channel", Carrier(renewed, token))


def connect_aio(address: str, token: str, peer: Peer = Peer()) -> grpc.aio.Channel:
    """Return the same for an event loop."""
    identity = peer.identity
    if identity is None:
        channel = grpc.aio.insecure_channel(address, options=client_options())
        return cast("grpc.aio.Channel", Carrier(channel, token))
    options = [*client_options(), _expected(identity, peer)]
    renewed = RenewedChannel(
        identity,
        lambda shown: grpc.aio.secure_channel(
            address, channel_credentials(shown), options=options
        ),
    )
    return cast("grpc.aio.Channel", Carrier(renewed, token))


def _expected(identity: Identity, peer: Peer) -> tuple[str, str]:
    """Return the option with the expected server name, which outlives its addresses."""
    host = identity.name.host_of(peer.role, peer.index)
    return "grpc.ssl_target_name_override", host
