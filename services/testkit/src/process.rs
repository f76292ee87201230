//! Child processes that never outlive the process that started them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// A running program whose output goes to a log file. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard output and error appended to `log`.
    ///
    /// The program gets a process group of its own (so that Ctrl-C on a terminal reaches only the starter) and is
    /// killed by the kernel when this process ends, however it ends. `env_clear` on the command is not carried over.
    pub fn spawn(name: &str, command: Command, log: &Path) -> Result<Self> {
        let file = open_log(log)?;
        let copy = file.try_clone().context("cannot share the log file")?;
        let mut command = bound_to_this_process(command);
        command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0);
        let child = spawn_from_lasting_thread(command).with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log file that holds its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal; a process that has ended already is no error.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none()
            && let Some(pid) = self.raw_pid()
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGTERM; gives how it ended, or kills it and fails when `grace` was not enough.
    pub fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        match self.wait(grace)? {
            Some(status) => Ok(status),
            None => {
                self.kill();
                Err(anyhow!("{} did not end within {grace:?} of SIGTERM and was killed", self.name))
            }
        }
    }

    /// Waits for its end, at most `limit`; `None` when it still runs.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.exited() {
            return Ok(Some(status));
        }
        let pid = self.raw_pid().context("a process without an id")?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the process")?;
        let timeout = Timespec::try_from(limit).context("a wait too long for the kernel")?;
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).context("cannot wait for the process")?;
        Ok(self.exited())
    }

    /// Fails with the end of its log when it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.exited() {
            None => Ok(()),
            Some(status) => Err(anyhow!("{} ended: {status}\n{}", self.name, self.log_tail(15))),
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// Resident memory in bytes, where the kernel tells it.
    pub fn resident_memory(&self) -> Option<u64> {
        memory_of(self.pid(), "VmRSS:")
    }

    fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A line of `/proc/<pid>/status` that counts memory (proc_pid_status(5)), in bytes.
pub fn memory_of(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_log(path: &Path) -> Result<File> {
    let open = OpenOptions::new().create(true).append(true).open(path);
    open.with_context(|| format!("cannot open {}", path.display()))
}

/// The same command behind `setpriv --pdeathsig`, which asks the kernel to kill it when its parent ends.
/// Where that program is missing (it is in util-linux), the command runs as it is.
fn bound_to_this_process(command: Command) -> Command {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(|| {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", "KILL", "--", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    if !*AVAILABLE {
        return command;
    }
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

type Request = (Command, Sender<io::Result<Child>>);

/// The kernel's "parent ended" means the parent *thread*, and threads of a runtime's pool end when idle. So one thread
/// that lasts as long as the process does all the starting.
fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    static STARTER: LazyLock<Sender<Request>> = LazyLock::new(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, answer) = channel();
    STARTER.send((command, reply)).map_err(|_| anyhow!("the starting thread has ended"))?;
    Ok(answer.recv().context("the starting thread gave no answer")??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    fn sleeper(folder: &Folder) -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::spawn("sleep", command, &folder.path().join("log")).unwrap()
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let folder = Folder::temporary().unwrap();
        let process = sleeper(&folder);
        let proc = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(proc.exists());
        drop(process);
        assert!(!proc.exists());
    }

    #[test]
    fn terminate_tells_how_it_ended() {
        let folder = Folder::temporary().unwrap();
        let mut process = sleeper(&folder);
        assert!(process.wait(Duration::ZERO).unwrap().is_none());
        let status = process.terminate(Duration::from_secs(20)).unwrap();
        assert!(!status.success());
        assert!(process.must_run().unwrap_err().to_string().contains("sleep ended"));
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let folder = Folder::temporary().unwrap();
        let mut process = std::thread::scope(|scope| scope.spawn(|| sleeper(&folder)).join().unwrap());
        assert!(process.wait(Duration::from_millis(200)).unwrap().is_none());
    }

    const HELPER: &str = "KASBAH_TESTKIT_HELPER";

    /// The other half of the next test: runs in a process of its own, starts a child, tells its id, and waits.
    #[tokio::test]
    async fn helper_that_gets_killed() {
        let Ok(place) = std::env::var(HELPER) else { return };
        let folder = Folder::kept(Path::new(&place)).unwrap();
        let mut process = sleeper(&folder);
        // Until `setpriv` has become the program, the kernel may not know yet with whom it ends.
        let line = PathBuf::from(format!("/proc/{}/cmdline", process.pid()));
        crate::eventually(Duration::from_secs(30), || async {
            if fs::read(&line).unwrap_or_default().starts_with(b"sleep") { Ok(()) } else { Err("not begun") }
        })
        .await;
        fs::write(folder.path().join("unfinished"), process.pid().to_string()).unwrap();
        fs::rename(folder.path().join("unfinished"), folder.path().join("pid")).unwrap();
        process.wait(Duration::from_secs(600)).unwrap();
    }

    #[tokio::test]
    async fn a_child_ends_with_its_killed_starter() {
        let folder = Folder::temporary().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::tests::helper_that_gets_killed"]).env(HELPER, folder.path());
        let mut helper = Process::spawn("helper", command, &folder.path().join("helper.log")).unwrap();
        let path = folder.path().join("pid");
        let pid = crate::eventually(Duration::from_secs(30), || async { fs::read_to_string(&path) }).await;
        let child = PathBuf::from(format!("/proc/{pid}"));
        assert!(child.exists());
        helper.kill();
        crate::eventually(Duration::from_secs(30), || async {
            // A killed process stays visible until somebody collects it; then it has no command line any more.
            let line = fs::read(child.join("cmdline")).unwrap_or_default();
            if line.is_empty() { Ok(()) } else { Err("the child still runs") }
        })
        .await;
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = Folder::temporary().unwrap();
        let command = Command::new("/no/such/program");
        let mut outcome = Process::spawn("the program", command, &folder.path().join("log"));
        if let Ok(process) = &mut outcome {
            let status = process.wait(Duration::from_secs(20)).unwrap();
            assert!(status.is_some_and(|status| !status.success()), "{}", process.log_tail(5));
        }
    }
}
