//! Runs jobs on several threads and passes the results on one by one, in order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// State shared by the threads.
struct State<R> {
    /// The next job to start.
    next: usize,
    /// Number of results consumed.
    consumed: usize,
    /// Results that have not been consumed, by job.
    done: BTreeMap<usize, R>,
    /// No further job may start.
    stopped: bool,
}

struct Shared<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

impl<R> Shared<R> {
    fn state(&self) -> MutexGuard<'_, State<R>> {
        // The state is consistent after every step, even if a thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State<R>)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until `ready` returns a value.
    fn wait<T>(&self, mut ready: impl FnMut(&mut State<R>) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(found) = ready(&mut state) {
                return found;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Stops all threads when dropped: if one panics, the others must not wait for it.
struct StopOnDrop<'a, R>(&'a Shared<R>);

impl<R> Drop for StopOnDrop<'_, R> {
    fn drop(&mut self) {
        self.0.change(|state| state.stopped = true);
    }
}

/// Runs `work` on all jobs on the given number of threads and passes each result to `consume` on the caller's
/// thread, in the order of the jobs, until it breaks. At most `window` jobs are started and not consumed,
/// which bounds the memory.
pub(super) fn process_in_order<J: Sync, R: Send>(
    jobs: &[J],
    threads: NonZeroUsize,
    window: NonZeroUsize,
    work: impl Fn(&J) -> R + Sync,
    mut consume: impl FnMut(&J, R) -> ControlFlow<()>,
) {
    let shared = Shared {
        state: Mutex::new(State {
            next: 0,
            consumed: 0,
            done: BTreeMap::new(),
            stopped: false,
        }),
        changed: Condvar::new(),
    };
    let take = |state: &mut State<R>| {
        if state.stopped || state.next == jobs.len() {
            return Some(None);
        }
        (state.next < state.consumed + window.get()).then(|| {
            state.next += 1;
            Some(state.next - 1)
        })
    };
    let worker = || {
        while let Some(index) = shared.wait(take) {
            let panicking = StopOnDrop(&shared);
            let result = work(&jobs[index]);
            std::mem::forget(panicking);
            shared.change(|state| drop(state.done.insert(index, result)));
        }
    };
    thread::scope(|scope| {
        let _stop = StopOnDrop(&shared);
        for _ in 0..threads.get().min(jobs.len()) {
            scope.spawn(worker);
        }
        for (index, job) in jobs.iter().enumerate() {
            let result = shared.wait(|state| match state.done.remove(&index) {
                Some(result) => Some(Some(result)),
                None => state.stopped.then_some(None),
            });
            let Some(result) = result else {
                break;
            };
            if consume(job, result).is_break() {
                break;
            }
            shared.change(|state| state.consumed += 1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn number(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    #[test]
    fn results_are_ordered_and_bounded() {
        let jobs: Vec<usize> = (0..97).collect();
        for (threads, window) in [(1, 1), (3, 1), (4, 5), (64, 200)] {
            let (started, mut used) = (AtomicUsize::new(0), 0);
            let work = |&job: &usize| {
                started.fetch_add(1, Ordering::SeqCst);
                // Later jobs of a group finish before earlier ones.
                thread::sleep(Duration::from_micros(50 * (7 - job as u64 % 7)));
                job * job
            };
            process_in_order(
                &jobs,
                number(threads),
                number(window),
                work,
                |&job, square| {
                    assert_eq!((job, square), (used, used * used));
                    assert!(started.load(Ordering::SeqCst) <= used + window);
                    used += 1;
                    ControlFlow::Continue(())
                },
            );
            assert_eq!(used, jobs.len());
        }
        process_in_order(
            &[],
            number(2),
            number(2),
            |_: &u8| (),
            |_, ()| unreachable!(),
        );
    }

    #[test]
    fn stops_on_break() {
        let jobs: Vec<usize> = (0..1000).collect();
        let (started, mut used) = (AtomicUsize::new(0), 0);
        let work = |_: &usize| started.fetch_add(1, Ordering::SeqCst);
        process_in_order(&jobs, number(3), number(4), work, |_, _| {
            used += 1;
            match used {
                10 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        assert_eq!(used, 10);
        assert!(started.into_inner() <= 14);
    }

    #[test]
    fn a_panic_on_either_side_stops_all_threads() {
        let jobs: Vec<usize> = (0..50).collect();
        let on_worker = std::panic::catch_unwind(|| {
            let work = |&job: &usize| assert!(job < 20);
            process_in_order(&jobs, number(3), number(2), work, |_, ()| {
                ControlFlow::Continue(())
            });
        });
        assert!(on_worker.is_err());
        let on_consumer = std::panic::catch_unwind(|| {
            process_in_order(
                &jobs,
                number(3),
                number(2),
                |_| (),
                |&job, ()| {
                    assert!(job < 20);
                    ControlFlow::Continue(())
                },
            );
        });
        assert!(on_consumer.is_err());
    }
}
