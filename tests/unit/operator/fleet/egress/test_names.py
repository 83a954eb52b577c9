"""How the egress process looks names up."""

import socket

import pytest
from sandfleet_operator.fleet.egress import cluster, outside


@pytest.mark.parametrize("name", ["example.com", "example.com."])
async def test_in_a_pod_a_name_is_none_of_the_domains_that_pods_search_in(monkeypatch, name):
    """With `search svc.cluster.local` a tenant's Service `example` in a namespace `com` would be asked for first."""
    asked = []

    def resolver(host, _port, **_):
        asked.append(host)
        return [(0, 0, 0, "", ("192.0.2.7", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    assert await cluster.looked_up_as_it_is(name, 443) == ["192.0.2.7"]
    # The control: on one machine names are what its files say of them.
    await outside.looked_up(name, 443)
    assert asked == ["example.com.", name]
