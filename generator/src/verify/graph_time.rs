//! Times of work in a CUDA graph, as a network runs it.

use super::gpu_device::driver;
use super::{DeviceError, GpuDevice};
use cudarc::driver::{result, sys};

/// How much is run to know a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// Runs in a graph, one behind the other.
    pub runs: usize,
    /// Replays before the clock and the caches have settled.
    pub warm_up: usize,
    /// Replays of which the median is taken.
    pub replays: usize,
}

impl Repeats {
    /// For times that are told.
    pub const FULL: Self = Self {
        runs: 50,
        warm_up: 1,
        replays: 25,
    };
    /// To see whether it is worth more. What runs ahead of the first replay is all the warm-up that a look needs.
    pub const QUICK: Self = Self {
        runs: 20,
        warm_up: 0,
        replays: 3,
    };
}

impl GpuDevice {
    /// Time of one `run`, microseconds: the median of replays of a CUDA graph that holds many of them, one behind the other. `run`
    /// is told which of them it puts there, from 0.
    ///
    /// In each replay the graph is launched once more ahead of the timed launch, so that the GPU is busy while that is put behind
    /// it: on an idle GPU the time from the first event to the graph's arrival would count too.
    ///
    /// # Errors
    /// The driver's, and those of `run`.
    pub fn graph_us(
        &mut self,
        repeats: Repeats,
        run: &mut dyn FnMut(&mut Self, usize) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this device's own and is not being captured.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(driver)?;
        let recorded = (0..repeats.runs).try_for_each(|index| run(self, index));
        // SAFETY: the capture was begun above.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let graph = graph.map(Graph).map_err(driver);
        // A run that failed ends the capture too; it is the cause.
        recorded?;
        let executable = Executable::new(&graph?)?;
        let (start, end) = (Event::new()?, Event::new()?);
        let mut times = Vec::new();
        for _ in 0..repeats.warm_up + repeats.replays {
            // SAFETY: executable, events and stream are alive and of this context.
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
        // SAFETY: this owns the graph; what was instantiated from it does not need it.
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
        // SAFETY: this owns it, and the driver lets a launch that still runs end.
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
