//! The daemon's entry: one TLS provider before anything else, then the command line.

fn main() -> std::process::ExitCode {
    // A second install is refused, which only means that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    streaming_hub::cli::run(std::env::args_os())
}
