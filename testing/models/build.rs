//! Compiles the server's files with loom's types, in this package alone.

fn main() {
    println!("cargo::rustc-cfg=loom");
}
