//! Bodies that are too large for a frame: nobody keeps them, so they are read again.

use events::Sha256;
use objects::observed::observe_text;

use super::Observer;
use crate::kubernetes::{ApiError, Call, path};

impl Observer {
    /// The body of an object that was reported, by its digest; `None`: it is another one by now, it was not reported, or the API server refuses
    /// it for good.
    ///
    /// # Errors
    /// When the API server does not give it now, and may later.
    pub async fn body(&self, digest: &Sha256) -> Result<Option<String>, ApiError> {
        let Some(identity) = self.outbox.large(digest) else { return Ok(None) };
        let Some(resource) = self.shared.discovery.kinds().find(&identity) else { return Ok(None) };
        let Some(path) = path::object(&resource, &identity.namespace, &identity.name) else {
            return Ok(None);
        };
        let object = match self.shared.kube.look(&Call::get(path)).await {
            Ok(answer) => answer.body,
            // The asker would ask for ever. An account that is not known now is known again soon.
            Err(error) if !error.is_transient() && error.code() != 401 => return Ok(None),
            Err(error) => return Err(error),
        };
        let observed = observe_text(&object, &identity.api_version(), &identity.kind)
            .map_err(|error| ApiError::Unreadable { detail: error.to_string() })?;
        Ok((observed.digest == *digest).then_some(observed.body))
    }
}
