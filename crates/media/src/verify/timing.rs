//! Frames come at one pace, over every joint.

use super::{Examined, Promise, wrong};
use crate::error::Result;
use crate::rational::Rational;

/// A track's clock may not divide into frames evenly; a frame is then within a tick of its place.
const ROUNDING_TICKS: i128 = 1;

pub(super) fn check(promise: &Promise, rung: &Examined) -> Result<()> {
    rung.require_continuity()?;
    match promise.frame_rate {
        Some(rate) => check_grid(promise.offset, rate, rung),
        None => check_order(rung),
    }
}

/// Frame `n` of the film is shown at `offset + n / rate`, and belongs to the segment that holds `n`.
fn check_grid(offset: Rational, rate: Rational, rung: &Examined) -> Result<()> {
    let timescale = i128::from(rung.verified.track.timescale);
    let place = |frame: i128| {
        let from_zero = rounded(frame * timescale * i128::from(rate.den()), i128::from(rate.num()));
        rounded(i128::from(offset.num()) * timescale, i128::from(offset.den())) + from_zero
    };
    let mut frame = 0;
    for (number, segment) in rung.segments.iter().enumerate() {
        let mut times: Vec<i128> = segment.samples.iter().map(|sample| sample.presentation_time()).collect();
        times.sort_unstable();
        for time in times {
            if (time - place(frame)).abs() > ROUNDING_TICKS {
                return Err(wrong(format!(
                    "{}: frame {frame}, in segment {number}, is shown at {time} ticks and not at {}",
                    rung.name(),
                    place(frame)
                )));
            }
            frame += 1;
        }
    }
    Ok(())
}

/// Whatever their pace, no frame is shown twice or behind one of a later segment.
fn check_order(rung: &Examined) -> Result<()> {
    let mut last: Option<i128> = None;
    for (number, segment) in rung.segments.iter().enumerate() {
        let mut times: Vec<i128> = segment.samples.iter().map(|sample| sample.presentation_time()).collect();
        times.sort_unstable();
        for time in times {
            if last.is_some_and(|last| time <= last) {
                return Err(wrong(format!(
                    "{}: segment {number} shows a frame at {time} ticks, behind one that follows it",
                    rung.name()
                )));
            }
            last = Some(time);
        }
    }
    Ok(())
}

fn rounded(num: i128, den: i128) -> i128 {
    (2 * num + den).div_euclid(2 * den.max(1))
}
