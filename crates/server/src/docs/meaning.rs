//! What each code of a problem means, and what to do. A code without a meaning does not compile.

use crate::problem::Code;

pub(super) fn of(code: Code) -> &'static str {
    match code {
        Code::InvalidRequest => {
            "The body, the query or a header is not as documented. `errors` says where and why; the same request will be refused again."
        }
        Code::Unauthorized => {
            "No key was sent, or one that is not valid, or not any more. Send `Authorization: Bearer tk_…`; `telecine key ls` lists keys."
        }
        Code::Forbidden => {
            "The key is valid, but its scopes do not allow this, or a page of another origin used a session. Use a key with the scope that `detail` names."
        }
        Code::NotFound => {
            "There is nothing by this address or id. What belongs to another tenant looks the same as what does not exist."
        }
        Code::MethodNotAllowed => "This address does not take this method; see the list of operations.",
        Code::Conflict => {
            "The thing is in a state in which this cannot be done; look at it again, then decide."
        }
        Code::KeyReused => {
            "The `Idempotency-Key` was used before with another body. Use a new key, or repeat the first request as it was."
        }
        Code::ClaimLost => {
            "The claim is over: its job was settled, or belongs to another claim by now. Drop what was made and claim anew."
        }
        Code::Cancelled => "The job of this claim was cancelled. Stop, and drop what was made.",
        Code::TooLarge => "The body is larger than what is allowed here; `detail` says how large it may be.",
        Code::HeadersTooLarge => "The address and the headers together are larger than what is allowed.",
        Code::UnsupportedMediaType => "The `Content-Type` is none that this operation takes.",
        Code::RateLimited => {
            "This key, or this address without a key, asks too often, or has too many requests under way at once. Wait as long as `Retry-After` says."
        }
        Code::RequestTimeout => {
            "The request stood still, or took too long, before it had arrived. Send it again."
        }
        Code::ChecksumMismatch => {
            "The bytes that arrived do not have the hash that was told. They were dropped; send them again."
        }
        Code::OffsetMismatch => {
            "The upload goes on at another offset. Ask for it with `HEAD`, then go on there."
        }
        Code::Locked => "Somebody else writes to it at this moment. Try again when they are done.",
        Code::Expired => "The upload was not finished or used in time and is gone. Begin a new one.",
        Code::RangeNotSatisfiable => {
            "The file ends before the range that was asked for; `Content-Range` says how long it is."
        }
        Code::UnsupportedVersion => {
            "The version of the protocol is not spoken here; `Tus-Version` says which ones are."
        }
        Code::Unprocessable => {
            "The request is well formed, but the input was refused or could not be processed; `detail` says why."
        }
        Code::ScanUnavailable => "No virus scanner is configured, or it does not answer.",
        Code::Busy => {
            "All slots for synchronous work, or all connections, are taken. Wait as long as `Retry-After` says, or submit a run instead."
        }
        Code::Timeout => {
            "The work did not end within the time that a synchronous request has. Submit a run instead."
        }
        Code::Unavailable => {
            "The database, the store or a tool does not answer. Try again; nothing was accepted."
        }
        Code::StorageFull => {
            "There is no room left on a disk of the server. Nothing was accepted; its operator has to make room."
        }
        Code::Internal => "The server made a mistake. Its log has more by the `request_id`.",
    }
}
