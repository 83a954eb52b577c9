# The environment of a coding task: Debian, a Python of its own, a repository at /testbed, and variables that would take
# over whatever of the executor reads them.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN mkdir /testbed && printf 'def double(number):\n    return number + number\n' > /testbed/task.py \
 && printf 'from task import double\nassert double(2) == 4\nprint("passed")\n' > /testbed/test_task.py \
 && useradd --create-home --uid 4321 dev \
 && printf 'raise SystemExit("the image ran this")\n' > /testbed/sitecustomize.py \
 && install -m 4755 /usr/bin/id /usr/local/bin/as-root
ENV GREETING="hello task" PYTHONPATH=/testbed PYTHONHOME=/nowhere LD_LIBRARY_PATH=/testbed/lib LD_PRELOAD=/testbed/lib/evil.so \
    LD_AUDIT=/testbed/lib/evil.so SANDFLEET_USER_TOKEN=forged
WORKDIR /testbed
ENTRYPOINT ["/no/such/program"]
