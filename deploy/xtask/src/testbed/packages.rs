//! The parts of a real node, and promtool: unpacked from the system's packages, nothing is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use testkit::{node_parts_name, promtool_name};

use crate::{cache, golang, report};

/// The runtime and what it needs; libraries only where their program is not found on every system.
const PROGRAMS: &[&str] =
    &["containerd", "runc", "containernetworking-plugins", "busybox-static", "nftables", "iproute2"];
/// Libraries of those programs that a minimal system lacks; names differ between releases, so each is optional. And the one by which
/// tests give a program a clock that is wrong.
const LIBRARIES: &[&str] = &[
    "libfaketime",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libedit2",
    "libxtables12",
    "libseccomp2",
    "libbpf1",
    "libelf1",
    "libelf1t64",
    "libbsd0",
    "libmd0",
    "libcap2",
    "libtirpc3",
    "libtirpc3t64",
];

/// Gets them where that is possible; where it is not, says so and leaves it: fake nodes do then.
pub fn node_parts() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let name = node_parts_name();
    let made = cache::once(&name, |folder| {
        println!("    {name}: containerd, runc and others, unpacked from this system's packages");
        get(folder)
    });
    if let Err(error) = made {
        println!("    no real node on this machine, fake ones instead: {error:#}");
    }
    Ok(())
}

/// Gets it where that is possible; where it is not, says so: the rules are tested without it, too.
pub fn promtool() {
    let name = promtool_name();
    let made = cache::once(&name, |folder| {
        println!("    {name}: unpacked from this system's package of Prometheus");
        let whole = folder.join("whole");
        unpack(&["prometheus"], &[], &whole)?;
        fs::rename(whole.join("usr/bin/promtool"), folder.join("promtool"))?;
        Ok(fs::remove_dir_all(whole)?)
    });
    if let Err(error) = made {
        println!("    no promtool on this machine: {error:#}");
    }
}

fn get(folder: &Path) -> Result<()> {
    unpack(PROGRAMS, LIBRARIES, folder)?;
    let busybox = ["bin/busybox", "usr/bin/busybox"]
        .into_iter()
        .map(|path| folder.join(path))
        .find(|path| path.exists());
    let Some(busybox) = busybox else { bail!("the package busybox-static holds no busybox") };
    fs::copy(busybox, folder.join("busybox")).context("cannot copy busybox")?;
    golang::build_static("pause", &folder.join("pause"))
}

/// Unpacks packages into a folder, and those of others that this release of the system has.
fn unpack(packages: &[&str], if_known: &[&str], folder: &Path) -> Result<()> {
    for program in ["apt-get", "dpkg-deb"] {
        let found =
            Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
        ensure!(found, "{program} is missing, and only packages of Debian and its kin are known here");
    }
    let downloaded = folder.join("packages");
    fs::create_dir_all(&downloaded)?;
    if download(&downloaded, packages).is_err() {
        report::output(Command::new("apt-get").args(["update", "-qq"]))
            .context("the list of packages is too old")?;
        download(&downloaded, packages)?;
    }
    for package in if_known {
        // A name that this release does not have belongs to another one.
        let _ = download(&downloaded, &[package]);
    }
    for package in fs::read_dir(&downloaded)? {
        report::output(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(folder))?;
    }
    Ok(fs::remove_dir_all(&downloaded)?)
}

fn download(to: &Path, packages: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.current_dir(to).args(["download", "-qq", "-o", "APT::Sandbox::User=root"]).args(packages);
    report::output(&mut command).map(|_| ())
}
