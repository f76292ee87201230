//! The demo as a person runs it: its own suggestions, typed in another terminal; Ctrl-C; and again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::{Folder, Process, eventually};

const LIMIT: Duration = Duration::from_secs(240);

struct Demo<'a> {
    state: &'a Path,
    process: Process,
}

impl<'a> Demo<'a> {
    fn start(state: &'a Path, log: &str) -> Self {
        Self::start_with(state, log, &[])
    }

    fn start_with(state: &'a Path, log: &str, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("demo").arg("--state").arg(state).args(options);
        Self { state, process: Process::spawn("the demo", command, &state.join(log)).unwrap() }
    }

    /// Waits until some line has all these words.
    async fn says(&mut self, words: &[&str]) {
        eventually(LIMIT, || {
            let ended = self.process.exited();
            let said = std::fs::read_to_string(self.process.log()).unwrap();
            let found = said.lines().any(|line| words.iter().all(|word| line.contains(word)));
            async move {
                assert!(ended.is_none(), "ended with {ended:?}: {said}");
                if found { Ok(()) } else { Err(format!("no line with {words:?} in: {said}")) }
            }
        })
        .await;
    }

    /// What a person types in another terminal; gives what it prints.
    fn types(&self, line: &str) -> String {
        let script = format!("set -e; . '{}'; {line}", self.state.join("env").display());
        // Whatever goes wrong, nothing is done to the checkout that these tests are in.
        let output = Command::new("bash").args(["-c", &script]).current_dir(self.state).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{line}: {}", text(output.stderr));
        text(output.stdout)
    }

    /// Types it until what it prints has all these words: what the agent does is reported before it is observed.
    async fn shows(&self, line: &str, words: &[&str]) {
        eventually(LIMIT, || {
            let shown = self.types(line);
            let found = words.iter().all(|word| shown.contains(word));
            async move { if found { Ok(()) } else { Err(format!("{line}: no {words:?} in: {shown}")) } }
        })
        .await;
    }

    /// As [`Self::types`], in the clone of the configuration; what it changes is pushed.
    fn pushes(&self, change: &str, message: &str) {
        let person = "git -c user.name=demo -c user.email=demo@example.com";
        self.types(&format!("{change}; {person} commit -qam {message}; git push -q"));
    }

    fn end(mut self) {
        self.process.signal(Signal::INT);
        let status = self.process.wait(Duration::from_secs(60)).unwrap().expect("it ends");
        assert!(status.success(), "{status}: {}", self.process.log_tail(40));
    }
}

#[tokio::test]
async fn the_demo_on_a_real_node_does_what_it_suggests_and_goes_on_where_it_was() {
    let folder = Folder::temporary().unwrap();
    let mut demo = Demo::start(folder.path(), "first.out");
    for source in ["staging", "production"] {
        demo.says(&["sync finished", &format!("{source}: succeeded")]).await;
    }
    demo.says(&["the shop is up"]).await;
    demo.says(&["└── ReplicaSet storefront-"]).await;
    demo.shows("kasbah get deploy -n shop-staging", &[" storefront "]).await;
    demo.shows("kasbah why deploy/storefront -n shop-staging", &["nothing is wrong"]).await;
    let words = ["souk/shop", " staging ", " production ", "demo/shop-staging", "demo/shop-production"];
    demo.shows("kasbah env ls", &words).await;
    demo.shows("kasbah env show staging", &["demo/shop-staging"]).await;
    demo.shows("kasbah env tree staging", &["Deployment shop-staging/storefront"]).await;
    demo.pushes("sed -i 's/half price/free/' staging/storefront.yaml", "greeting");
    demo.says(&["object applied", "changed, ConfigMap shop-staging/storefront"]).await;
    demo.shows("kasbah history configmap/storefront -n shop-staging", &["changed"]).await;
    demo.types("kubectl -n shop-staging scale deployment search --replicas 3");
    demo.says(&["drift corrected", "Deployment shop-staging/search"]).await;
    demo.end();

    let mut demo = Demo::start(folder.path(), "second.out");
    demo.says(&["up after"]).await;
    demo.pushes("git rm -q staging/reviews.yaml", "reviews");
    demo.says(&["object pruned", "Deployment shop-staging/reviews"]).await;
    demo.pushes("sed -i 's/replicas: .*/replicas: many/' staging/stock.yaml", "stock");
    demo.shows("kasbah source show demo/staging", &["staging/stock.yaml:"]).await;
    demo.types("kasbah log verify");
    demo.end();
}

#[tokio::test]
async fn the_demo_with_three_of_each_service_tells_the_same_story() {
    let folder = Folder::temporary().unwrap();
    let mut demo = Demo::start_with(folder.path(), "three.out", &["--replicas", "3", "--fake-nodes"]);
    for source in ["staging", "production"] {
        demo.says(&["sync finished", &format!("{source}: succeeded")]).await;
    }
    demo.pushes("sed -i 's/half price/free/' staging/storefront.yaml", "greeting");
    demo.says(&["object applied", "changed, ConfigMap shop-staging/storefront"]).await;
    demo.says(&["the shop is up"]).await;
    demo.types("kasbah kubeconfig --agent demo --file ../through.yaml");
    demo.types("kubectl --kubeconfig ../through.yaml get namespaces");
    demo.types("kasbah log verify");
    demo.end();
}

const CHAOS: [&str; 4] = ["--chaos", "--replicas", "2", "--fake-nodes"];
const CHAOS_LIMIT: Duration = Duration::from_secs(280);

#[tokio::test]
async fn chaos_kills_each_process_and_loses_nothing() {
    let folder = Folder::temporary().unwrap();
    let mut demo = Demo::start_with(folder.path(), "chaos.out", &CHAOS);
    let ended = demo.process.wait(CHAOS_LIMIT).unwrap();
    let said = std::fs::read_to_string(demo.process.log()).unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {said}");
    for killed in ["authz-1", "console-2", "tunnel-gateway-1", "nats-0", "nats-2"] {
        assert!(
            said.lines().any(|line| line.contains(killed) && line.contains("killed")),
            "{killed}: {said}"
        );
    }
    assert!(said.contains("nothing was lost"), "{said}");
}

#[tokio::test]
async fn chaos_tells_of_a_build_that_forgets_what_it_acknowledged() {
    let folder = Folder::temporary().unwrap();
    let forgetful = testkit::program("examples/forgetful").unwrap();
    let options = [&CHAOS[..], &["--program", forgetful.to_str().unwrap()]].concat();
    let mut demo = Demo::start_with(folder.path(), "forgetful.out", &options);
    let ended = demo.process.wait(CHAOS_LIMIT).unwrap();
    let said = std::fs::read_to_string(demo.process.log()).unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}: {said}");
    assert!(said.lines().any(|line| line.contains("LOST: group chaos-")), "{said}");
}
