use events::recording::SessionChannel::{ErrorOutput, Input, Outcome, Output, Resize};

use super::super::spdy_headers::tests::Compressed;
use super::*;

/// A frame of a WebSocket; a client's is masked.
fn frame(first: u8, side: Side, payload: &[u8]) -> Vec<u8> {
    let masked = side == Side::Client;
    let mut frame = vec![first];
    let bit = if masked { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => frame.push(bit | u8::try_from(length).unwrap()),
        length @ 126..65536 => {
            frame.push(bit | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(bit | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    let mask = if masked { [7, 11, 13, 17] } else { [0; 4] };
    if masked {
        frame.extend(mask);
    }
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn message(side: Side, channel: u8, text: &[u8]) -> Vec<u8> {
    frame(0x82, side, &[&[channel], text].concat())
}

fn socket(subprotocol: &'static str) -> Channels {
    let mut answer = HeaderMap::new();
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    Channels::of(&HeaderValue::from_static("websocket"), &answer).unwrap()
}

fn spdy() -> Channels {
    Channels::of(&HeaderValue::from_static("SPDY/3.1"), &HeaderMap::new()).unwrap()
}

/// What is heard of bytes that come in pieces of this size, each channel's together.
fn heard(channels: &mut Channels, side: Side, bytes: &[u8], piece: usize) -> Vec<(SessionChannel, Vec<u8>)> {
    let mut all: Vec<(SessionChannel, Vec<u8>)> = Vec::new();
    for piece in bytes.chunks(piece) {
        for ChannelData { channel, bytes } in channels.read(side, piece).unwrap() {
            match all.last_mut().filter(|(last, _)| *last == channel) {
                Some((_, text)) => text.extend_from_slice(&bytes),
                None => all.push((channel, bytes.to_vec())),
            }
        }
    }
    all
}

#[test]
fn a_websocket_is_understood_however_its_bytes_come() {
    let large = vec![b'x'; 70_000];
    let client = [
        message(Side::Client, 0, b"ls -l\n"),
        frame(0x89, Side::Client, b"ping"),
        message(Side::Client, 4, br#"{"Width":80,"Height":24}"#),
        message(Side::Client, 0, &[b'y'; 300]),
        message(Side::Client, 255, &[0]),
    ]
    .concat();
    let cluster = [
        message(Side::Cluster, 1, b""),
        message(Side::Cluster, 1, &large),
        message(Side::Cluster, 2, b"oh"),
        frame(0x8a, Side::Cluster, b"ping"),
        message(Side::Cluster, 3, br#"{"status":"Success"}"#),
        frame(0x88, Side::Cluster, &[3, 232]),
    ]
    .concat();
    for piece in [1, 2, 3, 7, 64, 4096, usize::MAX] {
        let mut channels = socket("v5.channel.k8s.io");
        let of_client = heard(&mut channels, Side::Client, &client, piece);
        let input = vec![
            (Input, b"ls -l\n".to_vec()),
            (Resize, br#"{"Width":80,"Height":24}"#.to_vec()),
            (Input, vec![b'y'; 300]),
        ];
        assert_eq!(of_client, input, "{piece}");
        let of_cluster = heard(&mut channels, Side::Cluster, &cluster, piece);
        let output = vec![
            (Output, large.clone()),
            (ErrorOutput, b"oh".to_vec()),
            (Outcome, br#"{"status":"Success"}"#.to_vec()),
        ];
        assert_eq!(of_cluster, output, "{piece}");
    }
}

#[test]
fn channels_of_a_browser_may_be_base64() {
    let client = [frame(0x81, Side::Client, b"0bHM="), frame(0x81, Side::Client, b"4e30=")].concat();
    for piece in [1, 3, usize::MAX] {
        let of_client = heard(&mut socket("base64.channel.k8s.io"), Side::Client, &client, piece);
        assert_eq!(of_client, [(Input, b"ls".to_vec()), (Resize, b"{}".to_vec())], "{piece}");
    }
    let wrong = frame(0x81, Side::Client, b"0***");
    assert!(socket("base64.channel.k8s.io").read(Side::Client, &wrong).is_err());
}

#[test]
fn nobody_puts_words_into_anothers_mouth() {
    let forged = message(Side::Client, 1, b"all is well");
    assert_eq!(socket("v4.channel.k8s.io").read(Side::Client, &forged).unwrap(), []);
    let forged = message(Side::Cluster, 0, b"rm");
    assert_eq!(socket("v4.channel.k8s.io").read(Side::Cluster, &forged).unwrap(), []);
}

/// The API server takes each frame for a message, whatever it says that it is.
#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let split = [frame(0x02, Side::Client, &[9, b'x']), frame(0x80, Side::Client, b"\0rm")].concat();
    let compressed = frame(0xc2, Side::Client, b"\0rm");
    // Kinds that nobody knows are messages there, and the first bit of a length is none.
    let other_kind = frame(0x8b, Side::Client, b"\0rm");
    let endless = [&[0x82, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0][..], &[9, b'x']].concat();
    for hidden in [split, frame(0x80, Side::Client, b"\0rm"), compressed, other_kind, endless] {
        assert!(socket("v5.channel.k8s.io").read(Side::Client, &hidden).is_err());
    }
    let mut answer = HeaderMap::new();
    answer.insert(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static("permessage-deflate"));
    assert!(Channels::of(&HeaderValue::from_static("websocket"), &answer).is_err());
    answer.clear();
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("SPDY/3.1+portforward.k8s.io"));
    assert!(Channels::of(&HeaderValue::from_static("websocket"), &answer).is_err());
    assert!(Channels::of(&HeaderValue::from_static("h2c"), &HeaderMap::new()).is_err());
    answer.clear();
    answer.insert(STREAM_PROTOCOL, HeaderValue::from_static("portforward.k8s.io"));
    assert!(Channels::of(&HeaderValue::from_static("SPDY/3.1"), &answer).is_err());
    assert!(spdy().read(Side::Client, b"GET / HTTP/1.1\r\n").is_ok(), "data of a stream that nobody opened");
    assert!(spdy().read(Side::Client, &[0x80, 2, 0, 1, 0, 0, 0, 10]).is_err(), "an older version");
    assert!(spdy().read(Side::Client, &[0x80, 3, 0, 1, 0, 0xff, 0, 0]).is_err(), "too large");
}

/// Servers read resets and pings as they are long, whatever their frames say.
#[test]
fn frames_of_spdy_that_servers_read_otherwise_are_refused() {
    let with_hidden = |kind, length: usize| {
        let body = [vec![1; length], data(3, b"rm")].concat();
        let long = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0x80, 3, 0, kind, 0], &long[1..], &body].concat()
    };
    for (kind, length) in [(3, 8), (4, 4), (6, 4), (7, 8), (9, 8), (5, 0), (11, 0)] {
        assert!(spdy().read(Side::Client, &with_hidden(kind, length)).is_err(), "{kind}");
    }
    assert!(spdy().read(Side::Client, &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]).is_ok(), "a ping");
    let settings = [&[0x80, 3, 0, 4, 0, 0, 0, 12][..], &[0, 0, 0, 1], &[0; 8]].concat();
    assert!(spdy().read(Side::Client, &settings).is_ok(), "settings");
    for id in [0x8000_0003, 3, 5, 0] {
        let (mut channels, mut compressed) = (spdy(), Compressed::default());
        let mut open = |id, name| {
            let opens = control(1, id, &compressed.block(&[("streamtype", name)]));
            channels.read(Side::Client, &opens)
        };
        let (first, second) = (open(id, "?"), open(3, "stdin"));
        assert!(first.is_err() || second.is_err(), "{id}");
        assert!(open(7, "stdin").is_ok(), "what is compressed goes on");
    }
}

#[test]
fn what_is_offered_is_understood_or_refused_before_it_is_asked_for() {
    let offers = |protocol, name: HeaderName, values: &[&'static str]| {
        let values = values.iter().map(|value| (name.clone(), HeaderValue::from_static(value)));
        Channels::check_offered(&HeaderValue::from_static(protocol), &values.collect::<HeaderMap>())
    };
    let of_browsers = "v5.channel.k8s.io, v4.base64.channel.k8s.io,base64.channel.k8s.io";
    assert!(offers("websocket", SEC_WEBSOCKET_PROTOCOL, &[of_browsers]).is_ok());
    assert!(offers("websocket", SEC_WEBSOCKET_PROTOCOL, &[]).is_ok());
    assert!(offers("websocket", SEC_WEBSOCKET_PROTOCOL, &["v5.channel.k8s.io, v6.channel.k8s.io"]).is_err());
    assert!(offers("SPDY/3.1", STREAM_PROTOCOL, &["v4.channel.k8s.io", "channel.k8s.io"]).is_ok());
    assert!(offers("SPDY/3.1", STREAM_PROTOCOL, &["v4.channel.k8s.io", "portforward.k8s.io"]).is_err());
}

fn control(kind: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    if kind == 1 {
        body.extend([0; 6]);
    }
    body.extend(block);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0x80, 3, 0, kind, 0], &length[1..], &body].concat()
}

fn data(stream: u32, text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&stream.to_be_bytes()[..], &[0], &length[1..], text].concat()
}

#[test]
fn streams_of_spdy_are_understood_however_their_bytes_come() {
    let mut compressed = Compressed::default();
    let mut client = Vec::new();
    for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr"), (9, "resize"), (11, "?")]
    {
        client.extend(control(1, stream, &compressed.block(&[("streamtype", name)])));
    }
    client.extend(control(8, 3, &compressed.block(&[("date", "today")])));
    client.extend(control(6, 1, &[]));
    for (stream, text) in [(3, "ls -l\n"), (5, "forged"), (9, "{}"), (11, "?"), (3, ""), (3, "exit\n")] {
        client.extend(data(stream, text.as_bytes()));
    }
    let mut cluster = control(2, 1, b"headers of the other direction");
    for (stream, text) in [(5, "total 0"), (7, "oh"), (1, "{}")] {
        cluster.extend(data(stream, text.as_bytes()));
    }
    for piece in [1, 2, 5, 64, usize::MAX] {
        let mut channels = spdy();
        let of_client = heard(&mut channels, Side::Client, &client, piece);
        let input = [(Input, "ls -l\n"), (Resize, "{}"), (Input, "exit\n")];
        assert_eq!(of_client, input.map(|(channel, text)| (channel, text.as_bytes().to_vec())), "{piece}");
        let of_cluster = heard(&mut channels, Side::Cluster, &cluster, piece);
        let output = [(Output, "total 0"), (ErrorOutput, "oh"), (Outcome, "{}")];
        assert_eq!(of_cluster, output.map(|(channel, text)| (channel, text.as_bytes().to_vec())), "{piece}");
    }
}
