//! Times of work in a CUDA graph, as a network runs it.

use super::gpu_device::driver;
use super::{DeviceError, GpuDevice};
use cudarc::driver::{result, sys};

/// How a time is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replays {
    /// Runs in a graph, one behind the other.
    pub runs: usize,
    /// Replays of which the median is taken.
    pub replays: usize,
    /// Replays before them, until the clock and the caches have settled.
    pub warm_up: usize,
}

impl Replays {
    /// For a figure that is told.
    pub const FULL: Self = Self {
        runs: 50,
        replays: 25,
        warm_up: 3,
    };

    /// To rank many candidates, of which the best are then timed fully.
    pub const QUICK: Self = Self {
        runs: 10,
        replays: 5,
        warm_up: 1,
    };
}

impl GpuDevice {
    /// Time of one `run`, microseconds: the median of replays of a CUDA graph that holds many of them, one behind the other.
    ///
    /// # Errors
    /// The driver's, and those of `run`.
    pub fn graph_us(
        &mut self,
        run: &mut dyn FnMut(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        self.replayed_us(Replays::FULL, &mut |device, _| run(device))
    }

    /// As [`graph_us`](Self::graph_us) with other counts; `run` is told which run in the graph it is, from 0.
    ///
    /// # Errors
    /// The driver's, and those of `run`.
    pub fn replayed_us(
        &mut self,
        counts: Replays,
        run: &mut dyn FnMut(&mut Self, usize) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this device's own and is not being captured.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(driver)?;
        let recorded = (0..counts.runs).try_for_each(|index| run(self, index));
        // SAFETY: the capture was begun above.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let graph = graph.map(Graph).map_err(driver);
        // A run that failed ends the capture too; it is the cause.
        recorded?;
        let executable = Executable::new(&graph?)?;
        let (start, end) = (Event::new()?, Event::new()?);
        let mut times = Vec::new();
        for _ in 0..counts.warm_up + counts.replays {
            // SAFETY: executable, events and stream are alive and of this context.
            let ms = unsafe {
                result::event::record(start.0, self.stream)
                    .and_then(|()| result::graph::launch(executable.0, self.stream))
                    .and_then(|()| result::event::record(end.0, self.stream))
                    .and_then(|()| result::event::synchronize(end.0))
                    .and_then(|()| result::event::elapsed(start.0, end.0))
            };
            times.push(f64::from(ms.map_err(driver)?) * 1e3);
        }
        let mut times = times.split_off(counts.warm_up);
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2] / counts.runs as f64)
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
