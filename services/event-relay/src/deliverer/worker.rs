//! One subscription: reads the exports of its organization, and sends what is wanted, one event after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use events::export::{ExportLane, ExportPosition, Resume, Resumed, gap_before};
use events::requests::subscriptions::DeadLetter;
use events::subject::partition_of_organization;
use events::subscription::SendFrom;
use events::{CloudEvent, Position, Stream, SubscriptionId, Timestamp};
use http::{HeaderMap, HeaderValue, header};
use store::{Backoff, FollowReader, Followed, ReadFilter, Record};

use super::Deliverer;
use crate::cursors::{Failing, Group, Progress};
use crate::message::{Message, render, render_alert};
use crate::model::{State, Subscription};
use crate::sender::Sent;
use crate::signature::{Secret, WebhookUrl, signatures};

/// Pauses between attempts at one event. None is shorter than the first one may be.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(3_600) };
/// How long a receiver may take nothing before it is given up.
const PATIENCE_MILLIS: i64 = 3 * 24 * 3_600_000;
/// How often a receiver may say that it does not want an event before the event is given up.
const REFUSALS: u32 = 6;
/// Longest wait for an alert that is due later.
const LONGEST_WAIT_MILLIS: i64 = 60_000;
/// Pause when the log cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The receiver has it.
    Delivered,
    /// It is a dead letter.
    Buried,
    /// The subscription changed, or was parked: it is begun anew where it was.
    Again,
}

impl Deliverer {
    /// Sends until the subscription is deleted, or this task is ended.
    pub(super) async fn work(self: Arc<Self>, id: SubscriptionId, group: Group) {
        loop {
            let Some(subscription) = self.fold.read(|state| state.subscription(id).cloned()) else { return };
            if let Err(error) = self.send(id, group, &subscription).await {
                tracing::warn!(subscription = %id, error = format!("{error:#}"), "events are not sent now");
                self.deps.world.clock.sleep(PAUSE).await;
            }
        }
    }

    /// Goes by where the subscription was placed last, and whether it was resumed since.
    fn take_up(&self, id: SubscriptionId, group: Group, known: &Subscription) {
        self.update(group, id, |progress| {
            if progress.placed != known.placed {
                // Dead letters stay: they were refused, wherever reading goes on.
                let (letters, dropped) = (std::mem::take(&mut progress.letters), progress.dropped);
                *progress = Progress { placed: known.placed, letters, dropped, ..Progress::default() };
            }
            if progress.resumed != known.resumed {
                (progress.resumed, progress.parked, progress.failing) = (known.resumed, None, None);
            }
            // What waits is met again.
            if progress.parked.is_none() {
                progress.oldest = None;
            }
        });
    }

    /// Sends events until the subscription changes.
    async fn send(&self, id: SubscriptionId, group: Group, known: &Subscription) -> anyhow::Result<()> {
        self.take_up(id, group, known);
        if known.paused.is_none() {
            self.send_letters(id, group, known).await?;
        }
        let progress = self.progress(group, id);
        if progress.parked.is_some() {
            return self.changed(id, known).await;
        }
        let (mut records, mut resume) = self.open(known, &progress).await?;
        let changed = self.changed(id, known);
        let mut changed = std::pin::pin!(changed);
        let clock = &self.deps.world.clock;
        let mut next_look = clock.monotonic();
        loop {
            if known.alerts() && clock.monotonic() >= next_look {
                self.look_at_index(id, group, known).await;
                next_look = clock.monotonic() + self.look_every();
            }
            let look = next_look.saturating_sub(clock.monotonic());
            let due = self.look(group, id, |progress| progress.alerts.due(self.alerts_after)).flatten();
            let wait = due.map_or(0, |due| due.millis_since(self.now())).clamp(0, LONGEST_WAIT_MILLIS);
            let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
            let next = tokio::select! {
                biased;
                changed = &mut changed => return changed,
                next = records.recv() => next.context("the log ended")??,
                () = clock.sleep(look), if known.alerts() => continue,
                () = clock.sleep(wait), if due.is_some() => {
                    if !self.alert(id, group, known, self.now()).await? {
                        return Ok(());
                    }
                    continue;
                }
            };
            if let Followed::Record(record) = next
                && !self.record(id, group, known, &record, &mut resume).await?
            {
                return Ok(());
            }
        }
    }

