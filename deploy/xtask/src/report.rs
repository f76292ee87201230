//! What is said while something runs: a header a step, its duration, a line that moves where there is a terminal.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a line is written where none can be overwritten.
const QUIET: Duration = Duration::from_secs(30);
/// With fewer bytes free, a build may fail for want of room: what it was writing is away by the time that one looks.
const LITTLE_ROOM: u64 = 2 * 1024 * 1024 * 1024;

/// The root of the checkout.
pub fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent).context("this program is not in a checkout")?;
    Ok(root.to_owned())
}

/// Says what begins, does it, and says how long it took.
pub fn step<T>(title: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {title}");
    let start = Instant::now();
    let outcome = work();
    match &outcome {
        Ok(_) => println!("    done in {}", spent(start.elapsed())),
        Err(_) => {
            println!("    FAILED after {}: {title}", spent(start.elapsed()));
            if let Some(words) = bytes_free().ok().and_then(want_of_room) {
                println!("    {words}");
            }
        }
    }
    outcome
}

/// On the disk of the checkout.
fn bytes_free() -> Result<u64> {
    let of = rustix::fs::statvfs(root()?)?;
    Ok(of.f_bavail.saturating_mul(of.f_frsize))
}

/// A linker says of a full disk that it ended by a bus error.
fn want_of_room(bytes_free: u64) -> Option<String> {
    (bytes_free < LITTLE_ROOM).then(|| {
        let megabytes = bytes_free / 1_000_000;
        format!("only {megabytes} MB are free on the disk of this checkout, which may be why: make room and try again")
    })
}

/// Runs a program with its output shown; a code other than 0 is an error that names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{} ended: {status}", line(command));
    }
    Ok(())
}

/// Runs a program in the place of this one: its exit code is ours.
pub fn hand_over(prepared: Result<Command>) -> ExitCode {
    match prepared.and_then(|mut command| Ok(command.status()?)) {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a program quietly and gives its output; on failure the error holds what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended: {}\n{}", line(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program that writes a line for each thing that it finishes, and shows their count and the time spent.
/// On failure the error holds its last lines.
pub fn counted(command: &mut Command, what: &str, noun: &str, total: Option<usize>) -> Result<()> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let stderr = child.stderr.take().context("no standard error")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let terminal = std::io::stdout().is_terminal();
    let (mut count, mut said, mut shown) = (0, Vec::new(), Instant::now());
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                count += 1;
                said.push(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if shown.elapsed() >= if terminal { Duration::from_millis(200) } else { QUIET } {
            shown = Instant::now();
            let of = total.map_or_else(String::new, |total| format!(" of at most {total}"));
            let text = format!("    {what}: {count}{of} {noun}, {}", spent(start.elapsed()));
            if terminal {
                print!("\r{text}\x1b[K")
            } else {
                println!("{text}")
            }
            std::io::stdout().flush()?;
        }
    }
    if terminal {
        print!("\r\x1b[K");
    }
    let status = child.wait().context("cannot wait for a program")?;
    if !status.success() {
        let tail = said.get(said.len().saturating_sub(25)..).unwrap_or_default().join("\n");
        bail!("{} ended: {status}\n{tail}", line(command));
    }
    println!("    {what}: {}", spent(start.elapsed()));
    Ok(())
}

/// `1 min 5 s`, `12.3 s`.
pub fn spent(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 60 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let words: Vec<String> =
        std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).collect();
    let text = words.join(" ");
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("`{}...`", text.get(..end).unwrap_or_default()),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(spent(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(spent(Duration::from_secs(65)), "1 min 5 s");
    }

    #[test]
    fn a_failed_program_is_named_with_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo wrong >&2; exit 3"]);
        let error = output(&mut command).unwrap_err().to_string();
        assert!(
            error.contains("`sh -c") && error.contains("exit status: 3") && error.contains("wrong"),
            "{error}"
        );
        assert!(counted(&mut command, "test", "lines", None).unwrap_err().to_string().contains("wrong"));
    }

    #[test]
    fn a_full_disk_is_named_and_one_with_room_is_not() {
        assert_eq!(want_of_room(LITTLE_ROOM), None);
        assert!(want_of_room(12_345_678).unwrap().starts_with("only 12 MB are free"));
        assert!(bytes_free().unwrap() > 0);
    }
}
