//! The same lines with earlier releases of kubectl, on both sides.

use testkit::{KUBECTL_1_29, KUBECTL_1_31, Node, OptionalClient};

use super::list::{self, Group};
use super::{ANY_CLUSTER, REAL_NODE, same_at_a_real_node, same_at_any_cluster};

/// Until 1.34 they leave the path of the address out here, as [`crate::sessions`] has it; all else has to be the same.
const LEAVES_OUT_THE_PATH: &str = "--raw";
/// What came later, and what they have for it. Until 1.34 they describe keys in an order that is another each time
/// (kubernetes/kubectl#1738).
const LATER: [(&str, &str); 2] = [
    ("--cpu=80%", "--cpu-percent=80"),
    ("kubectl describe configmap settings", "kubectl describe configmap settings | sort"),
];
/// They have nothing to do with it.
const WITHOUT_KUBECTL: &str = "helm";

fn known_to_them(list: &str) -> Vec<Group> {
    let list = LATER.iter().fold(list.to_owned(), |list, (later, earlier)| list.replace(later, earlier));
    let mut groups = list::groups(list.leak());
    groups.retain(|group| group.name != WITHOUT_KUBECTL);
    for group in &mut groups {
        group.lines.retain(|line| !line.text.contains(LEAVES_OUT_THE_PATH));
    }
    groups
}

async fn at_any_cluster(client: &OptionalClient) {
    match client.path() {
        Ok(kubectl) => same_at_any_cluster(&known_to_them(ANY_CLUSTER), &kubectl).await,
        Err(skipped) => println!("{skipped}"),
    }
}

async fn at_a_real_node(client: &OptionalClient) {
    match Node::possible().and_then(|()| client.path()) {
        Ok(kubectl) => same_at_a_real_node(&known_to_them(REAL_NODE), &kubectl).await,
        Err(skipped) => println!("{skipped}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_of_kubectl_1_29_say_and_do_the_same_through_the_tunnel() {
    at_any_cluster(&KUBECTL_1_29).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_of_kubectl_1_31_say_and_do_the_same_through_the_tunnel() {
    at_any_cluster(&KUBECTL_1_31).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_of_kubectl_1_29_at_a_real_node_say_and_do_the_same_through_the_tunnel() {
    at_a_real_node(&KUBECTL_1_29).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_of_kubectl_1_31_at_a_real_node_say_and_do_the_same_through_the_tunnel() {
    at_a_real_node(&KUBECTL_1_31).await;
}