    /// Reads the exports from where the subscription is.
    async fn open(
        &self,
        known: &Subscription,
        progress: &Progress,
    ) -> anyhow::Result<(FollowReader, Resume)> {
        let log = &self.deps.log;
        let from = match known.from {
            SendFrom::Behind(position) => Some(position),
            SendFrom::Time(_) => None,
        };
        let from = progress.position.or(from);
        let partition = partition_of_organization(known.organization, log.partitions());
        let horizon = log.retained(Stream::Exports).await?.horizon.sequence((Stream::Exports, partition));
        let lane = match horizon > progress.record {
            // What said that another run began may be gone as well.
            true => ExportLane { run: None, ..progress.lane },
            false => progress.lane,
        };
        let resume = Resume::new(from, log.id()).behind(lane);
        let begin = match (progress.record, from, known.from) {
            (0, Some(from), _) => log.position_at(&[Stream::Exports], from.read_since()).await?,
            (0, None, SendFrom::Time(time)) => {
                log.position_at(&[Stream::Exports], time.plus_millis(-1)).await?
            }
            (record, ..) => Position::of(Stream::Exports, partition, record),
        };
        let filter =
            ReadFilter { organization: Some(known.organization), ..ReadFilter::streams(&[Stream::Exports]) };
        Ok((log.follow(&begin, &filter).await?, resume))
    }

    /// Returns once the subscription was changed or deleted.
    async fn changed(&self, id: SubscriptionId, known: &Subscription) -> anyhow::Result<()> {
        let mut changes = self.fold.changes();
        while self.fold.read(|state| state.subscription(id) == Some(known)) {
            changes.changed().await.context("the fold of event-relay ended")?;
        }
        Ok(())
    }

    /// Sends the event of a record, if it is wanted. False when the subscription is to be looked at again.
    async fn record(
        &self,
        id: SubscriptionId,
        group: Group,
        known: &Subscription,
        record: &Record,
        resume: &mut Resume,
    ) -> anyhow::Result<bool> {
        if record.organization != known.organization {
            return Ok(true);
        }
        let Ok(event) = CloudEvent::from_json(&record.bytes) else { return Ok(true) };
        let missed = match resume.take(&event) {
            Resumed::Skip => return Ok(true),
            Resumed::Give => None,
            Resumed::GiveBehindGap(missed) => Some(gap_before(&event, missed)),
        };
        let is_early = matches!(known.from, SendFrom::Time(time) if event.recordedat < time);
        let (mut delivered, position) = (None, ExportPosition::of(&event));
        let next = missed.is_none().then(|| resume.lane());
        for event in missed.into_iter().chain([event]) {
            if is_early || !known.filter.wants(&event) {
                continue;
            }
            if known.alerts() {
                // Alerts that are due before this event are sent first.
                if !self.alert(id, group, known, event.recordedat).await? {
                    return Ok(false);
                }
                self.update(group, id, |progress| progress.alerts.take(&event));
                continue;
            }
            self.update(group, id, |progress| progress.meet(&event, next));
            let message = render(known.format(), &event, self.page_url.as_deref());
            match self.deliver(id, group, known, &message, Some(&event)).await? {
                Outcome::Delivered => delivered = Some(self.now()),
                Outcome::Buried => {}
                Outcome::Again => return Ok(false),
            }
        }
        let lane = resume.lane();
        self.update(group, id, |progress| {
            progress.position = position;
            (progress.lane, progress.record) = (lane, record.sequence);
            (progress.failing, progress.oldest) = (None, None);
            progress.delivered_at = delivered.or(progress.delivered_at);
        });
        Ok(true)
    }

    /// Sends the alerts about environments that are due by now. False when the subscription is to be looked at again.
    async fn alert(
        &self,
        id: SubscriptionId,
        group: Group,
        known: &Subscription,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        while let Some(alert) =
            self.look(group, id, |progress| progress.alerts.alert(now, self.alerts_after)).flatten()
        {
            let named = |state: &State| state.environment_name(alert.environment).map(str::to_owned);
            let name = self.fold.read(named).unwrap_or_else(|| alert.environment.to_string());
            let alert = self.with_chain(known, alert).await;
            let message = render_alert(known.format(), &alert, &name, self.page_url.as_deref());
            self.update(group, id, |progress| progress.oldest = progress.oldest.or(Some(now)));
            if self.deliver(id, group, known, &message, None).await? == Outcome::Again {
                return Ok(false);
            }
            let at = self.now();
            self.update(group, id, |progress| {
                progress.alerts.told(&alert);
                (progress.failing, progress.oldest, progress.delivered_at) = (None, None, Some(at));
            });
        }
        Ok(true)
    }

