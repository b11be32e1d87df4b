//! Work on all processors.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The results of `work` on each item, in the order of the items. A processor that is done takes the next item, so all are done soonest if
/// the longest work comes first. The results do not depend on the number of processors.
pub(super) fn on_all_processors<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return results;
            };
            results.push((index, work(item)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut results = thread::scope(|scope| {
        let others = 1..threads.min(items.len());
        let others: Vec<_> = others.map(|_| scope.spawn(take)).collect();
        let mut results = take();
        for thread in others {
            let of_thread = thread.join();
            results.extend(of_thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let squared = |item: &u64| {
            thread::sleep(Duration::from_micros(37 * (item % 5)));
            item * item
        };
        for count in [0u64, 1, 2, 50] {
            let items: Vec<u64> = (0..count).collect();
            let expected: Vec<u64> = items.iter().map(|item| item * item).collect();
            assert_eq!(on_all_processors(&items, squared), expected);
        }
    }
}
