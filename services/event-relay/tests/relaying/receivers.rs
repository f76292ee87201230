//! Receivers of webhooks on real sockets, well-behaved and not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::CloudEvent;
use parking_lot::Mutex;
use ring::hmac;
use testkit::eventually;

const DEADLINE: Duration = Duration::from_secs(60);

/// How a receiver answers.
#[derive(Debug, Clone)]
pub enum Answer {
    /// With this status.
    Status(u16),
    /// With this status where the body has the text, and with 204 elsewhere.
    StatusFor(String, u16),
    /// Never.
    Hang,
    /// With a redirect.
    Redirect(String),
    /// With this status, and a body without end.
    Endless(u16),
    /// With a head without end.
    EndlessHead,
}

/// What a receiver got.
#[derive(Debug, Clone)]
pub struct Message {
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// What it was answered.
    pub status: u16,
}

impl Message {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    pub fn event(&self) -> CloudEvent {
        CloudEvent::from_json(&self.body).unwrap()
    }
}

pub struct Receiver {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    got: Arc<Mutex<Vec<Message>>>,
}

impl Receiver {
    pub fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, got) = (Arc::new(Mutex::new(answer)), Arc::new(Mutex::new(Vec::new())));
        let receiver = Self { address, answer: Arc::clone(&answer), got: Arc::clone(&got) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, got) = (Arc::clone(&answer), Arc::clone(&got));
                // A sender that goes away ends the thread.
                std::thread::spawn(move || drop(serve(&stream, &answer, &got)));
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?key=private", self.address)
    }

    pub fn answer(&self, answer: Answer) {
        *self.answer.lock() = answer;
    }

    pub fn got(&self) -> Vec<Message> {
        self.got.lock().clone()
    }

    pub async fn wait_for(&self, count: usize) -> Vec<Message> {
        self.wait_until(|_| true, count).await
    }

    pub async fn wait_until(&self, wanted: impl Fn(&Message) -> bool, count: usize) -> Vec<Message> {
        eventually(DEADLINE, || async {
            let got: Vec<_> = self.got().into_iter().filter(&wanted).collect();
            if got.len() >= count { Ok(got) } else { Err(format!("{} of {count}", got.len())) }
        })
        .await
    }
}

fn serve(stream: &TcpStream, answer: &Mutex<Answer>, got: &Mutex<Vec<Message>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line)?;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let answer = answer.lock().clone();
    let text = String::from_utf8_lossy(&body).into_owned();
    let status = match &answer {
        Answer::Status(status) | Answer::Endless(status) => *status,
        Answer::StatusFor(part, status) if text.contains(part) => *status,
        Answer::StatusFor(..) => 204,
        Answer::Redirect(_) => 307,
        Answer::Hang | Answer::EndlessHead => 0,
    };
    got.lock().push(Message { headers, body, status });
    let mut stream = stream;
    match answer {
        Answer::Hang => std::thread::sleep(Duration::from_secs(3_600)),
        Answer::Redirect(to) => {
            write!(stream, "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")?;
        }
        Answer::Endless(_) => {
            write!(stream, "HTTP/1.1 {status} Some\r\nContent-Length: 10000000000\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 64 * 1024])?;
            }
        }
        Answer::EndlessHead => {
            write!(stream, "HTTP/1.1 200 OK\r\n")?;
            loop {
                stream.write_all(b"X-More: and more and more and more and more\r\n")?;
            }
        }
        Answer::Status(_) | Answer::StatusFor(..) => {
            write!(stream, "HTTP/1.1 {status} Some\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
        }
    }
    Ok(())
}

/// Verifies a message as receivers do: https://www.standardwebhooks.com.
pub fn verify(secret: &str, message: &Message) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [
        message.header("webhook-id").as_bytes(),
        b".",
        message.header("webhook-timestamp").as_bytes(),
        b".",
        &message.body,
    ]
    .concat();
    let given = message.header("webhook-signature").split(' ');
    given
        .filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
        .any(|tag| hmac::verify(&key, &signed, &tag).is_ok())
}
