//! One request to the API server.

use bytes::Bytes;
use events::configuration::ServiceAccount;
use http::{HeaderValue, Method, Request, StatusCode, header};

use super::status::ApiError;
use crate::FIELD_MANAGER;

/// As the API server's audit log names the agent.
const USER_AGENT: &str = concat!("kasbah-agent/", env!("CARGO_PKG_VERSION"));

/// In which form the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// The whole.
    Whole,
    /// Metadata only.
    Metadata,
    /// A list of metadata.
    MetadataList,
    /// Aggregated discovery.
    Discovery,
}

impl Accept {
    const fn header(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Self::MetadataList => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Self::Discovery => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        }
    }
}

/// A request, cheap to send again.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    accept: Accept,
    body: Option<(&'static str, Bytes)>,
    impersonate: Option<ServiceAccount>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Body, whole.
    pub body: Bytes,
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// When it is not the JSON that was expected.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::Unreadable { detail: error.to_string() })
    }
}

/// How a server-side apply is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyMode {
    /// Only say what would happen.
    pub dry_run: bool,
    /// Take fields from other managers.
    pub force: bool,
}

impl Call {
    /// GET.
    #[must_use]
    pub const fn get(path: String) -> Self {
        Self { method: Method::GET, path, accept: Accept::Whole, body: None, impersonate: None }
    }

    /// Server-side apply of a JSON body.
    #[must_use]
    pub fn apply(path: &str, body: Bytes, mode: ApplyMode) -> Self {
        let ApplyMode { dry_run, force } = mode;
        let dry_run_query = if dry_run { "&dryRun=All" } else { "" };
        let path = format!(
            "{path}?fieldManager={FIELD_MANAGER}&force={force}&fieldValidation=Strict{dry_run_query}"
        );
        let accept = if dry_run { Accept::Metadata } else { Accept::Whole };
        Self {
            method: Method::PATCH,
            path,
            accept,
            body: Some(("application/apply-patch+yaml", body)),
            impersonate: None,
        }
    }

    /// Any other write.
    #[must_use]
    pub const fn write(method: Method, path: String, content_type: &'static str, body: Bytes) -> Self {
        Self { method, path, accept: Accept::Whole, body: Some((content_type, body)), impersonate: None }
    }

    /// Deletes one object, if it still has this UID; what it owns goes in the background.
    #[must_use]
    pub fn delete(path: String, uid: &str) -> Self {
        let body = serde_json::json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        });
        Self::write(Method::DELETE, path, "application/json", Bytes::from(body.to_string()))
    }

    /// As [`Call::delete`], if nobody changed the object since it had this resource version.
    #[must_use]
    pub fn delete_version(path: String, uid: &str, version: &str) -> Self {
        let body = serde_json::json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid, "resourceVersion": version},
            "propagationPolicy": "Background",
        });
        Self::write(Method::DELETE, path, "application/json", Bytes::from(body.to_string()))
    }

    /// Asks for another form of answer.
    #[must_use]
    pub const fn accept(mut self, accept: Accept) -> Self {
        self.accept = accept;
        self
    }

    /// Sends it as a service account.
    #[must_use]
    pub fn as_account(mut self, account: Option<&ServiceAccount>) -> Self {
        self.impersonate = account.cloned();
        self
    }

    /// Whether it only looks.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.method == Method::GET
    }

    /// Whether it changes the cluster; a dry run does not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.path.contains("dryRun=All")
    }

    /// The path, for logs.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn request(&self) -> Result<Request<Bytes>, ApiError> {
        let impossible = |error: http::Error| ApiError::Impossible { detail: error.to_string() };
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
            .header(header::ACCEPT, HeaderValue::from_static(self.accept.header()));
        if let Some(account) = &self.impersonate {
            let user = format!("system:serviceaccount:{}:{}", account.namespace, account.name);
            request = request.header("impersonate-user", user);
        }
        let body = match &self.body {
            Some((content_type, body)) => {
                request = request.header(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
                body.clone()
            }
            None => Bytes::new(),
        };
        request.body(body).map_err(impossible)
    }
}
