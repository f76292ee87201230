use super::*;

const TOKEN: &str = "kasbah_a_secret";

fn installation(reach: AgentReach) -> Installation {
    Installation {
        agent: "edge".to_owned(),
        namespace: "kasbah-agent".to_owned(),
        reach,
        image: "kasbah-agent:1".to_owned(),
        gateway: "kasbah.example.org:8441".to_owned(),
        token: TOKEN.to_owned(),
        certificate_authority: Some(
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n".to_owned(),
        ),
        root_key: "root".to_owned(),
    }
}

fn namespaced() -> Installation {
    installation(AgentReach::Namespaces(vec!["one".to_owned(), "two".to_owned()]))
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

#[test]
fn what_is_needed_comes_first() {
    let objects = installation(AgentReach::Cluster).objects();
    assert_eq!(
        kinds(&objects),
        [
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "Secret",
            "Deployment",
            "PodDisruptionBudget"
        ]
    );
}

#[test]
fn a_namespaced_agent_gets_no_right_in_the_cluster_and_cannot_widen_its_own() {
    let objects = namespaced().objects();
    assert!(!kinds(&objects).iter().any(|kind| kind.starts_with("Cluster")), "{objects:?}");
    let roles: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Role").collect();
    let namespaces: Vec<_> = roles.iter().map(|role| &role["metadata"]["namespace"]).collect();
    assert_eq!(namespaces, ["kasbah-agent", "one", "two"]);
    for role in roles {
        let text = role["rules"].to_string();
        assert!(!text.contains("escalate") && !text.contains("\"verbs\":[\"*\"]"), "{text}");
    }
}

#[test]
fn each_binding_binds_its_role_to_the_account_of_the_pod() {
    for objects in [installation(AgentReach::Cluster).objects(), namespaced().objects()] {
        let account = &find(&objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
        assert_eq!(account, &find(&objects, "ServiceAccount")["metadata"]["name"]);
        for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
            assert_eq!(&binding["subjects"][0]["name"], account);
            let role = &binding["roleRef"];
            let bound = objects.iter().any(|object| {
                object["kind"] == role["kind"]
                    && object["metadata"]["name"] == role["name"]
                    && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
            });
            assert!(bound, "{binding}");
        }
    }
}

#[test]
fn the_token_stands_in_the_secret_and_nowhere_else() {
    let encoded = STANDARD.encode(TOKEN);
    for object in installation(AgentReach::Cluster).objects() {
        let text = object.to_string();
        assert_eq!(text.contains(&encoded), object["kind"] == "Secret", "{object}");
        assert!(!text.contains(TOKEN), "{object}");
    }
}

#[test]
fn the_pod_keeps_to_the_restricted_standard_that_its_namespace_enforces() {
    let objects = installation(AgentReach::Cluster).objects();
    let enforced = &find(&objects, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, "restricted");
    let pod = &find(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
}

#[test]
fn without_an_authority_none_is_mounted_nor_named() {
    let objects = Installation { certificate_authority: None, ..installation(AgentReach::Cluster) }.objects();
    assert!(find(&objects, "Secret")["data"].get("ca.crt").is_none());
    assert!(!find(&objects, "Deployment").to_string().contains("KASBAH_CA_FILE"));
}

#[test]
fn the_yaml_is_a_stream_of_documents_with_every_text_safe() {
    let text = installation(AgentReach::Cluster).yaml().unwrap();
    assert!(text.starts_with("---\napiVersion: v1\nkind: Namespace\n"), "{text}");
    assert_eq!(text.lines().filter(|line| *line == "---").count(), 9);
    assert!(text.contains("apiGroups:\n  - \"*\"") || text.contains("apiGroups:\n  - '*'"), "{text}");
    assert!(text.contains("defaultMode: 288\n"), "{text}");
}
