//! The first organization, its owner, and the owner's token.

use std::path::Path;

use anyhow::Context;
use bus::Bus;
use world::World;
use zeroize::Zeroizing;

use super::settings::FirstStartArgs;
use crate::folder::TOKEN_FILE;

/// Makes sure that the owner's token in the folder lives. A file that is missing, or whose token is dead, is written anew; of
/// many replicas that share a log, the one that was there first has it.
pub(super) async fn ensure_owner(
    args: &FirstStartArgs,
    folder: &Path,
    shared: bool,
    world: &World,
    bus: &dyn Bus,
) -> anyhow::Result<()> {
    let path = folder.join(TOKEN_FILE);
    let old = match world.disk.read(&path) {
        Ok(bytes) => Some(Zeroizing::new(String::from_utf8_lossy(&Zeroizing::new(bytes)).trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let token = old.as_ref().map(|token| token.as_str());
    let shared = shared && !args.new_owner_token;
    let token = token.filter(|_| !args.new_owner_token);
    let first = authz::ensure_owner(bus, world, &args.organization, &args.owner, token, shared).await;
    let first = first.context("cannot create the first owner")?;
    if let Some(token) = first.token {
        let line = Zeroizing::new(format!("{}\n", token.secret));
        world
            .disk
            .replace(&path, line.as_bytes(), true)
            .with_context(|| format!("cannot write {}", path.display()))?;
        tracing::info!(file = %path.display(), organization = args.organization, owner = args.owner, "owner's token written");
    }
    Ok(())
}
