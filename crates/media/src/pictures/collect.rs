//! What a run left of each part, checked.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::branch::{Branch, Part, Shape};
use super::pass::{Frames, Ran};
use super::{Collected, Poster, Preview, STEP, SampledFrame, SceneCut, Storyboard, Tile, Work};
use crate::error::{At, InputProblem, MediaError, Result};
use crate::fresh;
use crate::probe::Size;

/// `Err(None)` says that nothing came out, which another try may mend.
pub(super) fn part(
    work: &Work<'_>,
    part: Part,
    branch: &Branch,
    ran: &Ran,
) -> Result<Collected, Option<MediaError>> {
    let scratch = work.pass.scratch;
    if matches!(part, Part::Storyboard | Part::Scenes | Part::Frames) {
        check_whole(work, ran)?;
    }
    let marks = marks(&scratch.join(part.times_file()), ran)?;
    match branch.shape {
        Shape::Times => {
            let scenes = marks.iter().map(|mark| SceneCut { at_us: mark.at_us, score: mark.score });
            return Ok(Collected::Scenes(scenes.collect()));
        }
        Shape::Still { .. } | Shape::Tiles { .. } | Shape::Moving { .. } | Shape::Stills => {}
    }
    let Some(first) = marks.first() else { return Err(None) };
    match branch.shape {
        Shape::Still { size: Size { width, height }, may_be_black, is_last } => {
            let path = present(scratch.join("poster.jpg"))?;
            let at_us = marks.last().filter(|_| is_last).unwrap_or(first).at_us;
            Ok(Collected::Poster(Poster { path, width, height, at_us, is_black: may_be_black }))
        }
        Shape::Tiles { tile, columns, rows, expected } => {
            let is_sparse = ran.frames == Frames::Key && marks.len() * 2 < expected as usize;
            if is_sparse {
                return Err(None);
            }
            let storyboard = storyboard(scratch, &marks, tile, columns, rows, work.look.duration)?;
            Ok(Collected::Storyboard(storyboard))
        }
        Shape::Moving { size: Size { width, height } } => {
            let path = present(scratch.join("preview.webp"))?;
            Ok(Collected::Preview(Preview { path, width, height, frames: marks.len() }))
        }
        Shape::Stills => {
            let frame = |(n, mark): (usize, &Mark)| {
                let path = present(scratch.join(format!("frame-{:06}.jpg", n + 1)))?;
                Ok(SampledFrame { at_us: mark.at_us, path })
            };
            let frames = marks.iter().enumerate().map(frame).collect::<Result<_>>();
            Ok(Collected::Frames(frames?))
        }
        Shape::Times => Ok(Collected::Scenes(Vec::new())),
    }
}

/// FFmpeg is content with half a file. Where the container says how many frames there are, they must have come.
fn check_whole(work: &Work<'_>, ran: &Ran) -> Result<()> {
    let (Some(said), Frames::All) = (work.pass.video.frame_count, ran.frames) else { return Ok(()) };
    let missing = said.saturating_sub(ran.decoded_frames);
    // Frames before the first keyframe and around edit lists are lost without harm.
    if missing <= 5 + said / 50 {
        return Ok(());
    }
    let detail = format!("{} of {said} frames came out", ran.decoded_frames);
    Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, detail)))
}

/// A frame that came by.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    at_us: u64,
    /// Only where cuts are looked for.
    score: f64,
}

fn marks(path: &Path, ran: &Ran) -> Result<Vec<Mark>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| MediaError::io(STEP, "the times of frames cannot be read", &error))?;
    let offset_us = match ran.frames {
        Frames::Window { start, .. } => u64::try_from(start.as_micros()).unwrap_or(0),
        Frames::All | Frames::Key => 0,
    };
    Ok(parse_marks(&text, offset_us))
}

/// `frame:0    pts:6000000 pts_time:6`, and then a line for each thing that the frame knows.
fn parse_marks(text: &str, offset_us: u64) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for line in text.lines() {
        if line.starts_with("frame:") {
            let pts = line.split_whitespace().find_map(|word| word.strip_prefix("pts:"));
            let pts: i64 = pts.and_then(|pts| pts.parse().ok()).unwrap_or(0);
            marks.push(Mark { at_us: u64::try_from(pts).unwrap_or(0) + offset_us, score: 0.0 });
        } else if let (Some(score), Some(mark)) = (line.strip_prefix("lavfi.scd.score="), marks.last_mut()) {
            mark.score = score.parse().unwrap_or(0.0);
        }
    }
    marks
}

