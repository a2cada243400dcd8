use std::path::Path;

use telecine_media::{
    AudioCodec, AudioGroup, AudioRendition, Bandwidth, Channels, GrowingPlaylist, Limits, Loudness,
    MediaFacts, Presentation, Rational, SegmentFact, SoundtrackSpec, Variant, VideoRendition,
    hls_planned_master, make_soundtrack,
};
use tokio_util::sync::CancellationToken;

use crate::clips;
use crate::film::{self, seconds};

fn fact(uri: &str, start_ticks: u64, duration_ticks: u64, bytes: u64) -> SegmentFact {
    SegmentFact {
        uri: uri.to_owned(),
        start_ticks,
        duration_ticks,
        bytes,
        frames: 120,
        keyframe_bytes: Some(bytes / 10),
    }
}

/// 29.97 fps in segments of 120 frames, and sound in AAC.
fn ntsc() -> Presentation {
    let (zero, segment) = (300_000, 120_120);
    let rung = |name: &str, width, height, bytes: u64| VideoRendition {
        name: name.to_owned(),
        playlist_uri: format!("{name}.m3u8"),
        keyframes_uri: Some(format!("{name}-keyframes.m3u8")),
        width,
        height,
        frame_rate: "30000/1001".parse().unwrap(),
        media: MediaFacts {
            init_uri: format!("{name}-init.mp4"),
            codec: "avc1.64001F".to_owned(),
            timescale: 30_000,
            segments: vec![
                fact(&format!("{name}-0.m4s"), zero, segment, bytes),
                fact(&format!("{name}-1.m4s"), zero + segment, segment, bytes * 3 / 2),
                fact(&format!("{name}-2.m4s"), zero + 2 * segment, 30_030, bytes / 4),
            ],
        },
    };
    let frame = 1024;
    let audio = AudioRendition {
        name: "audio".to_owned(),
        playlist_uri: "audio.m3u8".to_owned(),
        channels: 2,
        sample_rate: 48_000,
        language: Some("de".to_owned()),
        media: MediaFacts {
            init_uri: "audio-init.mp4".to_owned(),
            codec: "mp4a.40.2".to_owned(),
            timescale: 48_000,
            segments: vec![
                fact("audio-0.m4s", 480_000 - frame, 189 * frame, 64_000),
                fact("audio-1.m4s", 480_000 + 188 * frame, 188 * frame, 64_000),
                fact("audio-2.m4s", 480_000 + 376 * frame, 47 * frame, 16_000),
            ],
        },
    };
    Presentation {
        video: vec![rung("1080p", 1920, 1080, 2_400_000), rung("360p", 640, 360, 400_000)],
        audio: Some(audio),
        offset: seconds(10, 1),
    }
}

#[test]
fn a_master_states_what_was_measured() {
    let master = ntsc().hls_master();

    assert_eq!(
        master,
        "#EXTM3U\n\
         #EXT-X-VERSION:7\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"audio\",DEFAULT=YES,AUTOSELECT=YES,LANGUAGE=\"de\",\
         CHANNELS=\"2\",URI=\"audio.m3u8\"\n\
         #EXT-X-STREAM-INF:BANDWIDTH=1326462,AVERAGE-BANDWIDTH=1104160,CODECS=\"avc1.64001F,mp4a.40.2\",\
         RESOLUTION=640x360,FRAME-RATE=29.970,CLOSED-CAPTIONS=NONE,AUDIO=\"audio\"\n\
         360p.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=7320468,AVERAGE-BANDWIDTH=5988165,CODECS=\"avc1.64001F,mp4a.40.2\",\
         RESOLUTION=1920x1080,FRAME-RATE=29.970,CLOSED-CAPTIONS=NONE,AUDIO=\"audio\"\n\
         1080p.m3u8\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=119881,AVERAGE-BANDWIDTH=97681,CODECS=\"avc1.64001F\",\
         RESOLUTION=640x360,URI=\"360p-keyframes.m3u8\"\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=719281,AVERAGE-BANDWIDTH=586081,CODECS=\"avc1.64001F\",\
         RESOLUTION=1920x1080,URI=\"1080p-keyframes.m3u8\"\n"
    );
}

