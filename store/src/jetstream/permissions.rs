//! What a service may do on the servers to use the log as it says it does.

use events::Stream;
use events::access::{Access, Keys, Permissions, Use, inbox};

use super::records::{STORED, stream_name, token};
use super::{blobs, checkpoints, keyring, meta, nats, snapshots};
use crate::folded::anchor_name;
use crate::retention::{generation_name, next_name};

/// What a service may do on the servers of a log with so many partitions.
#[must_use]
pub fn permissions(access: &Access, partitions: u16) -> Permissions {
    let mut may = Permissions::default();
    may.allow_publish(nats::QUESTION);
    may.allow_publish("$JS.API.STREAM.INFO.*");
    may.allow_subscribe(format!("{}.>", inbox(access.service)));
    may.allow_subscribe(format!("{STORED}.{}.>", keyring::TOKEN));
    reads(&mut may, meta::STREAM);
    reads(&mut may, keyring::STREAM);
    reads(&mut may, checkpoints::STREAM);
    if access.makes_log {
        may.allow_publish("$JS.API.STREAM.CREATE.*");
        may.allow_publish("$JS.API.STREAM.UPDATE.*");
        may.allow_publish(meta::SUBJECT);
        // It counts what is in each partition.
        may.allow_publish(checkpoints::SUBJECTS);
        for stream in Stream::ALL {
            (0..partitions).for_each(|partition| reads(&mut may, &stream_name((*stream, partition))));
        }
    }
    for stream in access.lets_go {
        for partition in 0..partitions {
            may.allow_publish(format!("$JS.API.STREAM.PURGE.{}", stream_name((*stream, partition))));
        }
    }
    for kind in access.decides {
        may.allow_publish(format!("kasbah.{}.*.*.{kind}.*", token(Stream::Decisions)));
    }
    for stream in access.appends {
        may.allow_publish(format!("kasbah.{}.>", token(*stream)));
    }
    for stream in Stream::ALL {
        let follows = *stream == Stream::Decisions || access.reads.contains(stream);
        if follows {
            may.allow_subscribe(format!("{STORED}.{}.>", token(*stream)));
        }
        // Whether an append that nobody answered was stored can only be read.
        if follows || access.appends.contains(stream) {
            (0..partitions).for_each(|partition| replays(&mut may, &stream_name((*stream, partition))));
        }
    }
    if access.makes_consumers {
        for partition in 0..partitions {
            let stream = stream_name((Stream::Exports, partition));
            may.allow_publish(format!("$JS.API.CONSUMER.LIST.{stream}"));
            for verb in ["CREATE", "INFO", "PAUSE", "DELETE"] {
                may.allow_publish(format!("$JS.API.CONSUMER.{verb}.{stream}.*"));
            }
        }
    }
    keeps(&mut may, access);
    may
}

/// What whoever copies a log may do on the servers, beside what all services may together: write all that a log can hold.
#[must_use]
pub fn copier(partitions: u16) -> Permissions {
    let mut may = Permissions::default();
    for stream in Stream::ALL {
        may.allow_publish(format!("kasbah.{}.>", token(*stream)));
        (0..partitions).for_each(|partition| replays(&mut may, &stream_name((*stream, partition))));
    }
    may.allow_publish(format!("kasbah.{}.>", keyring::TOKEN));
    may.allow_publish(blobs::SUBJECTS);
    may
}

/// Everything but the log itself.
fn keeps(may: &mut Permissions, access: &Access) {
    if access.blobs != Use::None {
        reads(may, blobs::STREAM);
    }
    if access.blobs == Use::Writes {
        may.allow_publish(blobs::SUBJECTS);
    }
    for keys in access.keys {
        let names: &[&str] = match keys {
            Keys::Organizations => &["organization.*"],
            Keys::Persons => &["person.*"],
            Keys::Credentials => &["credential.*"],
            Keys::Root => &["root", "root.*"],
            Keys::CertificateAuthority => &["certificate-authority"],
            Keys::TunnelTickets => &["tunnel-tickets"],
        };
        for names in names {
            may.allow_publish(format!("kasbah.{}.{names}", keyring::TOKEN));
        }
    }
    let mut kept: Vec<String> = access.projections.iter().map(|name| (*name).to_owned()).collect();
    for projection in access.anchors {
        kept.extend([anchor_name(projection), next_name(projection)]);
    }
    kept.extend(access.lets_go.iter().map(|stream| generation_name(*stream)));
    if !kept.is_empty() {
        replays(may, snapshots::STREAM);
        may.allow_publish(format!("$JS.API.STREAM.PURGE.{}", snapshots::STREAM));
    }
    for name in &kept {
        may.allow_publish(snapshots::head_subject(name));
        may.allow_publish(snapshots::part_subjects(name));
    }
}

/// Single messages of a stream.
fn reads(may: &mut Permissions, stream: &str) {
    may.allow_publish(format!("$JS.API.STREAM.MSG.GET.{stream}"));
    may.allow_publish(format!("{}{stream}", nats::DIRECT_GET));
}

/// Long stretches of it, too.
fn replays(may: &mut Permissions, stream: &str) {
    reads(may, stream);
    for verb in ["CREATE", "MSG.NEXT", "DELETE"] {
        may.allow_publish(format!("$JS.API.CONSUMER.{verb}.{stream}.*"));
    }
}
