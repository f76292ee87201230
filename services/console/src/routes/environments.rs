//! Environments and deployments.

use events::requests::environments::{
    CanDeploy, CreateEnvironment, DeleteEnvironment, FailDeployment, FinishDeployment, ListDeployments,
    ListEnvironmentChanges, ListEnvironments, PreviewStop, SetEnvironment, ShowDeployment, ShowEnvironment,
    StartDeployment, StopEnvironment,
};

use super::{DELETE, GET, PATCH, POST};
use crate::route::Route;

/// The routes.
pub(super) fn all() -> Vec<Route> {
    let mut routes = environments();
    routes.extend(deployments());
    routes
}

fn environments() -> Vec<Route> {
    vec![
        Route::ask::<ListEnvironments>(
            GET,
            "/api/v1/environments",
            "listEnvironments",
            "Lists environments of a project, of a group's projects, or of all that you may see",
        ),
        Route::ask::<CreateEnvironment>(
            POST,
            "/api/v1/environments",
            "createEnvironment",
            "Creates an environment; a project's first deployment into a name creates it, too",
        ),
        Route::ask::<ShowEnvironment>(
            GET,
            "/api/v1/environments/{environment}",
            "showEnvironment",
            "Shows an environment with its last deployment and the last successful one",
        ),
        Route::ask::<SetEnvironment>(
            PATCH,
            "/api/v1/environments/{environment}",
            "setEnvironment",
            "Changes an environment",
        ),
        Route::ask::<StopEnvironment>(
            POST,
            "/api/v1/environments/{environment}/stop",
            "stopEnvironment",
            "Stops an environment; its history stays, and the next deployment makes it available again",
        ),
        Route::ask::<PreviewStop>(
            GET,
            "/api/v1/environments/{environment}/stop",
            "previewStop",
            "Shows what stopping an environment would delete with delete_objects",
        ),
        Route::ask::<DeleteEnvironment>(
            DELETE,
            "/api/v1/environments/{environment}",
            "deleteEnvironment",
            "Deletes a stopped environment; its history stays in the log only",
        ),
        Route::ask::<ListEnvironmentChanges>(
            GET,
            "/api/v1/environments/{environment}/changes",
            "listEnvironmentChanges",
            "Lists the last changes of an environment's settings and state, the newest first",
        ),
        Route::ask::<ListDeployments>(
            GET,
            "/api/v1/environments/{environment}/deployments",
            "listDeployments",
            "Lists the deployments of an environment, the newest first",
        ),
    ]
}

fn deployments() -> Vec<Route> {
    vec![
        Route::ask::<StartDeployment>(
            POST,
            "/api/v1/deployments",
            "startDeployment",
            "Starts a deployment; creates the environment if the project has none of the name",
        ),
        Route::ask::<ShowDeployment>(
            GET,
            "/api/v1/deployments/{deployment}",
            "showDeployment",
            "Shows a deployment",
        ),
        Route::ask::<FinishDeployment>(
            POST,
            "/api/v1/deployments/{deployment}/finish",
            "finishDeployment",
            "Records that a deployment succeeded",
        ),
        Route::ask::<FailDeployment>(
            POST,
            "/api/v1/deployments/{deployment}/fail",
            "failDeployment",
            "Records that a deployment failed",
        ),
        Route::ask::<CanDeploy>(
            POST,
            "/api/v1/deployment-reviews",
            "reviewDeployment",
            "Checks whether you may record deployments into an environment, and shows what permits it",
        ),
    ]
}
