//! What processes use, by the kernel's word.

use std::time::Duration;

use anyhow::Context as _;

/// Clock ticks a second, as the kernel counts processor time for its files.
const TICKS: u64 = 100;

/// Resident memory of some processes together, in bytes.
pub fn resident(pids: &[u32]) -> anyhow::Result<u64> {
    let of = |pid: &u32| testkit::memory_of(*pid, "VmRSS:").context("a process tells no memory");
    pids.iter().map(of).sum()
}

/// Processor time of some processes together.
pub fn processor_time(pids: &[u32]) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold blanks.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let user_and_system = fields.split_whitespace().skip(11).take(2);
        for field in user_and_system {
            ticks += field.parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}
