use clap::{CommandFactory as _, Parser};

use super::*;
use crate::exit;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: ClientCommand,
}

fn parse(words: &str) -> Result<Line, clap::Error> {
    Line::try_parse_from(std::iter::once("kasbah").chain(words.split_whitespace()))
}

#[test]
fn the_command_line_is_consistent() {
    Line::command().debug_assert();
}

#[test]
fn what_people_type_is_understood() {
    for words in [
        "organization list",
        "organization create acme --owner ann",
        "group create platform",
        "project create shop/web --repository https://git.example.org/shop/web.git --credential forge --default-branch trunk --external-id 7",
        "project set shop/web --credential=",
        "project webhook shop/web",
        "user create ann --role maintainer --scope group:platform",
        "user role ann viewer --withdraw",
        "credential create forge --host git.example.org --secret-file /dev/null",
        "credential grant forge --project shop/web",
        "agent register edge --project shop/config --manifests --namespaced one,two --gateway kasbah.example.org:8441",
        "agent show shop/config:edge -o yaml",
        "token issue --agent edge --name second",
        "token issue --user ann --name second --expires 30d",
        "user disable ann --keep-agents-tokens",
        "user enable ann",
        "group delete platform",
        "project delete shop/web",
        "organization tokens --default 30d --longest 90d",
        "token list --user ann --output json",
        "token revoke 0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55",
        "source list --agent edge",
        "source sync edge/web --wait --timeout 5m",
        "source suspend edge/web --reason freeze",
        "source pin edge/web 4f1a5b10",
        "source confirm edge/web --commit 4f1a5b10",
        "source diff edge/web --server kasbah.example.org",
        "source --server kasbah.example.org show edge/web",
        "log tail -f --type sync.finished",
        "log tail --from start --aggregate source/0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55",
        "log show source/0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55",
        "log verify -o json",
        "agents list",
        "login --server kasbah.example.org --ca-file ca.crt --provider company --organization acme --no-open",
        "login --device -o json",
        "logout",
        "open --no-open -o json",
        "config check",
        "rule test rules.yaml -o json",
        "kubeconfig --agent edge --merge --use",
        "config check .kasbah/agents/edge/config.yaml --project shop/config -o json",
        "get",
        "get deploy",
        "get deploy web -n shop -o wide",
        "get pod -n shop -w",
        "get deploy/web -A --at -15m -o name",
        "get pod -l app=web --health degraded,unknown --text err --agent edge --limit 3 -o yaml",
        "tree deploy/web --at 2026-01-31T12:00:00Z",
        "why deploy -n shop --health degraded",
        "history --since 1h",
        "history deploy/web -o json",
        "show deploy/web --at p_abc",
        "describe deploy web",
        "diff deploy/web --from 1h --to 10m",
        "coverage --agent edge",
        "graphql @query.graphql --variable first=20 --variable labels=app=web --operation Page -o yaml",
    ] {
        parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
}

#[test]
fn an_action_is_named_behind_its_object_and_only_an_action_is_tried() {
    for words in ["act cronjob/nightly", "act cronjob/nightly suspend -n shop --agent edge --dry-run -o json"]
    {
        parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
    assert!(parse("act cronjob/nightly --dry-run").is_err());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for words in [
        "",
        "agent",
        "agent register edge",
        "agent register edge --project shop/config --manifests --token-only",
        "agent register edge --project shop/config --namespaced Team",
        "user create ann",
        "user create ann --role king",
        "user create ann --role agent",
        "user role ann viewer --scope team:x",
        "token issue",
        "token issue --name a --expires soon",
        "token issue --name a --agent x --user y",
        "token revoke second",
        "source sync edge/web --timeout 5m",
        "log show",
        "login --browser --device",
        "log tail --from start --lines 3",
        "log tail -o xml",
        "credential create forge --host git.example.org --secret hunter2",
        "get deploy --health ill",
        "get deploy -A -n shop",
        "get deploy --at yesterday",
        "get deploy -w --at 1h",
        "tree",
        "tree deploy/web -o wide",
        "source list -o name",
        "diff deploy/web",
    ] {
        let code = parse(words).err().map(|error| error.exit_code());
        assert_eq!(code, Some(2), "{words}");
    }
}

#[test]
fn every_noun_documents_the_exit_codes_and_the_connection() {
    for noun in Line::command().get_subcommands() {
        let help = noun.clone().render_long_help().to_string();
        assert!(help.contains(exit::HELP.lines().next().unwrap()), "{}", noun.get_name());
        assert!(help.contains("--token-file") && help.contains("KASBAH_SERVER"), "{}", noun.get_name());
        assert!(!help.contains("--token "), "{} takes a token on the command line", noun.get_name());
    }
}
