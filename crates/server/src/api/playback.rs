//! Addresses that a `<video>` tag can use: signed, for one run, for a while, without a key.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::Mac;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use telecine_media::Packaging;
use telecine_pipeline::{Does, RunMeta, shown_run, whole};
use telecine_queue::{Run, RunId, Timestamp};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::files;
use super::runs::run_of;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Code, Problem, ProblemDocument};
use crate::secret::Secret;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(sign)).routes(routes!(get, allow))
}

/// The name of the secret among those of a database.
pub(crate) const SECRET: &str = "playback";
const LONGEST_S: u32 = 7 * 24 * 60 * 60;

/// For how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Up to a week.
    #[serde(default = "an_hour", deserialize_with = "lifetime")]
    #[schema(minimum = 1, maximum = 604_800, default = 3600)]
    expires_in_s: u32,
}

fn an_hour() -> u32 {
    3_600
}

fn lifetime<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match whole(deserializer)? {
        seconds @ 1..=LONGEST_S => Ok(seconds),
        other => Err(serde::de::Error::custom(format!("{other} is not from 1 to {LONGEST_S}"))),
    }
}

/// Where a run can be played.
#[derive(Debug, Serialize, ToSchema)]
struct Playback {
    /// Before the step and path of any file of the run. Relative to this server.
    url_prefix: String,
    /// The playlist to begin with; null where the recipe makes none.
    master_url: Option<String>,
    expires_at: Timestamp,
}

/// Makes an address at which the run's files can be read without a key, until it expires. Whoever has it can pass it on.
#[utoipa::path(
    post, path = "/v1/runs/{id}/playback", tag = "files", operation_id = "sign_playback",
    params(("id" = String, Path, description = "The run's id")),
    request_body = Option<Asked>,
    responses(
        (status = 200, body = Playback),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn sign(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Playback>, Problem> {
    caller.require(Scope::Read)?;
    let Asked { expires_in_s } = asked(request, &app).await?;
    let run = run_of(&app, &caller, &id).await?;
    // To the second: that is what the token says.
    let expires_at = Timestamp::now().plus(Duration::from_secs(u64::from(expires_in_s)));
    let expires_at = Timestamp::from_ms(expires_at.as_ms() / 1_000 * 1_000);
    let token = Token { run: run.id.clone(), expires_s: expires_at.as_ms() / 1_000 };
    let url_prefix = format!("/v1/playback/{}/", token.signed(app.playback_secret().await?));
    let master_url = master(&run).map(|master| format!("{url_prefix}{master}"));
    Ok(Json(Playback { url_prefix, master_url, expires_at }))
}

/// Whoever sends nothing, or `null`, takes what is usual.
async fn asked(request: Request, app: &Arc<App>) -> Result<Asked, Problem> {
    let usual = Asked { expires_in_s: an_hour() };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let is_empty = length.is_none_or(|length| length == "0");
    if is_empty && !request.headers().contains_key(header::TRANSFER_ENCODING) {
        return Ok(usual);
    }
    let Json(asked) = Json::<Option<Asked>>::from_request(request, app).await?;
    Ok(asked.unwrap_or(usual))
}

/// The playlist that the recipe promises.
fn master(run: &Run) -> Option<String> {
    let recipe = RunMeta::of(run).ok()?.recipe;
    let step = recipe
        .enabled_steps()
        .find(|step| matches!(&step.does, Does::Hls(spec) if spec.packaging.contains(&Packaging::Hls)))?;
    Some(format!("{}/master.m3u8", step.name))
}

/// A file of a run, by an address that was signed. Any page may read it.
#[utoipa::path(
    get, path = "/v1/playback/{token}/{*path}", tag = "files", operation_id = "play", security(()),
    params(
        ("token" = String, Path, description = "As `POST /v1/runs/{id}/playback` gave it"),
        ("path" = String, Path, description = "The step and the path below it"),
        ("Range" = Option<String>, Header, description = "One range of bytes; several are answered with the whole file"),
        ("If-Range" = Option<String>, Header, description = "The range is wanted only of the file with this ETag"),
        ("If-None-Match" = Option<String>, Header, description = "The file is wanted only if it has none of these ETags"),
    ),
    responses(
        (status = 200, description = "The file", body = [u8], content_type = "*/*"),
        (status = 206, description = "A range of it", body = [u8], content_type = "*/*"),
        (status = 304, description = "The caller has it"),
        (status = 404, description = "We did not sign this, or there is no such file", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 410, description = "`expired`: ask for another address", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 416, description = "The file has no such range", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
    Path((token, path)): Path<(String, String)>,
) -> Response {
    let answered = play(&app, &token, &path, &method, &headers).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    open_to_all(response.headers_mut());
    response
}

async fn play(
    app: &App,
    token: &str,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let no_such_file = || Problem::not_found("file");
    let token = Token::verified(token, app.playback_secret().await?).ok_or_else(no_such_file)?;
    if token.expires_s * 1_000 <= Timestamp::now().as_ms() {
        return Err(Problem::new(Code::Expired, "this address has expired; ask for another one"));
    }
    let run = shown_run(app.queue(), &token.run).await?.ok_or_else(no_such_file)?;
    files::answer(app, &run, path, method, headers).await
}

/// A browser asks before it sends headers of its own.
#[utoipa::path(
    options, path = "/v1/playback/{token}/{*path}", tag = "files", operation_id = "may_play", security(()),
    params(
        ("token" = String, Path, description = "Of any address"),
        ("path" = String, Path, description = "Of any file"),
    ),
    responses((status = 204, description = "Any page may read"))
)]
async fn allow() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    open_to_all(headers);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("range, if-range, if-none-match"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

fn open_to_all(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("content-length, content-range, accept-ranges, etag"),
    );
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
}

/// Lets whoever has it read one run's files until then.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    run: RunId,
    expires_s: i64,
}

impl Token {
    fn signed(&self, secret: &Secret) -> String {
        let said = self.said();
        let signature = secret.mac(said.as_bytes()).finalize().into_bytes();
        format!("{said}.{}", BASE64.encode(signature))
    }

    /// `None`: we did not sign this.
    fn verified(text: &str, secret: &Secret) -> Option<Self> {
        let (said, signature) = text.rsplit_once('.')?;
        secret.mac(said.as_bytes()).verify_slice(&BASE64.decode(signature).ok()?).ok()?;
        let (run, expires_s) = said.split_once('.')?;
        Some(Self { run: run.parse().ok()?, expires_s: expires_s.parse().ok()? })
    }

    fn said(&self) -> String {
        format!("{}.{}", self.run, self.expires_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_only_as_it_was_signed() {
        let (secret, other) = (Secret::of([1; 32]), Secret::of([2; 32]));
        let token = Token { run: RunId::new(), expires_s: 1_900_000_000 };
        let text = token.signed(&secret);

        assert_eq!(Token::verified(&text, &secret), Some(token.clone()));
        assert_eq!(Token::verified(&text, &other), None);
        let longer = text.replace("1900000000", "1900000001");
        assert_eq!(Token::verified(&longer, &secret), None);
        let another = text.replace(token.run.as_str(), RunId::new().as_str());
        assert_eq!(Token::verified(&another, &secret), None);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(Token::verified(&changed, &secret), None, "{at}");
        }
        for torn in ["", ".", "..", &text[..text.len() - 1]] {
            assert_eq!(Token::verified(torn, &secret), None, "{torn}");
        }
    }
}
