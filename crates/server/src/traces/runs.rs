//! The spans of runs, and of jobs in them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use sha2::{Digest, Sha256};
use telecine_queue::{Job, Lineage, Queue, Run, RunId, RunState, Timestamp, async_trait};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{NEXT, Traces};

/// No job waits for longer to learn which trace it belongs to.
const WITHIN: Duration = Duration::from_secs(1);
/// Runs whose end was told, so that the jobs that end last do not tell it twice.
const REMEMBERED: usize = 1_024;

/// Joins jobs to the traces of their runs, and tells the span of a run when it has ended.
#[derive(Clone)]
pub struct RunTraces {
    queue: Arc<dyn Queue>,
    tracer: SdkTracer,
    told: Arc<Mutex<VecDeque<(RunId, u32)>>>,
}

impl RunTraces {
    pub fn new(traces: &Traces, queue: Arc<dyn Queue>) -> Self {
        Self { queue, tracer: traces.tracer.clone(), told: Arc::default() }
    }

    async fn find(&self, job: &Job) -> Option<Run> {
        let run = tokio::time::timeout(WITHIN, self.queue.get_run(job.run.as_ref()?)).await;
        run.ok()?.ok()?
    }

    /// `false`: it was told before.
    fn is_first(&self, run: &Run) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let this = (run.id.clone(), run.generation);
        if told.contains(&this) {
            return false;
        }
        told.truncate(REMEMBERED - 1);
        told.push_front(this);
        true
    }

    fn tell(&self, run: &Run) {
        let (parent, own) = (parent_of(run), span_of(run));
        let span = self.tracer.span_builder("run").with_kind(SpanKind::Internal);
        let span = span.with_start_time(instant(run.created_at)).with_attributes([
            KeyValue::new("run.id", run.id.to_string()),
            KeyValue::new("run.recipe", run.name.clone()),
            KeyValue::new("run.state", run.state.as_str()),
            KeyValue::new("run.generation", i64::from(run.generation)),
            KeyValue::new("run.jobs", i64::from(run.jobs_total)),
            KeyValue::new("processing.success", matches!(run.state, RunState::Succeeded | RunState::Partial)),
        ]);
        NEXT.set(Some((own.trace_id(), own.span_id())));
        let mut span = self.tracer.build_with_context(span, &parent);
        NEXT.set(None);
        if run.state == RunState::Failed {
            span.set_status(Status::error("the run failed"));
        }
        span.end_with_timestamp(instant(run.finished_at.unwrap_or_else(Timestamp::now)));
    }
}

#[async_trait]
impl Lineage for RunTraces {
    async fn adopt(&self, job: &Job, span: &Span) {
        if let Some(run) = self.find(job).await {
            let of_run = Context::new().with_remote_span_context(span_of(&run));
            // It fails where the filter leaves the span out, and then there is nothing to join.
            let _ = span.set_parent(of_run);
        }
    }

    fn ended(&self, job: &Arc<Job>) {
        if job.run.is_none() {
            return;
        }
        let (this, job) = (self.clone(), Arc::clone(job));
        tokio::spawn(async move {
            let ended = this.find(&job).await.filter(|run| run.state.is_terminal());
            if let Some(run) = ended.filter(|run| this.is_first(run)) {
                this.tell(&run);
            }
        });
    }
}

/// Where the run was asked for.
fn parent_of(run: &Run) -> Context {
    let traceparent = run.meta.get("traceparent").and_then(|value| value.as_str()).unwrap_or_default();
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// The span of the run itself. Its id is made from the run's and its generation, so that every process knows it.
fn span_of(run: &Run) -> SpanContext {
    let parent = parent_of(run);
    let parent = parent.span().span_context().clone();
    let digest = Sha256::digest(format!("{}/{}", run.id, run.generation));
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&digest[..16]);
    span.copy_from_slice(&digest[16..24]);
    let (trace, flags) = match parent.is_valid() {
        true => (parent.trace_id(), parent.trace_flags()),
        false => (TraceId::from_bytes(trace), TraceFlags::SAMPLED),
    };
    SpanContext::new(trace, SpanId::from_bytes(span), flags, true, TraceState::default())
}

fn instant(at: Timestamp) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_ms()).unwrap_or(0))
}

impl std::fmt::Debug for RunTraces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunTraces").finish_non_exhaustive()
    }
}
