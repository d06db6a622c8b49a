//! Queues of requests that do not fit at once.

use super::super::window;
use crate::{algorithm::Queue, rules::yaml::Fields};
use std::time::Duration;

/// The longest wait of a queued request. Its stream stays open meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// The maximum number of hits queued in one bucket.
const QUEUE_MAX: u32 = 10_000;

/// The default maximum number of hits queued in one bucket.
const QUEUE_DEFAULT: u32 = 100;

/// The queue for hits that do not fit, if `max_wait` is set or has a default. With a default, `0s` means no queue.
pub(super) fn queue(fields: &mut Fields<'_>, default: Option<Duration>) -> Option<Queue> {
    let (max_wait, max_queue) = (fields.take("max_wait"), fields.take("max_queue"));
    let hits_max = match &max_queue {
        None => Some(QUEUE_DEFAULT),
        Some(field) => field.whole().filter(|hits| {
            (1..=QUEUE_MAX).contains(hits) || {
                field.reject(format!(
                    "a queue has room for 1 to {QUEUE_MAX} hits; write a number from that range"
                ));
                false
            }
        }),
    };
    let without_effect = |message| max_queue.as_ref().and_then(|field| field.refuse(message));
    let Some(max_wait) = max_wait else {
        return match default {
            Some(wait_max) => Some(Queue { wait_max, hits_max: hits_max? }),
            None => {
                without_effect("has no effect without `max_wait`; write that too, such as `max_wait: 1s`")
            }
        };
    };
    if default.is_some() && max_wait.text() == Some("0s") {
        return without_effect("has no effect with `max_wait: 0s`; write a longer wait, or remove it");
    }
    let wait_max = window::of_length(&max_wait)?.duration();
    if wait_max > WAIT_MAX {
        return max_wait.refuse("a request is queued for at most 1h; write 1h or less");
    }
    Some(Queue { wait_max, hits_max: hits_max? })
}
