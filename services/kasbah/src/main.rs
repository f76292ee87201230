//! The kasbah binary.

fn main() -> std::process::ExitCode {
    kasbah::main()
}
