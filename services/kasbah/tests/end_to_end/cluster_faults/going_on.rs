//! What somebody has open at the faulty agent: a watch, an upload and a session.

use std::convert::Infallible;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt as _, TryStreamExt as _};
use reqwest::{Method, Response, Upgraded};
use serde_json::json;
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::stage::{Asker, HANGS, Stage, Told, answered, told};
use crate::scene::LIMIT;

/// Label of what watches were told of.
pub const TOLD: &str = "told";

/// All of it, by one person at one gateway.
pub struct GoingOn {
    watch: Response,
    session: Upgraded,
    uploading: mpsc::Sender<Result<Bytes, Infallible>>,
    uploaded: JoinHandle<Result<Told>>,
}

/// How a body ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    InOrder,
    BrokenOff,
}

impl GoingOn {
    pub async fn begin(stage: &Stage, asker: &Asker) -> Self {
        let watch = asker.open(&format!("{}?watch=true&timeoutSeconds=3600", stage.maps())).await.unwrap();
        assert_eq!(watch.status(), 200, "the watch");
        let session = asker.session(&stage.pod("echo", "exec?command=cat")).await.unwrap();
        let (uploading, pieces) = mpsc::channel(1);
        let request = asker.request(Method::POST, &stage.fault("upload"));
        let request = request.body(reqwest::Body::wrap_stream(pieces.into_stream()));
        let uploaded = tokio::spawn(async move { told(answered(request).await?).await });
        let mut all = Self { watch, session, uploading, uploaded };
        all.goes_on(stage, "begun").await.unwrap();
        all
    }

    /// Each still carries something.
    pub async fn goes_on(&mut self, stage: &Stage, word: &str) -> Result<()> {
        let going_on = async {
            self.session.write_all(word.as_bytes()).await?;
            let mut echo = vec![0; word.len()];
            self.session.read_exact(&mut echo).await.context("no echo")?;
            ensure!(echo == word.as_bytes(), "another echo");
            let received = stage.front.received();
            self.uploading.send(Ok(Bytes::from(word.to_owned()))).await.context("nobody takes the upload")?;
            eventually(LIMIT, || async {
                let now = stage.front.received();
                ensure!(now >= received + word.len() as u64, "{now} bytes after {received}");
                Ok(())
            })
            .await;
            self.watch_tells(stage, word).await
        };
        tokio::time::timeout(HANGS, going_on).await.context("hangs")?
    }

    async fn watch_tells(&mut self, stage: &Stage, word: &str) -> Result<()> {
        let name = format!("told-{}-{word}", world::World::real().new_uuid());
        let metadata = json!({"name": name, "labels": {TOLD: "yes"}});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        stage.scene.cluster.create_object(&stage.maps(), &map).await?;
        let mut text = String::new();
        while !text.contains(&name) {
            let piece = self.watch.chunk().await?.context("the watch ended")?;
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        Ok(())
    }

    /// Waits until each has ended, and says how the watch did. An upload never ends as if it had come whole.
    pub async fn ends(mut self) -> Ending {
        let ending = async {
            let watch = loop {
                match self.watch.chunk().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ending::InOrder,
                    Err(_) => break Ending::BrokenOff,
                }
            };
            let mut rest = Vec::new();
            // However a session ends, it ends.
            drop(self.session.read_to_end(&mut rest).await);
            let uploaded = self.uploaded.await.unwrap();
            assert!(!uploaded.as_ref().is_ok_and(|told| told.code == 201), "half an upload was taken");
            watch
        };
        tokio::time::timeout(HANGS, ending).await.expect("everything ends")
    }
}
