//! Branches: launches that do not depend on each other, side by side.
//!
//! Each task has a branch: branch 0 is the caller's stream, the others are streams beside it, which become parallel branches of a CUDA
//! graph. A task waits for its predecessor in the branch and for certain tasks of other branches. A branch is continued by the first task
//! that reads what its last one wrote; a task that cannot continue one begins a branch, or continues one whose last task it depends on
//! anyway.
//!
//! Small layers leave most of a GPU idle, so branches take little more time than the longest of them. They pay only if the launches fit the
//! GPU together: [`Branches::us`] predicts the time, and the plan has one branch if that is not longer.

use super::graph::{TaskGraph, ValueId};
use crate::ir::Tensor;

/// Maximum number of branches.
const MAX_BRANCHES: usize = 4;

/// What a launch that waits for another branch is assumed to take longer, microseconds: it starts when that one has finished, without PDL.
const WAIT_US: f64 = 0.5;

/// The branches of a graph.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branches {
    /// For each task, its branch.
    pub of_task: Vec<usize>,
    /// For each task, the tasks of other branches that it waits for.
    pub waits: Vec<Vec<usize>>,
    /// The last tasks of branches that nothing waits for. The network has finished when they have, and the last task of branch 0.
    pub ends: Vec<usize>,
    /// For each task, the tasks that have finished before it starts.
    before: Vec<Vec<bool>>,
}

/// The predicted time of a task, and the part of the GPU that its launch fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Time in a network if nothing runs beside it, microseconds.
    pub us: f64,
    /// Blocks over the blocks that are resident at a time, at most 1.
    pub fill: f64,
}

impl Branches {
    /// All tasks one after the other.
    pub(super) fn one(tasks: usize) -> Self {
        Self {
            of_task: vec![0; tasks],
            waits: vec![Vec::new(); tasks],
            ends: Vec::new(),
            before: (0..tasks).map(|task| vec![true; task]).collect(),
        }
    }

    /// As many branches as there are independent tasks, up to a maximum.
    pub(super) fn of_graph(graph: &TaskGraph) -> Self {
        let tasks = graph.tasks.len();
        let accesses: Vec<Accesses> = (0..tasks).map(|task| Accesses::of(graph, task)).collect();
        let mut branches = Self {
            of_task: Vec::with_capacity(tasks),
            waits: Vec::with_capacity(tasks),
            ends: Vec::new(),
            before: Vec::with_capacity(tasks),
        };
        let mut last: Vec<usize> = Vec::new();
        for task in 0..tasks {
            let earlier = (0..task).filter(|&other| accesses[task].conflict_with(&accesses[other]));
            branches.push(task, earlier.collect(), &mut last);
        }
        let main = last.first().copied();
        let is_open = |end: &&usize| main.is_none_or(|main| !branches.precedes(**end, main));
        let ends = last.iter().skip(1).filter(is_open).copied();
        branches.ends = ends.collect();
        branches
    }

    /// Adds a task that depends on earlier ones. `last` has the last task of each branch.
    fn push(&mut self, task: usize, mut needed: Vec<usize>, last: &mut Vec<usize>) {
        // Only those that no other one includes.
        let all = needed.clone();
        needed.retain(|&one| !all.iter().any(|&other| self.precedes(one, other)));
        let is_before = |end: usize| needed.iter().any(|&other| self.precedes(end, other));
        let position = |holds: &dyn Fn(usize) -> bool| last.iter().position(|&end| holds(end));
        let continued = position(&|end| needed.contains(&end)).or_else(|| position(&is_before));
        let branch = match continued {
            Some(branch) => branch,
            None if last.len() < MAX_BRANCHES => last.len(),
            // The branch that has been idle for the longest time.
            None => (0..last.len())
                .min_by_key(|&branch| last[branch])
                .unwrap_or(0),
        };
        let mut before = vec![false; task];
        let mut include = |other: usize| {
            before[other] = true;
            for (known, &is_before) in before.iter_mut().zip(&self.before[other]) {
                *known |= is_before;
            }
        };
        let predecessor = last.get(branch).copied();
        if let Some(predecessor) = predecessor {
            include(predecessor);
        }
        let is_known = |other: usize, known: usize| other == known || self.precedes(other, known);
        needed.retain(|&other| predecessor.is_none_or(|known| !is_known(other, known)));
        needed.iter().for_each(|&other| include(other));
        self.before.push(before);
        self.of_task.push(branch);
        self.waits.push(needed);
        match last.get_mut(branch) {
            Some(last) => *last = task,
            None => last.push(task),
        }
    }

