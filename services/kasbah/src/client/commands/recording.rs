//! `kasbah recording`.

use std::io::Write as _;

use anstream::adapter::StripStr;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::Timestamp;
use events::recording::SessionChannel;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::failure::Failure;
use crate::client::print::one_line;
use crate::client::session::Session;

/// Which recording, and how it is shown.
#[derive(Debug, clap::Args)]
pub struct Recording {
    /// Session id, as `kasbah audit` shows it behind `recorded`
    session: String,
    /// Print the session's input instead of its output
    #[arg(long)]
    input: bool,
    /// Print byte for byte, including terminal control sequences
    #[arg(long)]
    raw: bool,
    /// Print an asciicast (version 2) for `asciinema play`
    #[arg(long, conflicts_with_all = ["input", "raw"])]
    asciicast: bool,
}

/// A line of the answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line {
    Piece { at_millis: u64, channel: SessionChannel, bytes: String },
    Gap,
    End { is_over: bool },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(wanted: Recording, session: &Session) -> Result<(), Failure> {
    let mut lines = session.api.open(&["log", "recordings", &wanted.session], &[]).await?;
    let mut view = View::of(&wanted, began_at(&wanted.session).unwrap_or(Timestamp(0)));
    while let Some(text) = lines.next().await? {
        if text.is_empty() {
            continue;
        }
        let unreadable = |error: serde_json::Error| Failure::Unreadable {
            server: "the server".to_owned(),
            detail: format!("a malformed recording: {error}"),
        };
        let value: Value = serde_json::from_str(&text).map_err(unreadable)?;
        if !session.is_for_people() {
            session.printer.show_line(&value, |_, _| String::new())?;
            continue;
        }
        match serde_json::from_value(value).map_err(unreadable)? {
            Line::Piece { at_millis, channel, bytes } => {
                let bytes = STANDARD.decode(bytes).unwrap_or_default();
                if channel == SessionChannel::Request && !wanted.asciicast {
                    eprintln!("$ {}", one_line(&command(&bytes)));
                }
                write(&view.of_piece(at_millis, channel, &bytes))?;
            }
            Line::Gap => eprintln!("warning: a part of the recording is missing here"),
            Line::End { is_over: true } => {}
            Line::End { is_over: false } => {
                eprintln!("note: the recording has no end: the session continues, or its gateway died");
            }
        }
    }
    Ok(())
}

/// When a session began, which its id tells (RFC 9562, section 5.7).
fn began_at(session: &str) -> Option<Timestamp> {
    let (seconds, nanos) = Uuid::parse_str(session).ok()?.get_timestamp()?.to_unix();
    i64::try_from(seconds * 1000 + u64::from(nanos / 1_000_000)).ok().map(Timestamp)
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|detail| Failure::Io { doing: "print".to_owned(), detail })
}

/// How pieces are shown.
struct View {
    is_shown: fn(SessionChannel) -> bool,
    shown_as: ShownAs,
    output: Texts,
    input: Texts,
}

enum ShownAs {
    Text(Box<StripStr>),
    Raw,
    Asciicast { begins: Option<Timestamp>, command: String },
}

impl View {
    fn of(wanted: &Recording, began: Timestamp) -> Self {
        let is_shown: fn(SessionChannel) -> bool = match (wanted.asciicast, wanted.input) {
            (true, _) => |channel| channel != SessionChannel::Outcome,
            (false, true) => |channel| channel == SessionChannel::Input,
            (false, false) => {
                |channel| matches!(channel, SessionChannel::Output | SessionChannel::ErrorOutput)
            }
        };
        let shown_as = match (wanted.asciicast, wanted.raw) {
            (true, _) => ShownAs::Asciicast { begins: Some(began), command: String::new() },
            (false, true) => ShownAs::Raw,
            (false, false) => ShownAs::Text(Box::default()),
        };
        Self { is_shown, shown_as, output: Texts::default(), input: Texts::default() }
    }

    /// What is written of a piece.
    fn of_piece(&mut self, at_millis: u64, channel: SessionChannel, bytes: &[u8]) -> Vec<u8> {
        if !(self.is_shown)(channel) {
            return Vec::new();
        }
        if matches!(self.shown_as, ShownAs::Raw) {
            return bytes.to_vec();
        }
        let texts = if channel == SessionChannel::Input { &mut self.input } else { &mut self.output };
        let text = match channel {
            SessionChannel::Request => command(bytes),
            SessionChannel::Resize => size(bytes).unwrap_or_default(),
            _ => texts.next(bytes),
        };
        match &mut self.shown_as {
            ShownAs::Raw => bytes.to_vec(),
            ShownAs::Text(strip) => bare(strip, &text).into(),
            ShownAs::Asciicast { command, .. } if channel == SessionChannel::Request => {
                *command = text;
                Vec::new()
            }
            ShownAs::Asciicast { begins, command } => {
                let head = begins.take().map(|began| {
                    let seconds = began.0.div_euclid(1000);
                    let head = json!({
                        "version": 2, "width": 80, "height": 24, "timestamp": seconds, "command": command,
                    });
                    head.to_string() + "\n"
                });
                let line = (!text.is_empty()).then(|| cast(at_millis, channel, &text));
                (head.unwrap_or_default() + &line.unwrap_or_default()).into()
            }
        }
    }
}

