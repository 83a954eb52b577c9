"""What is told of a session's connections."""

from sandfleet_operator.plan.egress.reports import MOST, Reports


def row(host="a.example", reason="", **counts):
    zeros = {"address": "", "connections": 0, "open": 0, "sent": 0, "received": 0}
    return {"host": host, "port": 443, "reason": reason, **zeros, **counts}


def test_rows_of_one_host_add_up_and_a_refusal_is_another_row():
    reports = Reports()
    reports.add(row(connections=1, open=1, address="192.0.2.1", sent=10), 1.0)
    reports.add(row(reason="NotListed", connections=2), 2.0)
    reports.add(row(open=-1, received=5), 3.0)
    refused, reached = reports.all()
    assert (refused.reason, refused.connections) == ("NotListed", 2)
    assert (reached.connections, reached.open, reached.sent, reached.received) == (1, 0, 10, 5)
    assert (reached.address, reached.first, reached.last) == ("192.0.2.1", 1.0, 3.0)


def test_hosts_are_bounded_by_their_last_use():
    reports = Reports()
    for number in range(MOST):
        reports.add(row(f"h{number}.example", connections=1), number)
    reports.add(row("h0.example", connections=1), MOST)
    reports.add(row("new.example", connections=1), MOST + 1)
    hosts = {one.host for one in reports.all()}
    assert len(hosts) == MOST
    assert {"h0.example", "new.example"} <= hosts
    assert "h1.example" not in hosts


def test_another_process_has_no_connection_open():
    reports = Reports()
    reports.add(row(connections=1, open=1), 1.0)
    reports.closed()
    assert [one.open for one in reports.all()] == [0]