    /// Sends a message until the receiver has it, or it is given up. While the subscription is paused, the message waits.
    async fn deliver(
        &self,
        id: SubscriptionId,
        group: Group,
        known: &Subscription,
        message: &Message,
        event: Option<&CloudEvent>,
    ) -> anyhow::Result<Outcome> {
        if known.paused.is_some() {
            return self.changed(id, known).await.map(|()| Outcome::Again);
        }
        loop {
            let failing = self.look(group, id, |progress| progress.failing.clone()).flatten();
            let wait = failing.as_ref().map_or(0, |failing| failing.next.millis_since(self.now()));
            if let Ok(wait @ 1..) = u64::try_from(wait) {
                tokio::select! {
                    biased;
                    changed = self.changed(id, known) => return changed.map(|()| Outcome::Again),
                    () = self.deps.world.clock.sleep(Duration::from_millis(wait)) => {}
                }
            }
            let sent = self.attempt(id, known, message).await?;
            let (reason, pause, refused) = match sent {
                Sent::Delivered => {
                    self.counts.attempts.with(["delivered"]).inc();
                    return Ok(Outcome::Delivered);
                }
                Sent::Gone => {
                    self.park(group, id, "the receiver answered that it is gone (410)");
                    return Ok(Outcome::Again);
                }
                Sent::NotNow { reason, pause } => (reason, pause, false),
                Sent::Refused(reason) => (reason, None, true),
            };
            let failing = self.failing(failing, reason, pause, refused);
            if failing.refusals >= REFUSALS {
                self.counts.attempts.with(["dead_letter"]).inc();
                if let Some(event) = event {
                    let letter = dead_letter(event, &failing.reason, self.now());
                    self.update(group, id, |progress| progress.bury(letter));
                }
                return Ok(Outcome::Buried);
            }
            if self.now().millis_since(failing.since) > PATIENCE_MILLIS {
                let days = PATIENCE_MILLIS / (24 * 3_600_000);
                self.park(
                    group,
                    id,
                    &format!("the receiver took nothing for {days} days: {}", failing.reason),
                );
                return Ok(Outcome::Again);
            }
            self.counts.attempts.with([if refused { "refused" } else { "retried" }]).inc();
            self.update(group, id, |progress| progress.failing = Some(failing));
        }
    }

    fn failing(
        &self,
        before: Option<Failing>,
        reason: String,
        pause: Option<Duration>,
        refused: bool,
    ) -> Failing {
        let now = self.now();
        let (since, attempts, refusals) =
            before.map_or((now, 0, 0), |before| (before.since, before.attempts, before.refusals));
        let own = BACKOFF.pause(attempts, &*self.deps.world.random).max(BACKOFF.first);
        let pause = pause.unwrap_or_default().max(own);
        let millis = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let refusals = if refused { refusals.saturating_add(1) } else { 0 };
        Failing {
            since,
            attempts: attempts.saturating_add(1),
            refusals,
            reason,
            next: now.plus_millis(millis),
        }
    }

    fn park(&self, group: Group, id: SubscriptionId, reason: &str) {
        tracing::warn!(subscription = %id, reason, "subscription is parked");
        self.counts.attempts.with(["parked"]).inc();
        let since = self.now();
        self.update(group, id, |progress| {
            (progress.parked, progress.failing) = (Some((since, reason.to_owned())), None);
        });
    }

