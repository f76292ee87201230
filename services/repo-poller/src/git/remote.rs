//! Git's protocol, version 2, over HTTP: which commits refs name, and packs of what is missing here.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use events::repository::FetchFailure;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::git::http::{HttpClient, SILENCE_TIMEOUT};
use crate::git::location::RemoteUrl;
use crate::git::packet::{self, Packet, PacketReader};
use crate::git::{GitError, ObjectId, parse_id};

const ADVERTISEMENT: &str = "/info/refs?service=git-upload-pack";
const AGENT: &str = concat!("kasbah/", env!("CARGO_PKG_VERSION"));
/// Largest answer to anything but a fetch, in bytes.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;
/// How long one pack may take, however slowly it drips.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Redirects that are followed on the same host.
const REDIRECTS: usize = 3;

/// The message of a transfer that ended because nobody takes the pack any more.
pub(super) const NOT_TAKEN: &str = "the pack cannot be stored";

/// A credential, for one host only.
pub struct Login {
    header: HeaderValue,
}

impl Login {
    /// Out of `user:secret`.
    ///
    /// # Errors
    /// When the bytes cannot be sent as a header.
    pub fn new(user_and_secret: &[u8]) -> Result<Self, GitError> {
        let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(user_and_secret));
        let mut header = HeaderValue::from_str(&format!("Basic {}", *encoded))
            .map_err(|_| GitError::refused("the credential cannot be sent as a header"))?;
        header.set_sensitive(true);
        Ok(Self { header })
    }
}

/// A repository behind HTTP(S).
pub struct Remote {
    http: HttpClient,
    url: RemoteUrl,
    login: Option<Login>,
    /// What the server said it can do; asked once.
    capabilities: Option<Capabilities>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Capabilities {
    shallow: bool,
    filter: bool,
}

impl Remote {
    /// Talks to a repository. Whether it may be at that address, and without TLS, is asked before anything is sent to it.
    #[must_use]
    pub const fn new(http: HttpClient, url: RemoteUrl, login: Option<Login>) -> Self {
        Self { http, url, login, capabilities: None }
    }

