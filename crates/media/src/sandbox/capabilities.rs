//! A tool that is started by root is root in name only.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// An operator who is root may process what others own: which files, Landlock says.
const KEPT: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Gives up every capability but [`KEPT`]. With no_new_privs in force `exec` gives none back, not even to root.
pub(super) fn give_up() -> rustix::io::Result<()> {
    let held = capabilities(None)?;
    let kept = held.permitted & KEPT;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )
}
