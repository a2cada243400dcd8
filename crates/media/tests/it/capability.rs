use telecine_media::{Capabilities, Piece, Program};
use tokio_util::sync::CancellationToken;

use crate::clips;

#[tokio::test]
async fn the_installed_programs_say_what_they_can_do() {
    let found = Capabilities::detect(&clips::toolbox(), &CancellationToken::new()).await.unwrap();

    assert!(
        found
            .ffmpeg_version
            .as_deref()
            .is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit() || c == 'n'))
    );
    assert_eq!(found.ffmpeg_version, found.ffprobe_version);
    assert!(found.vips_version.as_deref().is_some_and(|version| version.starts_with("8.")), "{found:?}");
    let needed = [
        Piece::Encoder("libx264".into()),
        Piece::Encoder("aac".into()),
        Piece::Filter("scale".into()),
        Piece::Filter("split".into()),
        Piece::VipsForeign("VipsForeignSaveWebpFile".into()),
    ];
    found.require(&needed).unwrap();
}

#[tokio::test]
async fn what_is_missing_is_named_all_of_it() {
    let without_vips = clips::toolbox().without(Program::Vips);
    let found = Capabilities::detect(&without_vips, &CancellationToken::new()).await.unwrap();

    let wanted = [
        Piece::Encoder("libx264".into()),
        Piece::Encoder("h264_moonbeam".into()),
        Piece::Program(Program::Vips),
    ];
    let error = found.require(&wanted).unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("capability_missing", false));
    let text = error.to_string();
    assert!(text.contains("h264_moonbeam") && text.contains("vips") && !text.contains("libx264"), "{text}");
}

#[tokio::test]
async fn a_program_that_is_not_installed_is_named() {
    let error = clips::toolbox().without(Program::Ffmpeg).tool(Program::Ffmpeg, "encode").unwrap_err();

    assert_eq!((error.code(), error.step()), ("capability_missing", "encode"));
}
