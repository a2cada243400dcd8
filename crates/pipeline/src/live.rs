//! Playlists of a film that is still being made, rendered from the rows.
//!
//! They name the contiguous beginning that every rung and the sound have, so a player never asks for what is not there,
//! and they only grow. The master states planned bandwidths: the real ones are known when all is made.

use telecine_media::{
    AudioGroup, Bandwidth, Delivery, GrowingPlaylist, SegmentFact, Timeline, Variant, VideoPlan,
    hls_planned_master,
};
use telecine_queue::{Queue, QueueError, RunId};

use crate::film::SOUND;
use crate::records::{PlanRecord, SegmentRecord, SoundRecord, read, read_all};

/// The beginning of a film.
#[derive(Clone, Debug)]
pub struct LiveFilm {
    video: VideoPlan,
    segments: Vec<SegmentRecord>,
    sound: Option<SoundRecord>,
    sound_kbits: u32,
}

/// The film of a step, as far as it is made; `None` while nothing of it can be played.
pub async fn live_film(queue: &dyn Queue, run: &RunId, step: &str) -> Result<Option<LiveFilm>, QueueError> {
    let Some(PlanRecord { plan }) = read(queue, run, step).await? else { return Ok(None) };
    // A copy is made in one go: there is nothing to be played before its end.
    let Some(video) = plan.video.filter(|video| video.delivery == Delivery::Encode) else { return Ok(None) };
    let sound: Option<SoundRecord> = read(queue, run, step).await?;
    if sound.is_none() && plan.sound.is_some() {
        return Ok(None);
    }
    let stored = read_all::<SegmentRecord>(queue, run).await?.into_iter().map(|(_, record)| record);
    let mut stored: Vec<SegmentRecord> = stored.filter(|record| record.step == step).collect();
    stored.sort_by_key(|record| record.segment);
    let beginning = stored.iter().zip(0..).take_while(|(record, number)| record.segment == *number).count();
    stored.truncate(beginning);
    if stored.is_empty() {
        return Ok(None);
    }
    let sound_kbits = plan.sound.map_or(0, |sound| sound.kbits);
    Ok(Some(LiveFilm { video, segments: stored, sound, sound_kbits }))
}

impl LiveFilm {
    /// How many segments can be played.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The playlist of that name: the master, or a rendition's.
    pub fn rendered(&self, name: &str) -> Option<String> {
        if name == "master" { Some(self.master()) } else { self.playlist(name) }
    }

    pub fn master(&self) -> String {
        let planned =
            |kbits: u32| Bandwidth { peak: u64::from(kbits) * 1_000, average: u64::from(kbits) * 1_000 };
        let variants = self.video.rungs.iter().map(|rung| Variant {
            playlist_uri: format!("{}.m3u8", rung.name),
            bandwidth: planned(rung.max_kbits),
            codec: self.codec(&rung.name).to_owned(),
            width: rung.size.width,
            height: rung.size.height,
            frame_rate: self.video.timeline.fps,
        });
        let audio = self.sound.as_ref().map(|sound| AudioGroup {
            name: SOUND.to_owned(),
            playlist_uri: format!("{SOUND}.m3u8"),
            bandwidth: planned(self.sound_kbits),
            codec: sound.codec.clone(),
            channels: sound.channels,
            language: None,
        });
        hls_planned_master(&variants.collect::<Vec<_>>(), audio.as_ref())
    }

    /// The playlist of a rung, or of the sound; `None` where there is none of that name.
    pub fn playlist(&self, rendition: &str) -> Option<String> {
        match (&self.sound, rendition) {
            (Some(sound), SOUND) => {
                let facts = sound.facts.iter().zip(&sound.segments).take(self.segments.len());
                let facts: Vec<_> = facts
                    .map(|(fact, file)| SegmentFact { uri: file.path.clone(), ..fact.clone() })
                    .collect();
                Some(self.growing(&sound.init.path, sound.timescale, &facts))
            }
            _ => {
                self.video.rung(rendition)?;
                let files = self.segments.iter().filter_map(|segment| {
                    let file = segment.files.iter().find(|file| file.rung == rendition)?;
                    Some((segment, file))
                });
                let files: Vec<_> = files.collect();
                let init = &files.first()?.1.init.path;
                let facts: Vec<_> = files
                    .iter()
                    .map(|(segment, file)| self.fact(segment, &file.file.path, file.file.bytes))
                    .collect();
                Some(self.growing(init, self.video.timeline.timescale, &facts))
            }
        }
    }

    fn growing(&self, init_uri: &str, timescale: u32, segments: &[SegmentFact]) -> String {
        let length_us = self.video.timeline.time_us(u64::from(self.video.grid.frames_per_segment));
        // Sound is cut at the nearest of its own frames: a segment of it may be longer than the picture's.
        let target_seconds = (length_us + 100_000).div_ceil(1_000_000);
        let is_whole = segments.len() == self.video.grid.segments as usize;
        GrowingPlaylist { init_uri, timescale, segments, target_seconds, is_whole }.render()
    }

    fn fact(&self, segment: &SegmentRecord, path: &str, bytes: u64) -> SegmentFact {
        let timeline = &self.video.timeline;
        let offset = u64::from(Timeline::OFFSET_SECONDS) * u64::from(timeline.timescale);
        SegmentFact {
            uri: path.to_owned(),
            start_ticks: offset + timeline.ticks(self.video.grid.first_frame(segment.segment)),
            duration_ticks: u64::from(segment.frames) * u64::from(timeline.ticks_per_frame),
            bytes,
            frames: segment.frames,
            keyframe_bytes: None,
        }
    }

    fn codec(&self, rung: &str) -> &str {
        let files = self.segments.iter().flat_map(|segment| &segment.files);
        files.into_iter().find(|file| file.rung == rung).map_or("", |file| &file.codec)
    }
}
