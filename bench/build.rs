//! Compiles the calls into DPDK, where the feature `dpdk` asks for them; otherwise there is nothing to do.

fn main() {
    println!("cargo:rerun-if-changed=src/peer/acl.c");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    // Only its flags: all of its libraries would be linked, some hundred.
    let found = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version("22.11")
        .probe("libdpdk");
    let dpdk = match found {
        Ok(dpdk) => dpdk,
        Err(error) => panic!("the feature `dpdk` needs Debian's libdpdk-dev: {error}"),
    };
    cc::Build::new()
        .file("src/peer/acl.c")
        .includes(dpdk.include_paths)
        .flag("-include")
        .flag("rte_config.h")
        .flag("-march=corei7")
        .opt_level(3)
        .compile("pktjit_bench_acl");
    for library in ["rte_acl", "rte_eal"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