    /// Whether a task has finished before another one starts.
    fn precedes(&self, task: usize, other: usize) -> bool {
        self.before[other].get(task) == Some(&true)
    }

    /// For each task, the first and the last task that may run at the same time, itself included.
    pub(super) fn concurrent(&self) -> Vec<[usize; 2]> {
        let tasks = self.of_task.len();
        let range = |task: usize| {
            let first = (0..task).find(|&other| !self.precedes(other, task));
            let last = (task + 1..tasks).rfind(|&other| !self.precedes(task, other));
            [first.unwrap_or(task), last.unwrap_or(task)]
        };
        (0..tasks).map(range).collect()
    }

    /// The predicted time of all tasks, microseconds.
    pub(super) fn us(&self, loads: &[Load]) -> f64 {
        concurrent_us(&self.of_task, &self.waits, loads)
    }
}

/// The predicted time of tasks in branches, microseconds.
pub(super) fn concurrent_us(of_task: &[usize], waits: &[Vec<usize>], loads: &[Load]) -> f64 {
    let times = concurrent_times(of_task, waits, loads);
    times.into_iter().map(|[_, end]| end).fold(0.0, f64::max)
}

/// When each task starts and ends, microseconds, as predicted. Launches beside each other take as long as alone if they fit the GPU
/// together; else all of them slow down alike.
pub(super) fn concurrent_times(
    of_task: &[usize],
    waits: &[Vec<usize>],
    loads: &[Load],
) -> Vec<[f64; 2]> {
    let waiting = |task: usize| if waits[task].is_empty() { 0.0 } else { WAIT_US };
    let mut left: Vec<f64> = (0..of_task.len())
        .map(|task| loads[task].us + waiting(task))
        .collect();
    let mut times: Vec<Option<[f64; 2]>> = vec![None; of_task.len()];
    let mut is_done = vec![false; of_task.len()];
    let branches = of_task.iter().max().map_or(0, |last| last + 1);
    let mut queues: Vec<Vec<usize>> = vec![Vec::new(); branches];
    for (task, &branch) in of_task.iter().enumerate().rev() {
        queues[branch].push(task);
    }
    let mut us = 0.0;
    loop {
        let heads = queues.iter().filter_map(|queue| queue.last().copied());
        let is_ready = |task: &usize| waits[*task].iter().all(|&other| is_done[other]);
        let running: Vec<usize> = heads.filter(is_ready).collect();
        let shortest = running.iter().map(|&task| left[task]).reduce(f64::min);
        let Some(shortest) = shortest else {
            return times.into_iter().map(Option::unwrap_or_default).collect();
        };
        let fill: f64 = running.iter().map(|&task| loads[task].fill).sum();
        let start = us;
        us += shortest * fill.max(1.0);
        for task in running {
            times[task].get_or_insert([start; 2])[1] = us;
            left[task] -= shortest;
            if left[task] <= 0.0 {
                is_done[task] = true;
                queues[of_task[task]].pop();
            }
        }
    }
}

/// The memory that a task reads and writes: values that own it, each with the range of elements of an image.
struct Accesses {
    reads: Vec<Range>,
    writes: Vec<Range>,
}

#[derive(Clone, Copy)]
struct Range {
    root: ValueId,
    start: u64,
    end: u64,
}

