# One static program and a user: no C library, no shell where programs look for one, no folders.
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS builder
RUN apt-get update && apt-get install -y --no-install-recommends busybox-static \
 && mkdir -p /root-of/bin /root-of/etc /root-of/home/app && cp /bin/busybox /root-of/bin/ \
 && printf 'app:x:1234:1234::/home/app:/bin/busybox\n' > /root-of/etc/passwd && chown 1234 /root-of/home/app
FROM scratch
COPY --from=builder /root-of /
USER 1234
ENV HOME=/home/app COLOUR=green