#[test]
fn a_media_playlist_is_exact_and_ended() {
    let film = ntsc();

    assert_eq!(
        film.hls_video(&film.video[0]),
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"1080p-init.mp4\"\n\
         #EXTINF:4.004000,\n1080p-0.m4s\n#EXTINF:4.004000,\n1080p-1.m4s\n#EXTINF:1.001000,\n1080p-2.m4s\n\
         #EXT-X-ENDLIST\n"
    );
    assert_eq!(
        film.hls_audio().unwrap(),
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"audio-init.mp4\"\n\
         #EXTINF:4.032000,\naudio-0.m4s\n#EXTINF:4.010667,\naudio-1.m4s\n#EXTINF:1.002666,\naudio-2.m4s\n\
         #EXT-X-ENDLIST\n"
    );
    assert_eq!(
        film.hls_keyframes(&film.video[1]).unwrap(),
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-I-FRAMES-ONLY\n#EXT-X-MAP:URI=\"360p-init.mp4\"\n\
         #EXTINF:4.004000,\n#EXT-X-BYTERANGE:40000@0\n360p-0.m4s\n\
         #EXTINF:4.004000,\n#EXT-X-BYTERANGE:60000@0\n360p-1.m4s\n\
         #EXTINF:1.001000,\n#EXT-X-BYTERANGE:10000@0\n360p-2.m4s\n#EXT-X-ENDLIST\n"
    );
}

#[test]
fn without_sound_there_is_no_group_and_no_codec_of_it() {
    let film = Presentation { audio: None, ..ntsc() };

    let master = film.hls_master();

    assert!(!master.contains("AUDIO") && !master.contains("mp4a"), "{master}");
    assert!(!film.dash_manifest().contains("audio"));
}

#[test]
fn sound_alone_is_a_variant_itself() {
    let film = Presentation { video: Vec::new(), ..ntsc() };

    assert_eq!(
        film.hls_master(),
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-STREAM-INF:BANDWIDTH=127660,AVERAGE-BANDWIDTH=127359,CODECS=\"mp4a.40.2\"\naudio.m3u8\n"
    );
}

#[test]
fn a_growing_playlist_ends_only_when_it_is_whole() {
    let film = ntsc();
    let media = &film.video[1].media;
    let made: Vec<Option<SegmentFact>> = media.segments.iter().cloned().map(Some).collect();
    let holed = [made[0].clone(), None, made[2].clone()];
    let growing = |count: usize, is_whole| {
        let segments = &media.segments[..count];
        GrowingPlaylist {
            init_uri: &media.init_uri,
            timescale: 30_000,
            segments,
            target_seconds: 4,
            is_whole,
        }
        .render()
    };

    assert_eq!(GrowingPlaylist::common_prefix(&[&made, &holed]), 1);
    assert_eq!(GrowingPlaylist::common_prefix(&[&made, &[]]), 0);
    let (first, last) = (growing(1, false), growing(3, true));
    assert_eq!(
        first,
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:EVENT\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"360p-init.mp4\"\n#EXTINF:4.004000,\n360p-0.m4s\n"
    );
    // An EVENT playlist may only grow at its end.
    assert!(last.starts_with(&first) && last.ends_with("360p-2.m4s\n#EXT-X-ENDLIST\n"));
}

#[test]
fn a_planned_master_begins_with_the_rung_that_most_lines_carry() {
    let variant = |height: u32, average: u64| Variant {
        playlist_uri: format!("{height}p.m3u8"),
        bandwidth: Bandwidth { peak: average * 2, average },
        codec: "avc1.64001F".to_owned(),
        width: height * 16 / 9,
        height,
        frame_rate: seconds(25, 1),
    };
    let variants = [variant(1080, 4_500_000), variant(240, 300_000), variant(480, 1_200_000)];
    let audio = AudioGroup {
        name: "audio\"\n#EXT-X-EVIL".to_owned(),
        playlist_uri: "audio.m3u8".to_owned(),
        bandwidth: Bandwidth { peak: 130_000, average: 128_000 },
        codec: "mp4a.40.2".to_owned(),
        channels: 2,
        language: Some("no language\"".to_owned()),
    };

    let master = hls_planned_master(&variants, Some(&audio));

    let uris: Vec<&str> = master.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(uris, ["480p.m3u8", "240p.m3u8", "1080p.m3u8"]);
    assert!(master.contains("BANDWIDTH=2530000,AVERAGE-BANDWIDTH=1328000,"), "{master}");
    assert!(master.contains("NAME=\"audio#EXT-X-EVIL\"") && !master.contains("LANGUAGE"), "{master}");
}

