//! A receiver of webhooks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

/// A receiver that answers by path and body; its address, without a path.
pub fn receiver_with(answer: impl Fn(&str, &[u8]) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut line, mut length, mut path) = (String::new(), 0, String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if path.is_empty() {
                    path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_ok() {
                drop(reader.get_mut().write_all(answer(&path, &body).as_bytes()));
            }
        }
    });
    url
}