    /// What full refs name now, tags peeled. Refs that do not exist are left out.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or makes no sense.
    pub async fn references(&mut self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError> {
        self.greet().await?;
        let mut body = Vec::new();
        command(&mut body, "ls-refs");
        packet::line(&mut body, "peel");
        for name in names {
            packet::line(&mut body, &format!("ref-prefix {name}"));
        }
        packet::flush(&mut body);
        let answer = self.post(body).await?;
        let answer = self.collect(answer).await?;
        let mut found = BTreeMap::new();
        for line in lines(&answer)? {
            let mut words = packet::text(&line)?.split(' ');
            let (Some(id), Some(name)) = (words.next().and_then(parse_id), words.next()) else { continue };
            let peeled = words.find_map(|word| word.strip_prefix("peeled:").and_then(parse_id));
            if names.iter().any(|wanted| wanted == name) {
                found.insert(name.to_owned(), peeled.unwrap_or(id));
            }
        }
        Ok(found)
    }

    /// Sends a pack with what `wants` need and `haves` lack into `sink`; history is cut behind each want.
    ///
    /// # Errors
    /// As [`Remote::references`]; also when the pack is larger than `limit` bytes.
    pub async fn fetch(
        &mut self,
        wants: &[ObjectId],
        haves: &[ObjectId],
        limit: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), GitError> {
        if !self.greet().await?.shallow {
            return Err(GitError::refused(
                "the server cannot send a commit without its history, which is needed",
            ));
        }
        let mut body = Vec::new();
        command(&mut body, "fetch");
        for option in ["thin-pack", "no-progress", "ofs-delta"] {
            packet::line(&mut body, option);
        }
        for have in haves {
            packet::line(&mut body, &format!("shallow {have}"));
        }
        packet::line(&mut body, "deepen 1");
        for want in wants {
            packet::line(&mut body, &format!("want {want}"));
        }
        for have in haves {
            packet::line(&mut body, &format!("have {have}"));
        }
        packet::line(&mut body, "done");
        packet::flush(&mut body);
        self.transfer(body, limit, sink).await
    }

    /// Sends a pack with all commits before `tips`, and nothing of what they hold, into `sink`.
    ///
    /// # Errors
    /// As [`Remote::fetch`]; `Refused` when the server cannot do that.
    pub async fn history(
        &mut self,
        tips: &[ObjectId],
        limit: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), GitError> {
        if !self.greet().await?.filter {
            return Err(GitError::refused(
                "the server cannot list commits; give all 40 digits of the commit's id",
            ));
        }
        let mut body = Vec::new();
        command(&mut body, "fetch");
        packet::line(&mut body, "no-progress");
        packet::line(&mut body, "filter tree:0");
        for tip in tips {
            packet::line(&mut body, &format!("want {tip}"));
        }
        packet::line(&mut body, "done");
        packet::flush(&mut body);
        self.transfer(body, limit, sink).await
    }

    async fn transfer(&self, body: Vec<u8>, limit: u64, sink: mpsc::Sender<Bytes>) -> Result<(), GitError> {
        let answer = self.post(body).await?;
        let received = self.http.within(TRANSFER_TIMEOUT, self.receive_pack(answer, limit, sink)).await;
        received.unwrap_or_else(|| Err(GitError::unreachable(format!("{} is too slow", self.url.authority))))
    }

    /// Asks what the server can do, once.
    async fn greet(&mut self) -> Result<Capabilities, GitError> {
        if let Some(known) = &self.capabilities {
            return Ok(known.clone());
        }
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS {
            let answer = self.exchange(&url, Method::GET, ADVERTISEMENT, Bytes::new()).await?;
            if answer.status().is_redirection() {
                let location =
                    answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
                url = url.redirected(location, ADVERTISEMENT)?;
                continue;
            }
            let answer = self.collect(answer).await?;
            let capabilities = capabilities(&answer)?;
            self.url = url;
            self.capabilities = Some(capabilities.clone());
            return Ok(capabilities);
        }
        Err(GitError::unreachable("the server redirects again and again"))
    }

    async fn post(&self, body: Vec<u8>) -> Result<Response<Incoming>, GitError> {
        let answer = self.exchange(&self.url, Method::POST, "/git-upload-pack", body.into()).await?;
        if answer.status().is_redirection() {
            return Err(GitError::unreachable("the server redirects a request that it accepted before"));
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        url: &RemoteUrl,
        method: Method,
        suffix: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, GitError> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(url.endpoint(suffix))
            .header(USER_AGENT, AGENT)
            .header("Git-Protocol", "version=2");
        if method == Method::POST {
            request = request
                .header(CONTENT_TYPE, "application/x-git-upload-pack-request")
                .header(ACCEPT, "application/x-git-upload-pack-result");
        }
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login.header.clone());
        }
        let request = request
            .body(Full::new(body))
            .map_err(|_| GitError::refused("the repository's URL is malformed"))?;
        let answer = self.http.send(request).await?;
        self.check(&answer).map(|()| answer)
    }

