# The server and its command line in a slim image.
#
#   docker build --tag seenset .
#   docker run --publish 127.0.0.1:9090:9090 --volume seenset-data:/data --stop-timeout 90 seenset

# cargo-chef compiles the dependencies of the workspace without its sources, so that their layer
# stays until a manifest changes. It runs for a second: an optimised build would take longer.
FROM rust:1.95-bookworm AS chef
RUN cargo install --quiet --debug --locked --version 0.1.78 cargo-chef
WORKDIR /build

# The recipe holds all manifests, the lock file, and the names of their targets.
FROM chef AS recipe
COPY . .
RUN cargo chef prepare --recipe-path recipe.json

FROM chef AS dependencies
COPY --from=recipe /build/recipe.json recipe.json
RUN cargo chef cook --release --locked --bins \
        --package seenset-server --package seenset-cli

FROM dependencies AS build
COPY . .
RUN cargo build --release --locked --bins --package seenset-server --package seenset-cli

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="seenset" \
    org.opencontainers.image.description="A networked deduplication service" \
    org.opencontainers.image.licenses="Apache-2.0"
# The id is fixed so that a volume keeps its owner from one image to the next, and a number
# so that whoever runs the image can see that it is not root's.
RUN groupadd --gid 10001 seenset \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home \
        --shell /usr/sbin/nologin seenset \
    && install --directory --owner 10001 --group 10001 --mode 0750 /data
COPY --from=build /build/target/release/seenset-server /build/target/release/seenset \
    /usr/local/bin/
USER 10001:10001
# A container's loopback is its own: who may reach the port is decided where it is published.
ENV SEENSET_LISTEN=0.0.0.0:9090 \
    SEENSET_DATA_DIR=/data
VOLUME /data
EXPOSE 9090
# Calls in flight finish and a last snapshot is written, for which the ten seconds that
# Docker waits may be too few: see stop_grace_period in docker-compose.yml.
STOPSIGNAL SIGTERM
# Asks 127.0.0.1:9090. Whoever moves the port also sets SEENSET_SERVER.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["seenset", "health", "--timeout", "4s"]
ENTRYPOINT ["seenset-server"]
