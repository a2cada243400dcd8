//! `telecine probe`.

use std::path::Path;

use anyhow::Result;
use telecine_media::{AudioStream, Probe, VideoStream};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::output::{Answer, Output};
use crate::programs;
use crate::table::{Cell, Table};

pub(super) async fn run(file: &Path, config: &Config, output: &Output) -> Result<Answer> {
    let toolbox = programs::toolbox(config);
    let cancel = CancellationToken::new();
    let probe = telecine_media::probe(&toolbox, file, &config.intake.limits, &cancel).await?;
    if output.json {
        output.print_json(&probe)?;
    } else {
        output.print(&draw(&probe).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

fn draw(probe: &Probe) -> Table {
    let mut table = Table::new(["STREAM", "CODEC", "WHAT"]);
    let length =
        probe.duration().map_or_else(|| "unknown length".into(), |d| format!("{:.3} s", d.as_secs_f64()));
    let whole = format!("{length}, {} bytes, {} streams", probe.file_bytes, probe.stream_count);
    table.row([Cell::from("file"), probe.format.mime().into(), whole.into()]);
    for video in &probe.video_streams {
        table.row([format!("{} video", video.index), video.codec.clone(), picture(video)].map(Cell::from));
    }
    for audio in &probe.audio_streams {
        table.row([format!("{} audio", audio.index), audio.codec.clone(), sound(audio)].map(Cell::from));
    }
    for chapter in &probe.chapters {
        let start_s = chapter.start_us as f64 / 1e6;
        let title = chapter.title.clone().unwrap_or_default();
        table.row([Cell::from("chapter"), "-".into(), format!("{start_s:.3} s {title}").into()]);
    }
    table
}

fn picture(video: &VideoStream) -> String {
    let mut facts = vec![format!("{}x{}", video.width, video.height)];
    let is_shown_otherwise = (video.display.width, video.display.height) != (video.width, video.height);
    if is_shown_otherwise {
        facts.push(format!("shown as {}x{}", video.display.width, video.display.height));
    }
    if video.is_attached_picture {
        facts.push("cover".into());
    } else if let Some(fps) = video.avg_fps {
        let pace = if video.is_vfr { " on average" } else { "" };
        facts.push(format!("{:.3} fps{pace}", fps.as_f64()));
    }
    facts.extend(video.pixel_format.clone());
    facts.extend(video.hdr.map(|kind| format!("HDR ({kind:?})")));
    facts.extend(video.bit_rate.map(kbits));
    facts.join(", ")
}

fn sound(audio: &AudioStream) -> String {
    let layout = audio.layout.clone().unwrap_or_else(|| format!("{} channels", audio.channels));
    let mut facts = vec![format!("{} Hz", audio.sample_rate), layout];
    facts.extend(audio.language.clone());
    facts.extend(audio.bit_rate.map(kbits));
    facts.join(", ")
}

fn kbits(bit_rate: u64) -> String {
    format!("{} kbit/s", bit_rate / 1000)
}