#[test]
fn the_dash_manifest_names_the_same_segments_in_ticks() {
    let mut film = ntsc();
    film.video.truncate(1);
    film.video[0].media.init_uri = "a&b\"<.mp4".to_owned();

    let manifest = film.dash_manifest();

    let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-main:2011" type="static" mediaPresentationDuration="PT9.045333S" minBufferTime="PT4S" maxSegmentDuration="PT5S">
  <Period id="0" start="PT0S" duration="PT9.045333S">
    <AdaptationSet id="0" contentType="video" mimeType="video/mp4" segmentAlignment="true" startWithSAP="1">
      <Representation id="1080p" codecs="avc1.64001F" bandwidth="7192808" width="1920" height="1080" frameRate="30000/1001" sar="1:1">
        <SegmentList timescale="30000" presentationTimeOffset="300000">
          <Initialization sourceURL="a&amp;b&quot;&lt;.mp4"/>
          <SegmentTimeline>
            <S t="300000" d="120120" r="1"/>
            <S d="30030"/>
          </SegmentTimeline>
          <SegmentURL media="1080p-0.m4s"/>
          <SegmentURL media="1080p-1.m4s"/>
          <SegmentURL media="1080p-2.m4s"/>
        </SegmentList>
      </Representation>
    </AdaptationSet>
    <AdaptationSet id="1" contentType="audio" mimeType="audio/mp4" segmentAlignment="true" startWithSAP="1" lang="de">
      <Representation id="audio" codecs="mp4a.40.2" bandwidth="127660" audioSamplingRate="48000">
        <AudioChannelConfiguration schemeIdUri="urn:mpeg:dash:23003:3:audio_channel_configuration:2011" value="2"/>
        <SegmentList timescale="48000" presentationTimeOffset="480000">
          <Initialization sourceURL="audio-init.mp4"/>
          <SegmentTimeline>
            <S t="478976" d="193536"/>
            <S d="192512"/>
            <S d="48128"/>
          </SegmentTimeline>
          <SegmentURL media="audio-0.m4s"/>
          <SegmentURL media="audio-1.m4s"/>
          <SegmentURL media="audio-2.m4s"/>
        </SegmentList>
      </Representation>
    </AdaptationSet>
  </Period>
</MPD>
"#;
    assert_eq!(manifest, expected);
}

/// Two rungs and their sound on disk with all manifests: 125 frames of 25 fps.
async fn published(folder: &Path) -> Presentation {
    let rungs = film::two_rungs(folder);
    let mut film = film::presentation(&rungs, "25/1");
    let source = clips::clip(
        "five_seconds.m4a",
        &["-f", "lavfi", "-i", "aevalsrc=0.2*sin(880*PI*t)|0.2*sin(660*PI*t):s=44100:d=5", "-c:a", "aac"],
    );
    let (limits, probe) = (Limits::default(), clips::probed(&source).await.unwrap());
    let boundaries: Vec<Rational> = vec![seconds(2, 1), seconds(4, 1)];
    let spec = SoundtrackSpec {
        source: &source,
        probe: &probe,
        limits: &limits,
        codec: AudioCodec::Aac,
        kbits: 96,
        channels: Channels::Stereo,
        loudness: Loudness::Keep,
        zero_us: 0,
        duration: seconds(5, 1),
        offset: film.offset,
        boundaries: &boundaries,
        folder,
    };
    let sound = make_soundtrack(&clips::toolbox(), &spec, &|_| {}, &CancellationToken::new()).await.unwrap();
    let media = MediaFacts::of(&sound.track, "audio-init.mp4", sound.facts);
    film.audio = AudioRendition::of("audio", &sound.track, media);
    write_manifests(folder, &film);
    film
}

pub(crate) fn write_manifests(folder: &Path, film: &Presentation) {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    write("master.m3u8", film.hls_master());
    write("manifest.mpd", film.dash_manifest());
    for rung in &film.video {
        write(&rung.playlist_uri, film.hls_video(rung));
        if let (Some(uri), Some(text)) = (&rung.keyframes_uri, film.hls_keyframes(rung)) {
            write(uri, text);
        }
    }
    if let (Some(audio), Some(text)) = (&film.audio, film.hls_audio()) {
        write(&audio.playlist_uri, text);
    }
}

/// `codec_type,size or channels,frames` of the streams that a manifest leads to, every frame decoded.
pub(crate) fn played(manifest: &Path, streams: &str) -> Vec<String> {
    let entries = "stream=codec_type,width,channels,nb_read_frames";
    let options: &[&str] = match manifest.extension().and_then(|extension| extension.to_str()) {
        Some("m3u8") => &["-allowed_extensions", "ALL"],
        _ => &[],
    };
    let select: &[&str] = if streams.is_empty() { &[] } else { &["-select_streams", streams] };
    let shown = ["-count_frames", "-show_entries", entries, "-of", "csv=p=0", manifest.to_str().unwrap()];
    let lines = film::lines_of("ffprobe", &[&["-v", "error"], options, select, &shown].concat());
    let mut lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    lines.sort();
    lines.dedup();
    lines
}

