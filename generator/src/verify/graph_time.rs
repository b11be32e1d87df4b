//! Times of work in a CUDA graph, which is how a network runs.

use super::gpu_device::driver;
use super::{DeviceError, GpuDevice};
use cudarc::driver::{result, sys};

/// The number of runs and replays of a timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// Consecutive runs in a graph.
    pub runs: usize,
    /// Untimed replays, until clocks and caches have settled.
    pub warm_up: usize,
    /// Timed replays; the time is their median.
    pub replays: usize,
}

impl Repeats {
    /// For times that are reported.
    pub const FULL: Self = Self {
        runs: 50,
        warm_up: 1,
        replays: 25,
    };
    /// For deciding whether a full time is worthwhile. The launch that precedes the first replay is warm-up
    /// enough.
    pub const QUICK: Self = Self {
        runs: 20,
        warm_up: 0,
        replays: 3,
    };
}

impl GpuDevice {
    /// Time of one `run` in microseconds: the median over replays of a CUDA graph with many consecutive runs.
    /// `run` is called with the index of the run, from 0.
    ///
    /// Before each timed launch the graph is launched once untimed, so that the GPU is busy while the timed
    /// launch is queued. On an idle GPU the time from the first event to the arrival of the graph would be
    /// included.
    ///
    /// # Errors
    /// Driver errors and errors of `run`.
    pub fn graph_us(
        &mut self,
        repeats: Repeats,
        run: &mut dyn FnMut(&mut Self, usize) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is owned by this device and is not being captured.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(driver)?;
        let recorded = (0..repeats.runs).try_for_each(|index| run(self, index));
        // SAFETY: the capture was started above.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let graph = graph.map(Graph).map_err(driver);
        // A failed run ends the capture too; its error is the cause.
        recorded?;
        let executable = Executable::new(&graph?)?;
        let (start, end) = (Event::new()?, Event::new()?);
        let mut times = Vec::new();
        for _ in 0..repeats.warm_up + repeats.replays {
            // SAFETY: executable, events and stream are alive and belong to this context.
            let ms = unsafe {
                result::graph::launch(executable.0, self.stream)
                    .and_then(|()| result::event::record(start.0, self.stream))
                    .and_then(|()| result::graph::launch(executable.0, self.stream))
                    .and_then(|()| result::event::record(end.0, self.stream))
                    .and_then(|()| result::event::synchronize(end.0))
                    .and_then(|()| result::event::elapsed(start.0, end.0))
            };
            times.push(f64::from(ms.map_err(driver)?) * 1e3);
        }
        let mut times = times.split_off(repeats.warm_up);
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2] / repeats.runs as f64)
    }
}

/// A captured graph.
struct Graph(sys::CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: this owns the graph; graphs instantiated from it do not need it.
        let _ = unsafe { result::graph::destroy(self.0) };
    }
}

/// A graph that can be launched.
struct Executable(sys::CUgraphExec);

impl Executable {
    fn new(graph: &Graph) -> Result<Self, DeviceError> {
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // SAFETY: the graph is alive.
        let made = unsafe { result::graph::instantiate(graph.0, flags) };
        made.map(Self).map_err(driver)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: this owns the graph, and the driver lets a running launch finish.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// A point in time on a stream.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Self, DeviceError> {
        let made = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        made.map(Self).map_err(driver)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this owns the event.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
