//! Exit codes.

use events::RefusalKind;

/// The command did what it was to do.
pub const DONE: i32 = 0;
/// It failed for a reason that has no code of its own.
pub const FAILED: i32 = 1;
/// The command line, or a value in it, is wrong.
pub const USAGE: i32 = 2;
/// There is no such thing, or the caller may not know of it.
pub const NOT_FOUND: i32 = 3;
/// The caller may not do this, or is not known.
pub const DENIED: i32 = 4;
/// The state does not allow it, or the name is taken.
pub const CONFLICT: i32 = 5;
/// The server cannot be reached, or cannot serve now; trying again may help.
pub const UNAVAILABLE: i32 = 6;
/// A setting is wrong: of a server process, in a file, or of where and as whom a client asks.
pub const BAD_CONFIGURATION: i32 = chassis::args::EXIT_BAD_CONFIGURATION;

/// `kasbah source diff`: the cluster is other than Git has it. `kasbah diff` and `kasbah env diff`: an object was another.
pub const DIFFERS: i32 = 1;
/// All of them: there is no comparison.
pub const NOT_COMPARED: i32 = 2;

/// What the help of `kasbah source diff` says about its codes, which are those of `kubectl diff`.
pub const DIFF_HELP: &str = "Exit codes:
  0   no difference
  1   a difference, or something that a sync would be refused: an object, or the newest commit
  2   an error: there is no comparison";

/// The same of `kasbah diff` and `kasbah env diff`.
pub const OBJECT_DIFF_HELP: &str = "Exit codes:
  0   no difference
  1   a difference
  2   an error: there is no comparison";

/// What `--help` says about them.
pub const HELP: &str = "Exit codes:
  0   done
  1   failed
  2   the command line, or a value in it, is wrong
  3   not found, or not visible to you
  4   denied, or the token is not valid
  5   conflict: the state does not allow it, or the name is taken
  6   unavailable: the server cannot be reached or cannot serve now; retry
  64  settings are wrong
`kasbah diff`, `kasbah env diff` and `kasbah source diff` have codes of their own: see their help";

/// The code for a refusal.
#[must_use]
pub const fn of(kind: RefusalKind) -> i32 {
    match kind {
        RefusalKind::Invalid => USAGE,
        RefusalKind::Unauthenticated | RefusalKind::Denied => DENIED,
        RefusalKind::NotFound => NOT_FOUND,
        RefusalKind::Conflict => CONFLICT,
        RefusalKind::Unavailable => UNAVAILABLE,
        RefusalKind::Internal => FAILED,
    }
}
