"""Asks a rate limit service at the given address, and checks what it says."""

import sys

import grpc

from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from envoy.type.v3 import ratelimit_unit_pb2

Response = rls_pb2.RateLimitResponse
DEADLINE = 30


def descriptor(key, value, **more):
    entry = ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value)
    return ratelimit_pb2.RateLimitDescriptor(entries=[entry], **more)


def main(address):
    with grpc.insecure_channel(address) as channel:
        stub = rls_pb2_grpc.RateLimitServiceStub(channel)

        def ask(*descriptors, domain="d"):
            request = rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors)
            return stub.ShouldRateLimit(request, timeout=DEADLINE)

        for code, remaining in [(Response.OK, 1), (Response.OK, 0), (Response.OVER_LIMIT, 0)]:
            response = ask(descriptor("user", "ada"))
            (status,) = response.statuses
            assert response.overall_code == status.code == code, response
            assert status.limit_remaining == remaining, response
            assert status.duration_until_reset.ToSeconds() == 26, response
            assert status.current_limit.name == "per-user", response
            assert status.current_limit.requests_per_unit == 2, response
            assert status.current_limit.unit == Response.RateLimit.MINUTE, response

        own = ratelimit_pb2.RateLimitDescriptor.RateLimitOverride(
            requests_per_unit=5, unit=ratelimit_unit_pb2.HOUR
        )
        response = ask(descriptor("user", "ada", limit=own, hits_addend={"value": 3}))
        assert response.statuses[0].limit_remaining == 2, response
        back = descriptor("user", "ada", hits_addend={"value": 1}, is_negative_hits=True)
        assert ask(back).statuses[0].limit_remaining == 1

        # Many at once over one connection.
        request = rls_pb2.RateLimitRequest(domain="d", descriptors=[descriptor("user", "many")])
        calls = [stub.ShouldRateLimit.future(request, timeout=DEADLINE) for _ in range(200)]
        codes = [call.result().overall_code for call in calls]
        assert codes.count(Response.OK) == 2, codes

        try:
            ask(descriptor("user", "ada"), domain="")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            assert error.details() == "rate limit domain must not be empty", error
        else:
            raise AssertionError("no error for a request without a domain")
    print("all as expected")


main(sys.argv[1])
