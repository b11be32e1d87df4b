//! Contraction orders as text for the command line.

use super::columns::align_columns;
use crate::sequence::{ModeKind, Order, Step, StepInput, TensorNetwork};

const TITLES: [&str; 8] = [
    "step",
    "operands",
    "result",
    "sums over",
    "convolves",
    "elements",
    "multiplications",
    "bytes",
];

/// The columns that contain numbers.
const NUMBERS: std::ops::Range<usize> = 5..8;

/// A row for each operation, in order; `#1` is the product of step 1.
pub fn order_table(network: &TensorNetwork, order: &Order) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for (index, step) in order.steps.iter().enumerate() {
        rows.push([
            (index + 1).to_string(),
            format!("{} {}", part(network, step.left), part(network, step.right)),
            modes(network, &step.modes),
            labels(network, &step.summed),
            labels(network, &step.convolved),
            step.elements.to_string(),
            step.multiplications.to_string(),
            step.bytes.to_string(),
        ]);
    }
    rows.push([
        "total".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        order.multiplications().to_string(),
        order.bytes().to_string(),
    ]);
    align_columns(&rows, &NUMBERS)
}

/// The order as a tree: the result first, and below each product its two operands.
pub fn order_tree(network: &TensorNetwork, order: &Order) -> String {
    let mut text = String::new();
    if let Some(last) = order.steps.len().checked_sub(1) {
        branch(network, order, StepInput::Step(last), "", "", &mut text);
    }
    text
}

/// An operand on a line that starts with `lead`, and below it its own operands, with `indent` before them.
fn branch(
    network: &TensorNetwork,
    order: &Order,
    of: StepInput,
    lead: &str,
    indent: &str,
    text: &mut String,
) {
    let name = part(network, of);
    match of {
        StepInput::Tensor(index) => {
            let shown = modes(network, &network.tensors()[index].modes);
            *text += &format!("{lead}{name}{shown}\n");
        }
        StepInput::Step(index) => {
            let step = &order.steps[index];
            let shown = modes(network, &step.modes);
            *text += &format!(
                "{lead}{name} {} {shown}\n",
                operations(network, order, step)
            );
            for (side, lead, below) in [(step.left, "├─ ", "│  "), (step.right, "└─ ", "   ")]
            {
                let lead = format!("{indent}{lead}");
                branch(
                    network,
                    order,
                    side,
                    &lead,
                    &format!("{indent}{below}"),
                    text,
                );
            }
        }
    }
}

/// The paper's signs for the operations that combine two operands: contraction, convolution and partial outer product, with their modes.
/// The outer product has no mode if the operands share none.
fn operations(network: &TensorNetwork, order: &Order, step: &Step) -> String {
    let of_part = |part: StepInput| match part {
        StepInput::Tensor(index) => &network.tensors()[index].modes,
        StepInput::Step(index) => &order.steps[index].modes,
    };
    let has = |part, mode: usize| of_part(part).iter().any(|&(other, _)| other == mode);
    let mut shared = Vec::new();
    for (mode, what) in network.modes().iter().enumerate() {
        if !has(step.left, mode) || !has(step.right, mode) {
            continue;
        }
        let sign = match what.kind {
            ModeKind::Convolved { .. } => "*",
            ModeKind::Summed if step.summed.contains(&mode) => "×",
            // A rank that other factors have too is summed over in the last step that combines them.
            ModeKind::Summed | ModeKind::Kept => "⊗",
        };
        shared.push(format!("{sign}{}", what.label));
    }
    match shared.is_empty() {
        true => "⊗".to_owned(),
        false => shared.join(" "),
    }
}

fn part(network: &TensorNetwork, part: StepInput) -> String {
    match part {
        StepInput::Tensor(index) => network.tensors()[index].name.clone(),
        StepInput::Step(index) => format!("#{}", index + 1),
    }
}

fn modes(network: &TensorNetwork, modes: &[(usize, u64)]) -> String {
    let modes = modes
        .iter()
        .map(|&(mode, length)| format!("{}:{length}", network.modes()[mode].label));
    format!("[{}]", modes.collect::<Vec<_>>().join(", "))
}

fn labels(network: &TensorNetwork, modes: &[usize]) -> String {
    let labels = modes
        .iter()
        .map(|&mode| network.modes()[mode].label.as_str());
    labels.collect::<Vec<_>>().join(", ")
}
