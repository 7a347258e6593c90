# The server and its command line in a slim image.
#
#   docker build --tag seenset .
#   docker run --publish 127.0.0.1:9090:9090 --volume seenset-data:/data --stop-timeout 90 seenset

# The dependencies, in a layer that stays as long as the manifests do.
FROM rust:1.95-bookworm AS dependencies
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY server/Cargo.toml server/
COPY server/src/filter/Cargo.toml server/src/filter/
COPY server/tests/history/Cargo.toml server/tests/history/
COPY server/tests/models/Cargo.toml server/tests/models/
COPY client/Cargo.toml client/
# Empty sources in the place of ours. The targets that a manifest lists by name would have to
# exist as well, so they are taken out of it: what is asked of the dependencies is the same.
# What became of the empty sources is removed, or Cargo would take it for newer than ours.
RUN sed -i '/^\[\[.*\]\]$/,/^$/d' server/Cargo.toml server/src/filter/Cargo.toml client/Cargo.toml \
        server/tests/models/Cargo.toml \
    && mkdir -p proto client/src \
    && touch proto/lib.rs server/src/lib.rs server/src/filter/lib.rs \
        server/tests/history/lib.rs server/tests/models/lib.rs client/src/lib.rs \
    && echo 'fn main() {}' > build.rs \
    && cargo build --release --locked --package seenset-server --package seenset-client \
    && cargo clean --release --package seenset-proto --package seenset-filter \
        --package seenset-server --package seenset-client

FROM dependencies AS build
COPY . .
RUN cargo build --release --locked --bins --package seenset-server --package seenset-client

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
