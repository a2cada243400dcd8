//! MPEG-TS: whole packets.

use std::io;

use super::source::Source;

const SYNC: u8 = 0x47;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    // A time code of four bytes may stand before each packet.
    let (packet_bytes, sync_at) = if source.array::<1>(0)? == Some([SYNC]) { (188, 0) } else { (192, 4) };
    let rest = source.bytes() % packet_bytes;
    if rest == 0 {
        return Ok(None);
    }
    let last_at = source.bytes() - rest;
    // Foreign bytes behind the last packet are none of ours.
    let is_packet = source.array::<1>(last_at + sync_at)?.is_none_or(|byte| byte == [SYNC]);
    Ok(is_packet.then(|| format!("the last packet has {rest} of {packet_bytes} bytes")))
}
