//! No object goes because its file cannot be read any more: what the last good bundle had of such files is compared.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use events::bundle::{BundleEntry, BundlePage, BundleRoot};
use events::{BlobDigest, OrganizationId};
use store::BlobError;

use super::Poller;
use crate::bundle::{Built, Outcome, RefBuild, SourcesByRules};

/// The last good bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LastBundleError {
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error("bundle cannot be decoded")]
    Decode(#[from] events::DecodeError),
}

impl Poller {
    /// Rejects what would take an object away only because a link, which is not followed, stands where its file was.
    pub(super) async fn refuse_losses(
        &self,
        organization: OrganizationId,
        build: &RefBuild,
        sources: &SourcesByRules,
        built: &mut Built,
    ) -> Result<(), LastBundleError> {
        let mut known: BTreeMap<BlobDigest, Vec<BundleEntry>> = BTreeMap::new();
        for (rules, sources) in sources {
            let Some(with) = build.with(rules).filter(|with| with.leaves_out()) else { continue };
            for (source, _) in sources {
                let Some(good) = self.fold.read(|state| state.good(*source)) else { continue };
                let last = match known.entry(good) {
                    Entry::Occupied(last) => last.into_mut(),
                    Entry::Vacant(last) => last.insert(self.entries(organization, good).await?),
                };
                let findings = with.lost(last);
                let outcome = built.outcomes.iter_mut().find(|(id, ..)| id == source);
                if let Some((.., outcome)) = outcome.filter(|_| !findings.is_empty())
                    && let Outcome::Bundle { warnings, .. } = outcome
                {
                    *outcome = Outcome::rejected(findings, std::mem::take(warnings));
                }
            }
        }
        Ok(())
    }

    /// All objects of a bundle.
    async fn entries(
        &self,
        organization: OrganizationId,
        bundle: BlobDigest,
    ) -> Result<Vec<BundleEntry>, LastBundleError> {
        let blobs = &self.deps.blobs;
        let addresses = blobs.addresses(organization).await?;
        let root: BundleRoot = events::decode(&blobs.get(organization, bundle).await?)?;
        let mut entries = Vec::new();
        for page in root.pages {
            let page: BundlePage = events::decode(&blobs.get(organization, addresses.of(page)).await?)?;
            entries.extend(page.entries);
        }
        Ok(entries)
    }
}
