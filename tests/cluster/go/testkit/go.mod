module sandfleet.test/testkit

go 1.25.0