/// Text without what a terminal would obey. That ends with its line at the latest, so that nothing is hidden behind it for good.
fn bare(strip: &mut StripStr, text: &str) -> String {
    let mut bare = String::new();
    for line in text.split_inclusive('\n') {
        let shown = strip.strip_next(line).flat_map(str::chars);
        bare.extend(shown.filter(|char| *char == '\t' || !char.is_control()));
        if line.ends_with('\n') {
            *strip = StripStr::default();
            bare.push('\n');
        }
    }
    bare
}

/// The command of a request, word by word; nothing of one that has none.
fn command(request: &[u8]) -> String {
    let request = String::from_utf8_lossy(request);
    let Ok(url) = reqwest::Url::parse(&format!("http://cluster{request}")) else { return String::new() };
    let words = url.query_pairs().filter(|(name, _)| name == "command").map(|(_, word)| word.into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// A line of an asciicast, version 2.
fn cast(at_millis: u64, channel: SessionChannel, text: &str) -> String {
    let code = match channel {
        SessionChannel::Input => "i",
        SessionChannel::Resize => "r",
        _ => "o",
    };
    // The time is a number of seconds; written by hand, as it is exact that way.
    let time = format!("{}.{:03}", at_millis / 1000, at_millis % 1000);
    format!("[{time}, {}, {}]\n", json!(code), json!(text))
}

/// `80x24`.
fn size(resize: &[u8]) -> Option<String> {
    let size: Value = serde_json::from_slice(resize).ok()?;
    Some(format!("{}x{}", size.get("Width")?.as_u64()?, size.get("Height")?.as_u64()?))
}

/// Text out of pieces that may end within a character.
#[derive(Default)]
struct Texts {
    rest: Vec<u8>,
}

impl Texts {
    fn next(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // What is no text at all is shown as such.
            Ok(_) | Err(_) => self.rest.len(),
        };
        let rest = self.rest.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.rest, rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::SessionChannel::{ErrorOutput, Input, Outcome, Output, Request, Resize};
    use super::*;

    const SAID: [(u64, SessionChannel, &[u8]); 8] = [
        (0, Request, b"/api/v1/namespaces/a/pods/b/exec?command=sh&command=-c&command=ls%20-l&stdin=true"),
        (0, Resize, br#"{"Width":120,"Height":40}"#),
        (5, Input, b"ls\r"),
        (1_250, Output, "\u{1b}[31mcaf\u{e9}".as_bytes().split_at(9).0),
        (1_251, Output, b"\xa9\x1b[0m\r\n\x07"),
        (1_300, ErrorOutput, b"oh\x1b]0;title\x07!\x1b]hidden\nnot\n"),
        (1_301, Outcome, b"{}"),
        (2_000, Output, b"\xff\n"),
    ];

    fn shown(input: bool, raw: bool, asciicast: bool) -> Vec<u8> {
        let wanted = Recording { session: String::new(), input, raw, asciicast };
        let mut view = View::of(&wanted, Timestamp(7_999));
        SAID.iter().flat_map(|(at, channel, bytes)| view.of_piece(*at, *channel, bytes)).collect()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_was_said_is_shown_without_what_a_terminal_obeys() {
        assert_eq!(text(shown(false, false, false)), "café\noh!\nnot\n\u{fffd}\n");
        assert_eq!(text(shown(true, false, false)), "ls");
    }

    #[test]
    fn an_id_tells_when_its_session_began() {
        let began = began_at("01a2f3a2-5c1e-7d40-9a53-2f0e8b1c7d11");
        assert_eq!(began, Some(Timestamp(0x01a2_f3a2_5c1e)));
        assert_eq!(began_at("web"), None);
    }

    #[test]
    fn raw_is_byte_for_byte() {
        let said = SAID.iter().filter(|(_, channel, _)| matches!(channel, Output | ErrorOutput));
        assert_eq!(
            shown(false, true, false),
            said.flat_map(|(_, _, bytes)| *bytes).copied().collect::<Vec<_>>()
        );
        assert_eq!(shown(true, true, false), b"ls\r");
    }

    #[test]
    fn an_asciicast_has_a_head_and_a_line_for_each_piece() {
        let cast = text(shown(false, false, true));
        let lines: Vec<Value> = cast.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines[0],
            json!({"version": 2, "width": 80, "height": 24, "timestamp": 7, "command": "sh -c ls -l"})
        );
        let pieces = [
            json!([0.0, "r", "120x40"]),
            json!([0.005, "i", "ls\r"]),
            json!([1.25, "o", "\u{1b}[31mcaf"]),
            json!([1.251, "o", "é\u{1b}[0m\r\n\u{7}"]),
            json!([1.3, "o", "oh\u{1b}]0;title\u{7}!\u{1b}]hidden\nnot\n"]),
            json!([2.0, "o", "\u{fffd}\n"]),
        ];
        assert_eq!(lines[1..], pieces);
    }
}