    fn check(&self, answer: &Response<Incoming>) -> Result<(), GitError> {
        let status = answer.status();
        let host = &self.url.authority;
        match status {
            _ if status.is_success() || status.is_redirection() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.login.is_some() => Err(GitError::new(
                FetchFailure::Unauthorized,
                format!("{host} refuses the credential ({status})"),
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(GitError::new(
                FetchFailure::Unauthorized,
                format!("{host} requires a credential ({status}); set one on the project"),
            )),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Err(GitError::not_found(format!("no such repository on {host}, or not with this credential")))
            }
            _ => Err(GitError::unreachable(format!("{host} answers {status}"))),
        }
    }

    async fn collect(&self, answer: Response<Incoming>) -> Result<Vec<u8>, GitError> {
        let mut body = answer.into_body();
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(&mut body).await? {
            if bytes.len() + chunk.len() > ANSWER_LIMIT {
                return Err(GitError::broken(format!(
                    "the server's list of refs is larger than {ANSWER_LIMIT} bytes"
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// The next bytes of a body.
    async fn chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, GitError> {
        let host = &self.url.authority;
        loop {
            match self.http.within(SILENCE_TIMEOUT, body.frame()).await {
                Some(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(None) => return Ok(None),
                Some(Some(Err(_))) => {
                    return Err(GitError::unreachable(format!("the connection to {host} broke")));
                }
                None => {
                    let silent = Duration::as_secs(&SILENCE_TIMEOUT);
                    return Err(GitError::unreachable(format!("{host} sent nothing for {silent} s")));
                }
            }
        }
    }

    async fn receive_pack(
        &self,
        answer: Response<Incoming>,
        limit: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), GitError> {
        let mut body = answer.into_body();
        let mut packets = PacketReader::default();
        let mut in_pack = false;
        let mut received = 0_u64;
        while let Some(chunk) = self.chunk(&mut body).await? {
            packets.push(&chunk);
            while let Some(packet) = packets.next_packet()? {
                let Packet::Data(data) = packet else {
                    if in_pack && packet == Packet::Flush {
                        return Ok(());
                    }
                    continue;
                };
                if !in_pack {
                    in_pack = packet::text(&data)? == "packfile";
                    continue;
                }
                match data.split_first() {
                    Some((1, _)) => {
                        received += data.len() as u64;
                        if received > limit {
                            return Err(GitError::broken(format!(
                                "the repository's pack is over {limit} bytes"
                            )));
                        }
                        if sink.send(data.slice(1..)).await.is_err() {
                            return Err(GitError::broken(NOT_TAKEN));
                        }
                    }
                    Some((3, message)) => return Err(packet::server_error(message)),
                    _ => {}
                }
            }
        }
        Err(GitError::unreachable("the server's answer ended before the pack did"))
    }
}

fn command(body: &mut Vec<u8>, name: &str) {
    packet::line(body, &format!("command={name}"));
    packet::line(body, &format!("agent={AGENT}"));
    packet::line(body, "object-format=sha1");
    packet::delimiter(body);
}

/// The contents of all lines of an answer.
fn lines(answer: &[u8]) -> Result<Vec<Bytes>, GitError> {
    let mut reader = PacketReader::default();
    reader.push(answer);
    let mut lines = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        if let Packet::Data(data) = packet {
            lines.push(data);
        }
    }
    Ok(lines)
}

fn capabilities(answer: &[u8]) -> Result<Capabilities, GitError> {
    let mut speaks_v2 = false;
    let mut capabilities = Capabilities::default();
    for line in lines(answer)? {
        let line = packet::text(&line)?;
        if line == "version 2" {
            speaks_v2 = true;
        } else if let Some(features) = line.strip_prefix("fetch=") {
            capabilities.shallow = features.split(' ').any(|feature| feature == "shallow");
            capabilities.filter = features.split(' ').any(|feature| feature == "filter");
        } else if let Some(format) = line.strip_prefix("object-format=")
            && format != "sha1"
        {
            return Err(GitError::refused(format!(
                "repositories with {format} object ids are not supported"
            )));
        }
    }
    if speaks_v2 {
        Ok(capabilities)
    } else {
        Err(GitError::refused("the server does not speak version 2 of Git's protocol, which is needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read() {
        let answer = |lines: &[&str]| {
            let mut bytes = Vec::new();
            packet::line(&mut bytes, "# service=git-upload-pack");
            packet::flush(&mut bytes);
            for line in lines {
                packet::line(&mut bytes, line);
            }
            packet::flush(&mut bytes);
            bytes
        };
        let good = answer(&["version 2", "agent=git/2", "fetch=shallow wait-for-done", "object-format=sha1"]);
        assert_eq!(capabilities(&good), Ok(Capabilities { shallow: true, filter: false }));
        let with_filter = answer(&["version 2", "fetch=shallow filter"]);
        assert_eq!(capabilities(&with_filter), Ok(Capabilities { shallow: true, filter: true }));
        assert_eq!(capabilities(&answer(&["version 2", "fetch"])), Ok(Capabilities::default()));
        let sha256 =
            capabilities(&answer(&["version 2", "object-format=sha256"])).expect_err("not supported");
        assert!(sha256.message.contains("sha256"));
        let old = answer(&["0000000000000000000000000000000000000000 HEAD\0multi_ack"]);
        assert!(capabilities(&old).expect_err("old").message.contains("version 2"));
        assert!(capabilities(b"<html>").is_err());
    }
}