impl Range {
    /// The memory of a tensor that starts with a value.
    fn new(graph: &TaskGraph, value: ValueId, tensor: Tensor) -> Self {
        let (root, start) = graph.root(value);
        // Two views of a tensor in NHWC overlap if their channels do: the channels of the first pixel stand for all.
        let len = match tensor.format.pixel_stride {
            Some(_) => u64::from(tensor.shape.c),
            None => tensor.shape.image_len(),
        };
        Self {
            root,
            start,
            end: start + len,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.root == other.root && self.start < other.end && other.start < self.end
    }
}

impl Accesses {
    fn of(graph: &TaskGraph, task: usize) -> Self {
        let task = &graph.tasks[task];
        let whole = |id: ValueId| {
            let value = &graph.values[id.0];
            Range::new(graph, id, Tensor::new(value.shape, value.format))
        };
        Self {
            reads: task.reads().map(whole).collect(),
            // Further outputs follow the first one.
            writes: std::iter::once(Range::new(graph, task.y, task.problem.kind().output()))
                .chain(task.appended.map(whole))
                .collect(),
        }
    }

    /// Whether the order of two tasks matters: one writes what the other reads or writes.
    fn conflict_with(&self, other: &Self) -> bool {
        let overlap = |some: &[Range], others: &[Range]| {
            let mut some = some.iter();
            some.any(|one| others.iter().any(|other| one.overlaps(other)))
        };
        overlap(&self.reads, &other.writes)
            || overlap(&other.reads, &self.writes)
            || overlap(&self.writes, &other.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Value;
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{
        Activation, BinaryOp, ConvOptions, DType, Format, NetworkBuilder, OpOptions, PoolOptions,
        TensorShape,
    };
    use crate::plan::{LayerPlan, Location, Memory, plan_network};
    use std::collections::HashMap;
    use tdc_runtime::Padding;

    /// A network with a task for each op but concatenations.
    fn graph(ops: &[(&str, &[&str], OpOptions)]) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 7, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    fn conv(n: u32) -> OpOptions {
        OpOptions::Conv(ConvOptions::new(n))
    }

    fn pool() -> OpOptions {
        OpOptions::MaxPool(PoolOptions {
            kernel: [3, 3],
            stride: [1, 1],
            pad: Padding::all(1),
            dilation: [1, 1],
            ceil_mode: false,
            count_include_pad: true,
        })
    }

    /// Two modules of three branches: `a`, `b` and `c`, and pooling and `d`.
    fn modules() -> TaskGraph {
        graph(&[
            ("a", &["input"], conv(5)),
            ("b", &["input"], conv(3)),
            ("c", &["b"], conv(4)),
            ("p", &["input"], pool()),
            ("d", &["p"], conv(4)),
            ("all", &["a", "c", "d"], OpOptions::Concat),
            ("a2", &["all"], conv(5)),
            ("p2", &["all"], pool()),
            ("d2", &["p2"], conv(2)),
            ("both", &["a2", "d2"], OpOptions::Concat),
            ("last", &["both"], conv(1)),
        ])
    }

    #[test]
    fn independent_tasks_are_in_different_branches() {
        let branches = Branches::of_graph(&modules());
        // a b c p d a2 p2 d2 last
        assert_eq!(branches.of_task, [0, 1, 1, 2, 2, 0, 1, 1, 0]);
        let none: Vec<usize> = Vec::new();
        let mut expected = vec![none.clone(); 9];
        expected[5] = vec![2, 4];
        // `p2` waits for `a` and `d`, and continues the branch of `c`.
        expected[6] = vec![0, 4];
        expected[8] = vec![7];
        assert_eq!(branches.waits, expected);
        assert_eq!(branches.ends, none);
        let concurrent = branches.concurrent();
        assert_eq!(concurrent[0], [0, 4], "`a` runs beside `b`, `c`, `p`, `d`");
        assert_eq!(concurrent[2], [0, 4]);
        assert_eq!(concurrent[5], [5, 7]);
        assert_eq!(concurrent[8], [8, 8]);
    }

    #[test]
    fn a_chain_has_one_branch() {
        let add = OpOptions::Binary(BinaryOp::Add, Activation::Relu);
        let graph = graph(&[
            ("a", &["input"], conv(5)),
            ("b", &["a"], conv(5)),
            ("sum", &["b", "a"], add),
            ("c", &["sum"], conv(2)),
        ]);
        let branches = Branches::of_graph(&graph);
        assert_eq!(branches, Branches::one(graph.tasks.len()));
        assert_eq!(branches.concurrent(), [[0, 0], [1, 1], [2, 2]]);
    }

    /// Outputs in the middle of a network end their branches.
    #[test]
    fn a_network_ends_with_all_its_branches() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 7, 9, 11));
        for (name, input) in [("a", "input"), ("b", "a"), ("c", "a"), ("d", "input")] {
            builder.op(name, Some(&[input.to_owned()]), conv(3));
            builder.name_output(&format!("{name}_out"));
        }
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let branches = Branches::of_graph(&graph);
        assert_eq!(branches.of_task, [0, 0, 1, 2]);
        assert_eq!(branches.waits[2], [0]);
        assert_eq!(branches.ends, [2, 3]);
    }