#[tokio::test]
async fn a_player_decodes_every_frame_through_the_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let film = published(folder.path()).await;
    let audio_frames: u32 = film.audio.as_ref().unwrap().media.segments.iter().map(|one| one.frames).sum();

    let expected = [format!("audio,2,{audio_frames}"), "video,160,125".into(), "video,320,125".into()];

    assert_eq!(played(&folder.path().join("master.m3u8"), ""), expected);
    // FFmpeg's reader of manifests ends with the first stream that ends: one at a time, then.
    let manifest = folder.path().join("manifest.mpd");
    let each: Vec<String> =
        ["a:0", "v:0", "v:1"].iter().flat_map(|stream| played(&manifest, stream)).collect();
    assert_eq!(each, expected);
}

#[test]
fn a_key_frames_range_holds_all_of_its_picture() {
    let folder = tempfile::tempdir().unwrap();
    let rungs = film::two_rungs(folder.path());
    let picture = |bytes: Vec<u8>| {
        let path = folder.path().join("picture.mp4");
        std::fs::write(&path, [std::fs::read(&rungs[0].init).unwrap(), bytes].concat()).unwrap();
        let args = ["-v", "fatal", "-i", path.to_str().unwrap(), "-frames:v", "1", "-f", "md5", "-"];
        film::lines_of("ffmpeg", &args)
    };

    for (path, fact) in rungs[0].segments.iter().zip(rungs[0].facts().segments) {
        let segment = std::fs::read(path).unwrap();
        let range = segment[..fact.keyframe_bytes.unwrap() as usize].to_vec();
        assert!(range.len() < segment.len() / 2);
        assert_eq!(picture(range), picture(segment));
    }
}

/// What of Apple's authoring rules can be seen without a device.
#[tokio::test]
async fn the_playlists_keep_apples_rules() {
    let folder = tempfile::tempdir().unwrap();
    let film = published(folder.path()).await;
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let master = read("master.m3u8");

    for line in master.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF")) {
        for attribute in [
            "BANDWIDTH=",
            "AVERAGE-BANDWIDTH=",
            "CODECS=\"",
            "RESOLUTION=",
            "FRAME-RATE=25.000",
            "CLOSED-CAPTIONS=NONE",
        ] {
            assert!(line.contains(attribute), "{attribute} in {line}");
        }
        assert!(line.contains(",mp4a.40.2\""), "both codecs in {line}");
    }
    let names: Vec<&str> = master.lines().filter(|line| !line.starts_with('#')).collect();
    let mut boundaries = Vec::new();
    let mut targets = Vec::new();
    for name in names.iter().copied().chain(["audio.m3u8"]) {
        let playlist = read(name);
        let value = |tag: &str| playlist.lines().find_map(|line| line.strip_prefix(tag)).map(str::to_owned);
        let target: f64 = value("#EXT-X-TARGETDURATION:").unwrap().parse().unwrap();
        let durations: Vec<f64> = playlist
            .lines()
            .filter_map(|line| line.strip_prefix("#EXTINF:")?.strip_suffix(',')?.parse().ok())
            .collect();
        assert!(durations.iter().all(|duration| duration.round() <= target), "{name}");
        assert!(playlist.contains("#EXT-X-PLAYLIST-TYPE:VOD") && playlist.ends_with("#EXT-X-ENDLIST\n"));
        assert!(playlist.contains("#EXT-X-MAP:URI=") && playlist.contains("#EXT-X-INDEPENDENT-SEGMENTS"));
        for uri in playlist.lines().filter(|line| !line.starts_with('#')) {
            assert!(folder.path().join(uri).is_file(), "{uri}");
        }
        targets.push(target as u64);
        boundaries.push(durations);
    }
    assert!(targets.iter().all(|target| *target == targets[0]), "one target duration: {targets:?}");
    assert_eq!(boundaries[0], boundaries[1], "the same boundaries in every rung");
    for (video, audio) in boundaries[0].iter().zip(&boundaries[2]) {
        assert!((video - audio).abs() <= 0.05, "{video} and {audio}");
    }
    // Each segment begins with a key frame, and is shown from its boundary on, in every rung.
    for rung in &film.video {
        assert!(rung.media.segments.iter().all(|segment| segment.keyframe_bytes.is_some()), "{}", rung.name);
        let starts: Vec<u64> = rung.media.segments.iter().map(|segment| segment.start_ticks).collect();
        let second = u64::from(rung.media.timescale);
        assert_eq!(starts, [10 * second, 12 * second, 14 * second]);
    }
    // No stretch of a variant is above the bandwidth that is stated for it.
    let stated =
        |line: &str| line.split_once("BANDWIDTH=").unwrap().1.split(',').next().unwrap().parse::<u64>();
    let variants = master.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF"));
    for (line, name) in variants.zip(names) {
        let rung = film.video.iter().find(|rung| rung.playlist_uri == name).unwrap();
        let worst = rung.media.segments[..2].iter().map(|segment| segment.bytes * 8 / 2).max().unwrap();
        assert!(stated(line).unwrap() > worst, "{line}");
    }
}
