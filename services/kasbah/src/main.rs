//! The kasbah binary.

/// A gateway of ten thousand tunnels spends a quarter of a reconnection on memory with glibc's (decision 0021).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    kasbah::main()
}