    #[test]
    fn branches_take_the_longest_time_if_they_fit_the_gpu() {
        let branches = Branches::of_graph(&modules());
        let us = |fill: f64| branches.us(&[Load { us: 2.0, fill }; 9]);
        // a, then `b` and `c` (or `p` and `d`), `p2` and `d2`, `last`, and two launches that wait.
        assert_eq!(us(0.1), 2.0 + 2.0 + (2.0 + WAIT_US) + 2.0 + (2.0 + WAIT_US));
        assert!(us(1.0) > 18.0);
        assert_eq!(Branches::one(9).us(&[Load { us: 2.0, fill: 1.0 }; 9]), 18.0);
    }

    #[test]
    fn a_task_starts_when_those_that_it_waits_for_have_ended() {
        let branches = Branches::of_graph(&modules());
        let times = |fill: f64| {
            let loads = [Load { us: 2.0, fill }; 9];
            concurrent_times(&branches.of_task, &branches.waits, &loads)
        };
        // a b c p d a2 p2 d2 last
        let small = times(0.1);
        assert_eq!(
            small[..5],
            [[0.0, 2.0], [0.0, 2.0], [2.0, 4.0], [0.0, 2.0], [2.0, 4.0]]
        );
        assert_eq!(small[5..7], [[4.0, 6.0 + WAIT_US]; 2]);
        // Three launches that fill the GPU take three times as long beside each other.
        assert_eq!(times(1.0)[..2], [[0.0, 6.0]; 2]);
    }

    /// Each pair of tasks whose order matters is ordered, and only tasks that are concurrent by both positions are not.
    #[test]
    fn the_order_of_tasks_is_kept() {
        let graph = modules();
        let branches = Branches::of_graph(&graph);
        let accesses: Vec<_> = (0..9).map(|task| Accesses::of(&graph, task)).collect();
        let concurrent = branches.concurrent();
        for b in 0..9 {
            for a in 0..b {
                let ordered = branches.precedes(a, b);
                assert!(
                    ordered || !accesses[a].conflict_with(&accesses[b]),
                    "{a} {b}"
                );
                let [first, last] = concurrent[a];
                assert!(ordered || (first..=last).contains(&b), "{a} {b}");
            }
        }
    }

    /// The bytes of the arena that a layer writes, and all that it reads or writes.
    fn bytes(layer: &LayerPlan, workspace: u64) -> [Vec<std::ops::Range<u64>>; 2] {
        let of = |location: &Location| match location.memory {
            Memory::Arena { offset } => {
                let start = offset + location.offset_bytes();
                Some(start..start + 4 * location.shape.image_len())
            }
            Memory::Input { .. } | Memory::Output { .. } => None,
        };
        let scratch = layer.workspace.map(|start| start..start + workspace);
        let outputs = layer.outputs().filter_map(|(_, y)| of(y));
        let writes: Vec<_> = outputs.chain(scratch).collect();
        let reads = std::iter::once(&layer.x).chain(&layer.residual);
        let all = reads.filter_map(of).chain(writes.iter().cloned()).collect();
        [writes, all]
    }

