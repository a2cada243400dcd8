//! The DASH manifest: static, over the segments that HLS plays.
//!
//! Segments are listed by name, because their names carry hashes that no template can count. `SegmentTimeline` states
//! every duration in the track's own ticks, so nothing is rounded.

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, Event};

use super::{AudioRendition, MediaFacts, Presentation, SegmentFact, VideoRendition, language_tag};
use crate::rational::Rational;

type Xml = Writer<Vec<u8>>;
type Attributes<'a> = Vec<(&'a str, String)>;

pub(super) fn manifest(film: &Presentation) -> String {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    // Writing to memory cannot fail.
    let _ = write(&mut xml, film);
    String::from_utf8(xml.into_inner()).unwrap_or_default() + "\n"
}

fn write(xml: &mut Xml, film: &Presentation) -> std::io::Result<()> {
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let duration = iso_duration(film.duration_us());
    let attributes = vec![
        ("xmlns", "urn:mpeg:dash:schema:mpd:2011".to_owned()),
        ("profiles", "urn:mpeg:dash:profile:isoff-main:2011".to_owned()),
        ("type", "static".to_owned()),
        ("mediaPresentationDuration", duration.clone()),
        ("minBufferTime", format!("PT{}S", film.target_seconds())),
        ("maxSegmentDuration", format!("PT{}S", film.target_seconds() + 1)),
    ];
    inside(xml, "MPD", &attributes, |xml| {
        let period = vec![("id", "0".to_owned()), ("start", "PT0S".to_owned()), ("duration", duration)];
        inside(xml, "Period", &period, |xml| {
            if !film.video.is_empty() {
                write_video(xml, film)?;
            }
            film.audio.as_ref().map_or(Ok(()), |audio| write_audio(xml, audio, film.offset))
        })
    })
}

fn write_video(xml: &mut Xml, film: &Presentation) -> std::io::Result<()> {
    let attributes = vec![
        ("id", "0".to_owned()),
        ("contentType", "video".to_owned()),
        ("mimeType", "video/mp4".to_owned()),
        ("segmentAlignment", "true".to_owned()),
        ("startWithSAP", "1".to_owned()),
    ];
    let mut rungs: Vec<&VideoRendition> = film.video.iter().collect();
    rungs.sort_by_key(|rung| rung.media.bandwidth().average);
    inside(xml, "AdaptationSet", &attributes, |xml| {
        for rung in rungs {
            let rate = rung.frame_rate;
            let fps = if rate.den() == 1 { rate.num().to_string() } else { rate.to_string() };
            let attributes = vec![
                ("id", rung.name.clone()),
                ("codecs", rung.media.codec.clone()),
                ("bandwidth", rung.media.bandwidth().peak.to_string()),
                ("width", rung.width.to_string()),
                ("height", rung.height.to_string()),
                ("frameRate", fps),
                ("sar", "1:1".to_owned()),
            ];
            inside(xml, "Representation", &attributes, |xml| write_segments(xml, &rung.media, film.offset))?;
        }
        Ok(())
    })
}

fn write_audio(xml: &mut Xml, audio: &AudioRendition, offset: Rational) -> std::io::Result<()> {
    let mut attributes = vec![
        ("id", "1".to_owned()),
        ("contentType", "audio".to_owned()),
        ("mimeType", "audio/mp4".to_owned()),
        ("segmentAlignment", "true".to_owned()),
        ("startWithSAP", "1".to_owned()),
    ];
    if let Some(language) = language_tag(audio.language.as_deref()) {
        attributes.push(("lang", language.to_owned()));
    }
    let representation = vec![
        ("id", audio.name.clone()),
        ("codecs", dash_codec(&audio.media.codec)),
        ("bandwidth", audio.media.bandwidth().peak.to_string()),
        ("audioSamplingRate", audio.sample_rate.to_string()),
    ];
    let channels = vec![
        ("schemeIdUri", "urn:mpeg:dash:23003:3:audio_channel_configuration:2011".to_owned()),
        ("value", channel_configuration(audio.channels).to_string()),
    ];
    inside(xml, "AdaptationSet", &attributes, |xml| {
        inside(xml, "Representation", &representation, |xml| {
            empty(xml, "AudioChannelConfiguration", &channels)?;
            write_segments(xml, &audio.media, offset)
        })
    })
}

fn write_segments(xml: &mut Xml, media: &MediaFacts, offset: Rational) -> std::io::Result<()> {
    let zero_ticks = offset.scale(i64::from(media.timescale)).unwrap_or(0);
    let attributes =
        vec![("timescale", media.timescale.to_string()), ("presentationTimeOffset", zero_ticks.to_string())];
    inside(xml, "SegmentList", &attributes, |xml| {
        empty(xml, "Initialization", &vec![("sourceURL", media.init_uri.clone())])?;
        inside(xml, "SegmentTimeline", &Vec::new(), |xml| {
            runs(&media.segments).into_iter().try_for_each(|run| {
                let mut attributes = Vec::new();
                if let Some(start) = run.start {
                    attributes.push(("t", start.to_string()));
                }
                attributes.push(("d", run.duration.to_string()));
                if run.repeats > 0 {
                    attributes.push(("r", run.repeats.to_string()));
                }
                empty(xml, "S", &attributes)
            })
        })?;
        let mut urls = media.segments.iter();
        urls.try_for_each(|segment| empty(xml, "SegmentURL", &vec![("media", segment.uri.clone())]))
    })
}

/// Segments of one duration, one after another.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// Stated for the first, and after a gap.
    start: Option<u64>,
    duration: u64,
    repeats: u32,
}

fn runs(segments: &[SegmentFact]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut expected = None;
    for segment in segments {
        let follows = expected == Some(segment.start_ticks);
        match runs.last_mut() {
            Some(run) if follows && run.duration == segment.duration_ticks => run.repeats += 1,
            _ => runs.push(Run {
                start: (!follows).then_some(segment.start_ticks),
                duration: segment.duration_ticks,
                repeats: 0,
            }),
        }
        expected = Some(segment.start_ticks + segment.duration_ticks);
    }
    runs
}

/// Browsers know the codec in small letters; HLS names the sample entry.
fn dash_codec(codec: &str) -> String {
    match codec {
        "Opus" => "opus".to_owned(),
        "fLaC" => "flac".to_owned(),
        codec => codec.to_owned(),
    }
}

/// ISO/IEC 23003-3: the configuration of eight channels is the seventh.
fn channel_configuration(channels: u32) -> u32 {
    if channels == 8 { 7 } else { channels }
}

fn iso_duration(us: u64) -> String {
    format!("PT{}.{:06}S", us / 1_000_000, us % 1_000_000)
}

fn inside(
    xml: &mut Xml,
    name: &str,
    attributes: &Attributes<'_>,
    content: impl FnOnce(&mut Xml) -> std::io::Result<()>,
) -> std::io::Result<()> {
    xml.write_event(Event::Start(element(name, attributes)))?;
    content(xml)?;
    xml.write_event(Event::End(BytesEnd::new(name)))
}

fn empty(xml: &mut Xml, name: &str, attributes: &Attributes<'_>) -> std::io::Result<()> {
    xml.write_event(Event::Empty(element(name, attributes)))
}

fn element<'a>(name: &'a str, attributes: &'a Attributes<'_>) -> BytesStart<'a> {
    let mut element = BytesStart::new(name);
    for (key, value) in attributes {
        element.push_attribute((*key, value.as_str()));
    }
    element
}
