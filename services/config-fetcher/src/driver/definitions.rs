//! Reading the files of definitions that an agent's file names.

use std::collections::{BTreeMap, BTreeSet};

use events::configuration::FileFinding;
use events::{ProjectId, Refusal, RefusalKind};

use super::Fetcher;
use super::read::{Look, Projects, too_large};
use crate::schema::{self, Definitions, DefinitionsFile};

/// For how many times the interval repo-poller watches a project after its files were read: a look may come late.
const WATCHED_INTERVALS: u32 = 3;
/// For so many seconds at least.
const SHORTEST_WATCH: u32 = 180;

/// What the files of definitions say.
#[derive(Default)]
pub(super) struct Defined {
    /// In the order of the files.
    pub(super) definitions: Vec<Definitions>,
    /// What is wrong with the files.
    pub(super) findings: Vec<FileFinding>,
    /// Projects that were asked for.
    pub(super) projects: Projects,
    /// Projects whose files were read, beside the agent's own.
    pub(super) others: BTreeSet<ProjectId>,
}

impl Fetcher {
    /// Reads and checks files of definitions. An error is one that passes by itself.
    pub(super) async fn definitions(
        &self,
        look: Look<'_>,
        own_commit: &str,
        files: &[DefinitionsFile],
    ) -> Result<Defined, Refusal> {
        let mut defined = Defined::default();
        let own = look.known.project;
        let mut commits = BTreeMap::from([(own, own_commit.to_owned())]);
        let mut seen: BTreeMap<(ProjectId, &str), &DefinitionsFile> = BTreeMap::new();
        for file in files {
            let project = match &file.project {
                Some((path, ..)) => self.project(look, path, &mut defined.projects).await?,
                None => Ok(own),
            };
            let project = match project {
                Ok(project) => project,
                Err(message) => {
                    defined.findings.push(file.wrong_entry(look.file, message));
                    continue;
                }
            };
            // A project may be named in several ways, such as the agent's own by its path.
            if let Some(first) = seen.insert((project, &file.path), file) {
                let message = format!("{} names this file already; remove one of the two", first.field);
                defined.findings.push(file.wrong_entry(look.file, message));
                continue;
            }
            if project != own {
                defined.others.insert(project);
            }
            match self.definitions_in(look, project, file, &mut commits).await? {
                Ok(definitions) => defined.definitions.push(definitions),
                Err(findings) => defined.findings.extend(findings),
            }
        }
        Ok(defined)
    }

    /// What one file declares; the inner error is what is wrong with it.
    async fn definitions_in(
        &self,
        look: Look<'_>,
        project: ProjectId,
        file: &DefinitionsFile,
        commits: &mut BTreeMap<ProjectId, String>,
    ) -> Result<Result<Definitions, Vec<FileFinding>>, Refusal> {
        let watch = self.args.configuration_interval.saturating_mul(WATCHED_INTERVALS).max(SHORTEST_WATCH);
        let watch = (project != look.known.project).then_some(watch);
        let read = match self.read_file(look, project, &file.path, watch).await? {
            Ok(read) => read,
            Err(message) => return Ok(Err(vec![file.wrong(&message)])),
        };
        // Files of different commits may contradict each other.
        let commit = commits.entry(project).or_insert_with(|| read.commit.clone());
        if *commit != read.commit {
            let message = "the project got another commit while its files were read; retry";
            return Err(Refusal::new(RefusalKind::Unavailable, message));
        }
        if let Some(bytes) = read.too_large {
            return Ok(Err(vec![file.wrong(&too_large(bytes))]));
        }
        Ok(match read.content {
            Some(content) => schema::definitions(&file.name(), &content),
            None => Err(vec![file.wrong("there is no such file on the default branch of its project")]),
        })
    }
}
