//! The kinds this binary runs. A new kind is one file and one line here.

mod pause;

use telecine_queue::{Kind, Kinds};

macro_rules! registry {
    ($($kind:expr),+ $(,)?) => {
        /// Every kind, to be run by a worker.
        pub(crate) fn all() -> Kinds {
            Kinds::new()$(.with($kind))+
        }

        /// The lane that a kind's jobs belong to; `None` when this program does not know the kind.
        pub(crate) fn lane_of(name: &str) -> Option<&'static str> {
            [$(($kind.name(), $kind.lane())),+].into_iter().find(|(known, _)| *known == name).map(|(_, lane)| lane)
        }
    };
}

registry![pause::Pause];
