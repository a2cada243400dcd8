//! Traces over OTLP: one trace from the request through the run and its jobs to the programs they start.
//!
//! ```text
//!   http.request ──► run ──► job.run ──► media.…
//!        │            │         └ of whichever process runs the job: it knows the run's span without having made it
//!        │            └ its id follows from the run's own; told once the run has ended, with its true length
//!        └ continues the caller's `traceparent`; what it is itself is what the run remembers
//! ```
//! Spans are handed to a thread of their own through a bounded queue. When the collector is away or slow, spans are
//! dropped; nothing ever waits for it.

mod collector;
mod runs;

use std::cell::Cell;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanId, TraceContextExt, TraceId, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider,
};
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use collector::Collector;
pub use runs::RunTraces;

/// What waits to be sent; more is dropped.
const QUEUE_SPANS: usize = 8_192;
/// How long a stop waits for the last spans to be taken.
const STOP_WITHIN: Duration = Duration::from_secs(3);
/// The crates whose spans are told; those of libraries would be of our own sending, too.
const OURS: [&str; 6] = [
    "telecine",
    "telecine_connect",
    "telecine_media",
    "telecine_pipeline",
    "telecine_queue",
    "telecine_server",
];

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NoTraces {
    reason: String,
}

/// Sends the traces of this process.
#[derive(Clone, Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// To the collector at this address, such as `http://127.0.0.1:4318`. `role` tells the processes of a service apart.
    /// What `OTEL_…` variables say of headers and the resource is heeded.
    pub fn start(endpoint: &str, role: &'static str) -> Result<Self, NoTraces> {
        let unusable =
            |error: &dyn std::fmt::Display| NoTraces { reason: format!("traces cannot be sent: {error}") };
        let collector = Collector::new().map_err(|error| unusable(&error))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_http_client(collector)
            .build()
            .map_err(|error| unusable(&error))?;
        let batches = BatchConfigBuilder::default().with_max_queue_size(QUEUE_SPANS).build();
        let resource = Resource::builder()
            .with_service_name(service_name())
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("telecine.role", role),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
            .with_id_generator(Ids::default())
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("telecine");
        Ok(Self { provider, tracer })
    }

    /// To be added to the subscriber of the process.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let ours = Targets::new().with_targets(OURS.map(|name| (name, Level::INFO)));
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            // Nothing here looks at OpenTelemetry's own idea of a current span.
            .with_context_activation(false)
            .with_location(false)
            .with_threads(false)
            .with_filter(ours)
    }

    /// Sends what there is, as far as the collector takes it in time.
    pub async fn stop(self) {
        let stopped =
            tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(STOP_WITHIN)).await;
        if !matches!(stopped, Ok(Ok(()))) {
            tracing::warn!("the last spans may not have reached the collector");
        }
    }
}

fn service_name() -> String {
    std::env::var("OTEL_SERVICE_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "telecine".into())
}

/// Continues the caller's trace with the span of its request; from here on the request says that it comes from that span,
/// for whoever carries it on. Without traces nothing changes.
pub(crate) fn join(span: &Span, headers: &mut HeaderMap) {
    let propagator = TraceContextPropagator::new();
    let theirs = propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
    if theirs.span().span_context().is_valid() && span.set_parent(theirs).is_err() {
        return;
    }
    let own = span.context();
    if own.span().span_context().is_valid() {
        propagator.inject_context(&own, &mut HeaderInjector(headers));
    }
}

thread_local! {
    /// What the next span that this thread makes is to be called.
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Random ids, but for spans whose id others know already.
#[derive(Debug, Default)]
struct Ids {
    random: RandomIdGenerator,
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.random.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.random.new_span_id(), |(_, span)| span)
    }
}