    /// Sends a message once, signed with each secret that counts.
    async fn attempt(
        &self,
        id: SubscriptionId,
        known: &Subscription,
        message: &Message,
    ) -> anyhow::Result<Sent> {
        let now = self.now();
        let mut numbers = vec![known.secret];
        if known.former_until.is_some_and(|until| now < until) {
            numbers.push(known.secret.saturating_sub(1));
        }
        let mut secrets = Vec::new();
        for number in numbers {
            secrets.push(Secret::of(&*self.deps.keys, known.organization, id, number).await?);
        }
        let url = WebhookUrl::of(&*self.deps.keys, known.organization).await?;
        let Some(url) = known.webhook().and_then(|webhook| url.open(id, &webhook.sealed)) else {
            return Ok(Sent::not_now("its address cannot be read any more"));
        };
        let Message { id: message_id, media, body } = message.clone();
        let seconds = now.0 / 1000;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("kasbah/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert("webhook-id", HeaderValue::from_str(&message_id)?);
        headers.insert("webhook-timestamp", HeaderValue::from(seconds));
        let signed = signatures(&secrets, &message_id, seconds, &body);
        headers.insert("webhook-signature", HeaderValue::from_str(&signed)?);
        let began = self.deps.world.clock.monotonic();
        let sent = self.sender.send(&url, headers, body).await;
        let took = self.deps.world.clock.monotonic().saturating_sub(began);
        self.counts.attempt_seconds.observe(took.as_secs_f64());
        Ok(sent)
    }

    /// Sends dead letters again that somebody wants to be sent, each once.
    async fn send_letters(
        &self,
        id: SubscriptionId,
        group: Group,
        known: &Subscription,
    ) -> anyhow::Result<()> {
        let progress = self.progress(group, id);
        let wishes: Vec<_> = known.resends.iter().filter(|(version, _)| *version > progress.resent).collect();
        let Some((newest, _)) = wishes.last() else { return Ok(()) };
        let wanted = |letter: &&DeadLetter| {
            wishes.iter().any(|(_, sequences)| sequences.is_empty() || sequences.contains(&letter.sequence))
        };
        let letters: Vec<DeadLetter> = progress.letters.iter().filter(wanted).cloned().collect();
        let mut missing: BTreeSet<u64> = letters.iter().map(|letter| letter.sequence).collect();
        let positions = letters.iter().filter_map(|letter| letter.position.parse::<ExportPosition>().ok());
        if let Some(first) = positions.min_by_key(|position| position.at) {
            let log = &self.deps.log;
            let begin = log.position_at(&[Stream::Exports], first.read_since()).await?;
            let filter = ReadFilter {
                organization: Some(known.organization),
                ..ReadFilter::streams(&[Stream::Exports])
            };
            let mut records = log.read(&begin, &filter).await?;
            while let Some(record) = records.recv().await {
                let Ok(event) = CloudEvent::from_json(&record?.bytes) else { continue };
                let Some(letter) = letters.iter().find(|letter| letter.event == event.id) else { continue };
                if !missing.remove(&letter.sequence) {
                    continue;
                }
                let message = render(known.format(), &event, self.page_url.as_deref());
                let sent = self.attempt(id, known, &message).await?;
                self.update(group, id, |progress| settle(progress, letter.sequence, sent));
            }
        }
        let newest = *newest;
        self.update(group, id, |progress| {
            progress.resent = newest;
            for sequence in missing {
                settle(
                    progress,
                    sequence,
                    Sent::Refused("the event has left the server, and cannot be sent again".to_owned()),
                );
            }
        });
        Ok(())
    }
}

/// Takes a dead letter away that was delivered, or says why it was not.
fn settle(progress: &mut Progress, sequence: u64, sent: Sent) {
    let reason = match sent {
        Sent::Delivered => {
            progress.letters.retain(|letter| letter.sequence != sequence);
            return;
        }
        Sent::Gone => "the receiver answered that it is gone (410)".to_owned(),
        Sent::NotNow { reason, .. } | Sent::Refused(reason) => reason,
    };
    if let Some(letter) = progress.letters.iter_mut().find(|letter| letter.sequence == sequence) {
        letter.reason = reason;
    }
}

fn dead_letter(event: &CloudEvent, reason: &str, at: Timestamp) -> DeadLetter {
    DeadLetter {
        sequence: event.exportsequence.unwrap_or(0),
        position: ExportPosition::of(event).map(|position| position.to_string()).unwrap_or_default(),
        event: event.id.clone(),
        event_type: event.event_type.clone(),
        at,
        reason: reason.to_owned(),
    }
}
