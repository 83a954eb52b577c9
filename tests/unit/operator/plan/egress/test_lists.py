"""Which hosts templates and sandboxes list, and whether one list lies within another."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.egress import Name, first_outside, parse
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import SandboxSpec
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    EgressCredential,
    EgressName,
    EgressRule,
    sandbox_template,
)
from sandfleet_operator.api.settings import EgressByName, Settings
from sandfleet_operator.plan.egress import lists
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from support.operator.builders import IMAGE
from support.operator.crd_strategies import an_object

SETS = {"python": ("packages.example.com", "files.example.com:443")}
SETTINGS = Settings(
    control_plane_namespace="sandfleet-system",
    allowed_images=(IMAGE,),
    egress=EgressByName(service="egress:3129", address="127.0.0.9:3129", sets=SETS),
)
TOKEN = {
    "host": "api.example.com",
    "format": "Bearer {value}",
    "secretRef": {"name": "api", "key": "token"},
    "env": "TOKEN",
}


def template(contracts=("Autonomous",), **egress):
    spec = {"image": IMAGE, "egress": egress, "contracts": list(contracts)}
    return sandbox_template(an_object("SandboxTemplate", spec)).spec


def merged(spec, own=None, settings=SETTINGS, contract=None):
    return effective(spec, SandboxSpec(template="python", egress=own, contract=contract), settings)


@pytest.mark.parametrize(
    ("wish", "allowed", "outside"),
    [
        ("a.example.org", ["a.example.org"], ""),
        ("a.example.org", ["*.example.org"], ""),
        ("*.a.example.org", ["*.example.org"], ""),
        ("*.example.org", ["*.example.org"], ""),
        ("a.example.org:443", ["a.example.org"], ""),
        ("a.example.org", ["a.example.org:443", "a.example.org:80"], ""),
        ("example.org", ["*.example.org"], "example.org"),
        ("*.example.org", ["a.example.org"], "*.example.org"),
        ("*.example.org", ["*.a.example.org"], "*.example.org"),
        ("a.example.org", ["a.example.org:443"], "a.example.org"),
        ("a.example.org:8443", ["*.example.org"], "a.example.org:8443"),
        ("badexample.org", ["*.example.org"], "badexample.org"),
        ("GET a.example.org/v1/x", ["GET,HEAD *.example.org/v1/*"], ""),
        ("GET a.example.org/v1/x", ["a.example.org"], ""),
        ("GET a.example.org/v1/*", ["GET a.example.org", "HEAD a.example.org"], ""),
        ("a.example.org", ["GET a.example.org"], "a.example.org"),
        ("GET,PUT a.example.org", ["GET a.example.org", "PUT a.example.org"], "GET,PUT a.example.org"),
        ("GET a.example.org", ["GET a.example.org/*"], "GET a.example.org"),
        ("a.example.org:443/*", ["a.example.org/v1/*"], "a.example.org:443/*"),
        ("a.example.org/v1/* /v2", ["a.example.org/v1/*"], "a.example.org/v1/* /v2"),
    ],
)
def test_a_list_within_another(wish, allowed, outside):
    assert first_outside([parse(wish)], [parse(one) for one in allowed]) == outside


def test_a_template_lists_hosts_and_sets():
    found = template(names=[{"host": "api.example.com", "ports": [8443]}], sets=["python"]).egress
    assert lists.names_of(found, SETS) == (
        Name("api.example.com", (8443,)), Name("packages.example.com"), Name("files.example.com", (443,)),
    )  # fmt: skip


def test_what_is_written_into_an_object_is_read_again():
    names = [parse("*.example.org"), parse("GET,PUT api.example.com:8443/v1/* /v2")]
    read = template(names=lists.written(names)).egress
    assert lists.names_of(read, {}) == tuple(names)


@pytest.mark.parametrize(
    ("egress", "settings", "word"),
    [
        ({"sets": ["node"]}, SETTINGS, "no set 'node', only python"),
        ({"names": [{"host": "127.0.0.1"}]}, SETTINGS, "no address"),
        ({"names": [{"host": "a.example.org:443"}]}, SETTINGS, "write its ports beside it"),
        ({"credentials": [TOKEN]}, SETTINGS, "no host that the egress list allows"),
        ({"names": [{"host": "api.example.com", "ports": [80]}], "credentials": [TOKEN]}, SETTINGS, "at a port of HTTPS"),
        ({"names": [{"host": "a.example.org"}]}, Settings(control_plane_namespace="x", allowed_images=(IMAGE,)), "egress.enabled"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_followed_is_refused_in_words(egress, settings, word):
    refused = merged(template(**egress), settings=settings)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.TEMPLATE_INVALID
    assert word in refused.message


def test_a_sandbox_narrows_its_template_and_keeps_its_secrets():
    spec = template(names=[{"host": "*.example.com"}], credentials=[TOKEN], allow=[{"cidr": "192.0.2.0/24"}])
    found = merged(spec, Egress(names=(EgressName("api.example.com"),)))
    assert isinstance(found, Effective)
    assert (found.egress.names, found.egress.allow) == ((EgressName("api.example.com"),), ())
    assert found.egress.credentials == spec.egress.credentials != ()
    assert found.own_egress
    # Of the same addresses: its template's policy stays.
    same = merged(spec, Egress(allow=(EgressRule("192.0.2.0/24"),), names=(EgressName("api.example.com"),)))
    assert isinstance(same, Effective)
    assert not same.own_egress


def test_a_sandbox_names_methods_and_paths_where_its_pods_trust_the_egress_process():
    own = Egress(names=(EgressName("a.example.org", methods=("GET",)),))
    refused = merged(template(names=[{"host": "a.example.org"}]), own)
    assert isinstance(refused, Refusal)
    assert refused.message.startswith(
        "cannot allow egress to GET a.example.org by methods or paths: the template has neither"
    )
    found = merged(template(names=[{"host": "a.example.org", "paths": ["/*"]}]), replace(own, names=(
        EgressName("a.example.org", methods=("GET",), paths=("/v1/*",)),
    )))  # fmt: skip
    assert isinstance(found, Effective)
    assert lists.ends_tls(found.egress, lists.names_of(found.egress, SETS))
    plain = template(names=[{"host": "a.example.org"}]).egress
    assert not lists.ends_tls(plain, lists.names_of(plain, SETS))


def test_an_inline_template_names_methods_within_the_installations_list():
    settings = replace(SETTINGS, inline=template(names=[{"host": "*.example.org"}]))
    inline = replace(settings.inline, egress=Egress(names=(EgressName("a.example.org", methods=("GET",)),)))
    found = effective(None, SandboxSpec(template="", inline=inline), settings)
    assert isinstance(found, Effective), found
    assert lists.ends_tls(found.egress, lists.names_of(found.egress, SETS))


@pytest.mark.parametrize(("part", "value"), [("methods", ["get"]), ("paths", ["/v1*"]), ("paths", ["/../x"])])
def test_methods_and_paths_that_mean_nothing_are_refused(part, value):
    refused = merged(template(names=[{"host": "a.example.org", part: value}]))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.TEMPLATE_INVALID


def test_a_sandbox_that_lists_more_is_refused():
    refused = merged(template(names=[{"host": "a.example.org"}]), Egress(names=(EgressName("b.example.org"),)))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.EGRESS_NOT_ALLOWED
    assert refused.message == "cannot allow egress to b.example.org: the template does not allow it"


def test_a_brokered_sandbox_reaches_no_host():
    spec = template(("Autonomous", "Brokered"), names=[{"host": "a.example.org"}])
    found = merged(spec, contract=Contract.BROKERED)
    assert isinstance(found, Effective)
    assert found.egress == Egress()
    assert isinstance(merged(spec, Egress(names=(EgressName("a.example.org"),)), contract=Contract.BROKERED), Refusal)


def test_a_placeholder_is_the_templates_and_names_no_secret():
    one = EgressCredential(host="api.example.com", secret="api", key="token", env="TOKEN")
    assert lists.placeholder("team/a", one) == lists.placeholder("team/a", one) != lists.placeholder("team/b", one)
    assert lists.placeholders("team/a", Egress(credentials=(one,))) == {"TOKEN": lists.placeholder("team/a", one)}


def test_a_set_of_the_settings_that_is_no_list_of_hosts_is_refused():
    with pytest.raises(FleetError, match="stands no port"):
        EgressByName(sets={"python": ("https://example.org",)})
