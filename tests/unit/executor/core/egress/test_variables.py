"""The variables by which programs find the proxy."""

from sandfleet_executor.core.egress.variables import variables


def test_java_keeps_its_options_and_finds_the_proxy_by_others():
    found = variables("-Xmx1g -ea")["JAVA_TOOL_OPTIONS"]
    assert found.startswith("-Xmx1g -ea -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.")
    assert variables()["JAVA_TOOL_OPTIONS"].startswith("-Dhttp.proxyHost=127.0.0.1 ")