    /// `[a | [b | c]]`: the parts of a concatenation do not overlap, whatever pixels lie between them; each overlaps those that contain it.
    #[test]
    fn views_in_nhwc_overlap_by_their_channels() {
        let view = |name: &str, c: u32, format: Format, parent: Option<(usize, u64)>| Value {
            name: name.to_owned(),
            shape: TensorShape::new(2, c, 5, 7),
            format,
            parent: parent.map(|(id, offset)| (ValueId(id), offset)),
        };
        let dense = Format::FP16_NHWC;
        let of_24 = dense.view_of(24);
        let graph = TaskGraph {
            activations: DType::Fp16,
            linear_precisions: HashMap::new(),
            values: vec![
                view("all", 24, dense, None),
                view("a", 8, of_24, Some((0, 0))),
                view("both", 16, of_24, Some((0, 8))),
                view("b", 8, of_24, Some((2, 0))),
                view("c", 8, of_24, Some((2, 8))),
            ],
            tasks: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output_formats: Vec::new(),
        };
        let range = |id: usize| {
            let value = &graph.values[id];
            Range::new(&graph, ValueId(id), Tensor::new(value.shape, value.format))
        };
        let overlapping = |id: usize| {
            let others = (0..graph.values.len()).filter(|&other| other != id);
            let names = others.filter(|&other| range(id).overlaps(&range(other)));
            names
                .map(|other| &graph.values[other].name[..])
                .collect::<Vec<_>>()
        };
        assert_eq!(overlapping(0), ["a", "both", "b", "c"]);
        assert_eq!(overlapping(1), ["all"]);
        assert_eq!(overlapping(2), ["all", "b", "c"]);
        assert_eq!(overlapping(3), ["all", "both"]);
        assert_eq!(overlapping(4), ["all", "both"]);
    }

    #[test]
    fn layers_beside_each_other_share_no_memory() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 64, 14, 14));
        let mut op = |name: String, inputs: &[&str], options: OpOptions| {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(&name, Some(&inputs), options);
            name
        };
        let mut x = "input".to_owned();
        for module in 0..3 {
            let name = |part: &str| format!("{part}{module}");
            let a = op(name("a"), &[&x], conv(32));
            let b = op(name("b"), &[&x], conv(16));
            let c = op(name("c"), &[&b], conv(48));
            let p = op(name("p"), &[&x], pool());
            let d = op(name("d"), &[&p], conv(24));
            x = op(name("all"), &[&a, &c, &d], OpOptions::Concat);
        }
        op("last".to_owned(), &[&x], conv(8));
        let network = builder.finish().unwrap();
        let plan = plan_network(&network, gpu("h200").unwrap()).unwrap();
        assert!(plan.branches() > 1);
        let mut before: Vec<Vec<bool>> = Vec::new();
        let mut shared = 0;
        for (index, layer) in plan.layers.iter().enumerate() {
            let in_branch = (0..index).rfind(|&other| plan.layers[other].branch == layer.branch);
            let mut own = vec![false; index];
            for &other in in_branch.iter().chain(&layer.waits) {
                own[other] = true;
                for (known, &is_before) in own.iter_mut().zip(&before[other]) {
                    *known |= is_before;
                }
            }
            let of =
                |layer: &LayerPlan| bytes(layer, plan.units[layer.unit].variant().workspace_bytes);
            let [writes, all] = of(layer);
            for (other, &is_before) in own.iter().enumerate() {
                let [other_writes, other_all] = of(&plan.layers[other]);
                let overlap = |a: &[std::ops::Range<u64>], b: &[std::ops::Range<u64>]| {
                    let apart = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| {
                        a.end <= b.start || b.end <= a.start
                    };
                    a.iter().any(|a| b.iter().any(|b| !apart(a, b)))
                };
                let is_shared = overlap(&writes, &other_all) || overlap(&other_writes, &all);
                assert!(
                    is_before || !is_shared,
                    "{index} and {other} at the same time"
                );
                shared += usize::from(is_shared);
            }
            before.push(own);
        }
        // Memory is used again.
        assert!(shared > 20, "{shared}");
        let mut order = plan.late_order();
        assert_ne!(order, (0..plan.layers.len()).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..plan.layers.len()).collect::<Vec<_>>());
    }
}
