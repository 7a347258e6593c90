# Lists the commands.
default:
    @just --list

# A server on 127.0.0.1:9090.
run *flags:
    cargo run --release -p seenset-server -- {{ flags }}

# All tests in Rust.
test:
    cargo test --workspace

# Formatting and lints, as CI has them.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# The documentation of all packages.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# One benchmark: filter, service or restart.
bench name *words:
    cargo bench -p seenset-server --bench {{ name }} -- {{ words }}

# Fuzzes a target for some seconds.
fuzz target seconds="60":
    bash fuzz/run {{ target }} {{ seconds }}

# Everything that CI does.
ci:
    bash .ci/run
