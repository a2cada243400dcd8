//! What one tenant cannot take from the others, and is not told of the operator.

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_pipeline::Recipes;
use telecine_queue::{NewJob, NewRun, Push};
use telecine_server::Scope;
use telecine_server::keys::{self, NewKey};

use crate::operations::body;
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bounds::a_list_of_jobs_is_small_however_large_they_are", a_list_of_jobs_is_small),
    ]
}

async fn a_list_of_jobs_is_small() {
    let served = Served::start().await;
    let large = json!({ "text": "x".repeat(200 * 1024) });
    let jobs = (0..40).map(|_| NewJob::new("far_away", large.clone()).lane("elsewhere"));
    let pushed = served.queue.push(vec![Push::run(NewRun::new("large"), jobs)]).await.unwrap();
    let id = pushed[0].jobs[0];

    let listed = served.get("/v1/jobs?limit=500").send().await.unwrap().text().await.unwrap();
    let of_run = format!("/v1/jobs?limit=500&run={}", pushed[0].run.as_ref().unwrap());
    let of_run = served.get(&of_run).send().await.unwrap().text().await.unwrap();
    let one = body(served.get(&format!("/v1/jobs/{id}")).send().await.unwrap()).await;

    for listed in [listed, of_run] {
        assert!(listed.len() < 100 * 1024, "{} bytes", listed.len());
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let jobs = listed["data"].as_array().unwrap();
        assert_eq!((jobs.len(), &jobs[39]["id"]), (40, &json!(id)));
        for left_out in ["payload", "checkpoint", "result"] {
            assert!(jobs[0].get(left_out).is_none(), "{left_out}");
        }
    }
    assert_eq!(one["payload"], large);
    served.stop().await;
}
