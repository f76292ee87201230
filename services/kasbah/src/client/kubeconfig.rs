//! Kubeconfigs: one more context in what there is.

use serde_json::{Map, Value, json};

/// One context: a cluster, and who we are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Its name, and that of its cluster and user.
    pub name: String,
    /// URL of the cluster's API.
    pub server: String,
    /// Whom to trust, PEM in base64; the machine's own authorities if not given.
    pub certificate_authority: Option<String>,
    /// Namespace of requests that name none.
    pub namespace: Option<String>,
    /// What shows the server who asks.
    pub credential: Credential,
}

/// What shows a server who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A program that prints it, and the program's arguments.
    Program(Vec<String>),
    /// A token.
    Token(String),
}

/// What is there is no kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoKubeconfig(&'static str);

impl Context {
    /// Puts the context into a kubeconfig as [`Context::put_into`], and makes it the current one: if there is none, or if it is to be
    /// `used` whatever the current one is.
    ///
    /// # Errors
    /// When what is there is none.
    pub fn merge_into(&self, kubeconfig: Value, used: bool) -> Result<Value, NoKubeconfig> {
        let mut file = self.put_into(kubeconfig)?;
        if let Some(file) = file.as_object_mut() {
            let current = file.get("current-context").and_then(Value::as_str).unwrap_or_default();
            if used || current.is_empty() {
                file.insert("current-context".to_owned(), self.name.clone().into());
            }
        }
        Ok(file)
    }

    /// Puts the context into a kubeconfig, in the place of one of the same name. All else stays, the current context among it.
    ///
    /// # Errors
    /// When what is there is none.
    pub fn put_into(&self, kubeconfig: Value) -> Result<Value, NoKubeconfig> {
        let mut file = match kubeconfig {
            Value::Null => Map::new(),
            Value::Object(file) => file,
            _ => return Err(NoKubeconfig("expected keys and values at its top")),
        };
        file.entry("apiVersion").or_insert_with(|| "v1".into());
        file.entry("kind").or_insert_with(|| "Config".into());
        for (list, key, value) in [
            ("clusters", "cluster", self.cluster()),
            ("users", "user", self.user()),
            ("contexts", "context", self.context()),
        ] {
            self.put(&mut file, list, key, value)?;
        }
        Ok(Value::Object(file))
    }

    fn put(
        &self,
        file: &mut Map<String, Value>,
        list: &str,
        key: &str,
        value: Value,
    ) -> Result<(), NoKubeconfig> {
        let entry = json!({"name": self.name, key: value});
        let all = file.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        if all.is_null() {
            *all = Value::Array(Vec::new());
        }
        let all =
            all.as_array_mut().ok_or(NoKubeconfig("its clusters, users and contexts have to be lists"))?;
        let named = |one: &&mut Value| one.get("name").and_then(Value::as_str) == Some(&self.name);
        match all.iter_mut().find(named) {
            Some(former) => *former = entry,
            None => all.push(entry),
        }
        Ok(())
    }

    fn cluster(&self) -> Value {
        let mut cluster = json!({"server": self.server});
        if let (Some(authority), Some(cluster)) = (&self.certificate_authority, cluster.as_object_mut()) {
            cluster.insert("certificate-authority-data".to_owned(), authority.as_str().into());
        }
        cluster
    }

    /// A credential plugin (client.authentication.k8s.io/v1), or a token.
    fn user(&self) -> Value {
        let program = match &self.credential {
            Credential::Token(token) => return json!({"token": token}),
            Credential::Program(program) => program,
        };
        let (command, arguments) = program.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "args": arguments,
            "interactiveMode": "Never",
            "installHint": "kubectl needs the program `kasbah` here, which `kasbah kubeconfig` found at this place",
        }})
    }

    fn context(&self) -> Value {
        let mut context = json!({"cluster": self.name, "user": self.name});
        if let (Some(namespace), Some(context)) = (&self.namespace, context.as_object_mut()) {
            context.insert("namespace".to_owned(), namespace.as_str().into());
        }
        context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(namespace: Option<&str>) -> Context {
        Context {
            name: "shop/front:production".to_owned(),
            server: "https://kasbah.example:8443/agents/1".to_owned(),
            certificate_authority: Some("QQ==".to_owned()),
            namespace: namespace.map(str::to_owned),
            credential: Credential::Program(
                ["/usr/bin/kasbah", "credential", "kubectl"].map(str::to_owned).to_vec(),
            ),
        }
    }

    #[test]
    fn a_new_file_has_one_context_which_is_current() {
        let file = context(Some("shop")).merge_into(Value::Null, false).unwrap();
        assert_eq!(file["current-context"], "shop/front:production");
        assert_eq!(file["contexts"][0]["context"]["namespace"], "shop");
        assert_eq!(file["clusters"][0]["cluster"]["server"], "https://kasbah.example:8443/agents/1");
        assert_eq!(file["users"][0]["user"]["exec"]["args"], json!(["credential", "kubectl"]));
    }

    #[test]
    fn what_is_there_stays_and_the_same_context_is_there_once() {
        let there = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "other",
            "clusters": [{"name": "other", "cluster": {"server": "https://other"}}],
            "users": null, "contexts": [{"name": "other", "context": {"cluster": "other", "user": "x"}}],
        });
        let beside = context(None).merge_into(there.clone(), false).unwrap();
        assert_eq!(beside["current-context"], "other", "unless it is to be used");
        let once = context(None).merge_into(there, true).unwrap();
        assert_eq!(once["current-context"], "shop/front:production");
        let twice = context(Some("b")).merge_into(once, false).unwrap();
        let count = |list: &str| twice[list].as_array().unwrap().len();
        assert_eq!((count("clusters"), count("users"), count("contexts")), (2, 1, 2));
        assert_eq!(twice["clusters"][0]["cluster"]["server"], "https://other");
        assert_eq!(twice["contexts"][1]["context"]["namespace"], "b");
        assert_eq!(twice["preferences"]["colors"], true);
    }

    #[test]
    fn what_is_no_kubeconfig_is_left_alone() {
        assert!(context(None).merge_into(json!("text"), true).is_err());
        assert!(context(None).merge_into(json!({"users": {}}), true).is_err());
    }
}
