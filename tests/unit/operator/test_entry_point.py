"""`python -m sandfleet_operator operator|fleet|gateway`: which process runs, and in which namespace."""

import sys
from types import SimpleNamespace

import pytest
from sandfleet_operator import __main__ as entry
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.fleet.gateway import serve as gateway
from sandfleet_operator.fleet.gateway.tunnels import Bounds
from sandfleet_operator.fleet.kubernetes import serve


def test_the_operator_gets_its_own_arguments_and_says_how_it_ended(monkeypatch):
    seen = []

    def main():
        seen.append(sys.argv)
        return 7

    monkeypatch.setitem(sys.modules, "sandfleet_operator.reconciler.run", SimpleNamespace(main=main))
    monkeypatch.setattr(sys, "argv", ["x"])
    assert entry.main(["operator", "--settings", "file"]) == 7
    assert [words[1:] for words in seen] == [["--settings", "file"]]


def test_the_fleet_gets_the_pods_identity(monkeypatch, tmp_path):
    seen = []
    settings = tmp_path / "settings.json"
    settings.write_text('{"controlPlaneNamespace": "ours"}')
    monkeypatch.setenv("POD_NAME", "fleet-0")
    monkeypatch.setattr(serve, "serve", lambda options: seen.append(options) or 0)
    monkeypatch.setenv("SANDFLEET_NAMESPACE", "ours")
    monkeypatch.setenv("POD_IP", "10.0.0.9")
    assert entry.main(["fleet", "--port", "1", "--health-port", "2", "--settings", str(settings)]) == 0
    (options,) = seen
    assert options.identity.startswith("fleet-0_")
    wanted = serve.Options(
        namespace="ours",
        settings=Settings(control_plane_namespace="ours"),
        identity=options.identity,
        pod="fleet-0",
        pod_ip="10.0.0.9",
        port=1,
        health_port=2,
    )
    assert options == wanted
    assert entry.main(["fleet", "--settings", str(tmp_path / "none")]) == 2


def test_the_gateway_gets_its_credentials_and_its_bounds(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(gateway, "serve", lambda options: seen.append(options) or 0)
    monkeypatch.setenv("SANDFLEET_NAMESPACE", "ours")
    words = ["gateway", "--credentials", str(tmp_path), "--health-port", "2", "--max-tunnels", "9"]
    assert entry.main([*words, "--max-tunnels-per-caller", "3"]) == 0
    bounds, fleet = Bounds(total=9, per_caller=3), "sandfleet-fleet.ours.svc:8443"
    assert seen == [gateway.Options(fleet=fleet, credentials=tmp_path, health_port=2, bounds=bounds)]


def test_a_missing_or_unknown_command_is_wrong_usage(capsys):
    for words in ([], ["other"]):
        with pytest.raises(SystemExit) as caught:
            entry.main(words)
        assert caught.value.code == 2
    assert "operator" in capsys.readouterr().err


def test_the_namespace_is_named_or_the_pods_or_the_default(monkeypatch, tmp_path):
    monkeypatch.delenv("SANDFLEET_NAMESPACE", raising=False)
    monkeypatch.setattr(entry, "NAMESPACE_FILE", tmp_path / "namespace")
    assert entry.own_namespace() == "sandfleet-system"
    (tmp_path / "namespace").write_text("of-the-pod\n")
    assert entry.own_namespace() == "of-the-pod"
    monkeypatch.setenv("SANDFLEET_NAMESPACE", "named")
    assert entry.own_namespace() == "named"
