"""Servers of the roles are reached by addresses of both families."""

import grpc
import pytest
from elasticdl.rpc.channel import client_options
from elasticdl.rpc.server import bind, threaded_server
from elasticdl.rpc.token import HEADER, header_value

CALL = "/test.Echo/Echo"


class Echo(grpc.GenericRpcHandler):
    """Answers with what came."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


@pytest.mark.parametrize(
    ("listens", "called"),
    [
        ("::", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_server_is_reached_under_each_address_that_it_listens_on(listens, called):
    server = threaded_server(2, "token")
    server.add_generic_rpc_handlers((Echo(),))
    port = bind(server, listens, 0)
    server.start()
    try:
        with grpc.insecure_channel(f"{called}:{port}", client_options()) as channel:
            say = channel.unary_unary(CALL)
            carried = ((HEADER, header_value("token")),)
            assert say(b"hello", metadata=carried, timeout=30) == b"hello"
    finally:
        server.stop(0)