fn present(path: PathBuf) -> Result<PathBuf> {
    let bytes = std::fs::metadata(&path).map(|metadata| metadata.len());
    match bytes {
        Ok(bytes) if bytes > 0 => Ok(path),
        Ok(_) => Err(MediaError::unexpected(At::new(STEP, format!("{} is empty", path.display())))),
        Err(error) => Err(MediaError::io(STEP, path.display(), &error)),
    }
}

fn storyboard(
    scratch: &Path,
    marks: &[Mark],
    tile: Size,
    columns: u32,
    rows: u32,
    duration: Option<Duration>,
) -> Result<Storyboard> {
    let per_sprite = (columns * rows) as usize;
    let tiles: Vec<Tile> = (0..)
        .zip(marks)
        .map(|(n, mark): (u32, &Mark)| {
            let place = n % (columns * rows);
            Tile {
                at_us: mark.at_us,
                sprite: n as usize / per_sprite,
                x: place % columns * tile.width,
                y: place / columns * tile.height,
                width: tile.width,
                height: tile.height,
            }
        })
        .collect();
    let name = |sprite: usize| format!("storyboard-{:04}.jpg", sprite + 1);
    let sprites = tiles.len().div_ceil(per_sprite);
    let sprites = (0..sprites).map(|n| present(scratch.join(name(n)))).collect::<Result<_>>()?;
    let vtt = scratch.join("storyboard.vtt");
    fresh::write(&vtt, webvtt(&tiles, name, duration))
        .map_err(|error| MediaError::io(STEP, "the storyboard's times cannot be written", &error))?;
    Ok(Storyboard { sprites, vtt, tiles })
}

/// A tile stands until the next one's time; the first from the start, the last to the end.
fn webvtt(tiles: &[Tile], name: impl Fn(usize) -> String, duration: Option<Duration>) -> String {
    let end_us = duration.map_or(0, |duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    let mut text = String::from("WEBVTT\n");
    for (n, tile) in tiles.iter().enumerate() {
        let start_us = if n == 0 { 0 } else { tile.at_us };
        let until_us = tiles.get(n + 1).map_or(end_us.max(tile.at_us + 1_000_000), |next| next.at_us);
        let Tile { x, y, width, height, .. } = *tile;
        let _ = write!(
            text,
            "\n{} --> {}\n{}#xywh={x},{y},{width},{height}\n",
            clock(start_us),
            clock(until_us),
            name(tile.sprite)
        );
    }
    text
}

/// `00:01:02.345`
fn clock(us: u64) -> String {
    let ms = us / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly_and_late_ones_too() {
        let text = "frame:0    pts:0       pts_time:0\npart=scenes\nframe:1    pts:21600033333 pts_time:21600\n\
                    lavfi.scd.mafd=24.3\nlavfi.scd.score=20.680\nlavfi.scd.time=21600\n";

        let marks = parse_marks(text, 5);

        assert_eq!(marks, [Mark { at_us: 5, score: 0.0 }, Mark { at_us: 21_600_033_338, score: 20.68 }]);
    }

    #[test]
    fn cues_leave_no_gap_and_name_their_place() {
        let tile = |n: u32| Tile {
            at_us: 40_000 + u64::from(n) * 2_000_000,
            sprite: 0,
            x: n * 160,
            y: 0,
            width: 160,
            height: 90,
        };

        let text = webvtt(&[tile(0), tile(1)], |_| "s.jpg".into(), Some(Duration::from_millis(3_661_500)));

        let expected = "WEBVTT\n\n00:00:00.000 --> 00:00:02.040\ns.jpg#xywh=0,0,160,90\n\n\
                        00:00:02.040 --> 01:01:01.500\ns.jpg#xywh=160,0,160,90\n";
        assert_eq!(text, expected);
    }
}
