//! Tucker layers that go on with the first factor of the layer behind: it is 1x1, so a launch that has all channels of a pixel can
//! compute it there, and a chain of layers has a launch less for each layer but one.

use super::fuse::{Fusions, Parameters, Task, TaskGraph, TaskPart, Value, ValueId};
use crate::spec::{Layout, NextFactor, Problem, TuckerProblem};

/// What can carry out a Tucker layer together with the first factor of the one that reads its output.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Index of the task that this leaves out: the first of the layer behind.
    pub behind: usize,
    /// The whole layer, then that factor.
    pub whole: Task,
    /// Core and last factor, then that factor, behind the task of the layer's own first.
    pub rest: Task,
}

impl TaskGraph {
    /// How the Tucker layer whose first task is at `index` can go on with the first factor of the layer behind: of several, the
    /// one that runs first. `None` where no such layer begins or none reads it, where the output belongs to the caller or
    /// shares the memory of other values, and where the config names a scheme for either layer.
    ///
    /// The tasks write the layer's own output, with what the factor makes [behind it](Self::place); that alone where nobody else reads
    /// the layer's.
    pub fn join(&self, index: usize) -> Option<Join> {
        let Fusions { whole, rest, .. } = self.fusions(index)?;
        let (rest, own) = (rest?, whole.y);
        let in_another = |value: &Value| value.parent.is_some_and(|(parent, _)| parent == own);
        let shares_memory =
            self.values[own.0].parent.is_some() || self.values.iter().any(in_another);
        if own == self.output || shares_memory || whole.scheme.is_some() {
            return None;
        }
        let behind = (index..self.tasks.len()).find(|&at| self.can_go_on(&whole, at))?;
        let factor = &self.tasks[behind];
        let reads = |task: &Task| task.x == own || task.residual == Some(own);
        let next = NextFactor {
            n: factor.problem.y().c,
            keeps: self.tasks.iter().filter(|task| reads(task)).count() > 1,
        };
        let join = |task: Task| match task.problem {
            Problem::Tucker(tucker) => Some(Task {
                name: format!("{}+{}", task.name, factor.name),
                problem: Problem::Tucker(TuckerProblem {
                    next: Some(next),
                    ..tucker
                }),
                y: if next.keeps { own } else { factor.y },
                parameters: Parameters {
                    next: factor.parameters.layer,
                    ..task.parameters
                },
                ..task
            }),
            _ => None,
        };
        Some(Join {
            behind,
            whole: join(whole)?,
            rest: join(rest)?,
        })
    }

    /// Whether the task at `index` is a first factor that `layer` can go on with: of another Tucker layer, with nothing between them.
    fn can_go_on(&self, layer: &Task, index: usize) -> bool {
        let task = &self.tasks[index];
        let plain = |problem: &Problem| {
            matches!(problem, Problem::Conv(conv) if conv.prologue.is_none())
                && problem.precision() == layer.problem.precision()
        };
        task.x == layer.y
            && task.parameters.parts == [TaskPart::First]
            && plain(&task.problem)
            && self
                .fusions(index)
                .is_some_and(|fusions| fusions.rest.is_some() && fusions.whole.scheme.is_none())
    }

    /// Gives both outputs of a join their places in one value where both are read: in each image the factor's lies behind the layer's.
    pub(super) fn place(&mut self, join: &Join) {
        let (own, made) = (join.whole.y, self.tasks[join.behind].y);
        if own == made {
            return;
        }
        let value = Value {
            name: format!("{}+{}", self.values[own.0].name, self.values[made.0].name),
            shape: join.whole.problem.y(),
            layout: Layout::Nchw,
            parent: None,
        };
        let both = ValueId(self.values.len());
        self.values.push(value);
        self.values[made.0].parent = Some((both, self.values[own.0].shape.image_len()));
        self.values[own.0].parent = Some((both, 0));
    }
}
