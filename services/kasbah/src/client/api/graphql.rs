//! GraphQL, which is beside the versioned routes: an answer may hold data and errors at once.

use reqwest::header::ACCEPT;
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;

use super::{ANSWER_TIMEOUT, Api, Lines, root_cause};
use crate::client::failure::Failure;

impl Api {
    /// Asks a query; gives the answer, data and errors.
    ///
    /// # Errors
    /// When the server cannot be asked, or does not let the caller in.
    pub async fn graphql(&self, body: &Value) -> Result<Value, Failure> {
        let response =
            self.executed(self.http.post(self.graphql_url()).timeout(ANSWER_TIMEOUT).json(body)).await?;
        self.document(response).await
    }

    /// Follows a subscription: the lines of its events, or the answer of a server that refuses it.
    ///
    /// # Errors
    /// When the server cannot be asked, or does not let the caller in.
    pub async fn graphql_events(&self, body: &Value) -> Result<Result<Lines, Value>, Failure> {
        let request = self.http.post(self.graphql_url()).header(ACCEPT, "text/event-stream").json(body);
        let response = self.executed(request).await?;
        if response.status() == StatusCode::OK {
            let (world, server) = (self.world.clone(), self.server.clone());
            return Ok(Ok(Lines { response, buffer: Vec::new(), server, world }));
        }
        self.document(response).await.map(Err)
    }

    /// The response to a request that GraphQL answers; a refusal before that is an error.
    async fn executed(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.failure(&error))?;
        match response.status() {
            StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::TOO_MANY_REQUESTS => Ok(response),
            _ => Err(self.refused(response).await),
        }
    }

    async fn document(&self, response: Response) -> Result<Value, Failure> {
        let bytes = response.bytes().await;
        let bytes = bytes.map_err(|error| Failure::Broken {
            server: self.server.clone(),
            detail: format!("ended the connection: {}", root_cause(&error)),
        })?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(error.to_string()))
    }

    fn graphql_url(&self) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop().push("graphql");
        }
        url
    }
}
