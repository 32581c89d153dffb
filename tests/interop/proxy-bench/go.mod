module credbroker.io/tests/interop/proxy-bench

go 1.25.0
