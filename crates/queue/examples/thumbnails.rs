//! A kind, ten jobs, a worker: `cargo run --example thumbnails`.

use serde_json::{Value, json};
use telecine_queue::{
    Failure, Job, JobContext, JobState, Kind, Kinds, NewJob, Push, Runtime, WorkerOptions, async_trait, open,
    total,
};

struct Thumbnail;

#[async_trait]
impl Kind for Thumbnail {
    fn name(&self) -> &'static str {
        "thumbnail"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let file = job.payload["file"].as_str().ok_or_else(|| Failure::for_good("bad_payload", "no file"))?;
        context.progress(0.5);
        Ok(json!({ "thumbnail": format!("{file}.webp"), "attempt": job.attempt }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:thumbnails.db".into());
    let queue = open(&url).await?;
    let jobs = (0..10).map(|n| NewJob::new("thumbnail", json!({ "file": format!("photo-{n}.jpg") })));
    queue.push(vec![Push::jobs(jobs)]).await?;

    let worker =
        Runtime::start(queue.clone(), Kinds::new().with(Thumbnail), WorkerOptions::default()).await?;
    while queue.counts().await?.iter().any(|count| !count.state.is_terminal()) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    worker.drain();
    worker.finished().await;
    println!("{} completed", total(&queue.counts().await?, JobState::Completed));
    Ok(())
}
