//! Activation functions: on the device for kernels, on the host for the program that checks a layer set.

use super::engine::{RenderError, render};
use crate::ir::{Activation, Problem};
use crate::scheme::activation_function;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct ActivationContext {
    /// Which activation it is.
    name: &'static str,
    /// Whether the function is for the host, in double.
    host: bool,
    function: String,
    /// Parameters as literals, those that the activation has; no infinite ones.
    #[serde(flatten)]
    parameters: BTreeMap<&'static str, Option<String>>,
    /// The macro that its declaration defines.
    guard: String,
}

/// The device functions of the activations of some problems, each in the guard of its macro.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub(super) fn device_activations<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
) -> Result<Vec<String>, RenderError> {
    functions(problems, false)
}

/// The same on the host, in double.
///
/// # Errors
/// As [`device_activations`].
pub(super) fn host_activations<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
) -> Result<Vec<String>, RenderError> {
    functions(problems, true)
}

/// The name of an activation's function on the host.
pub(super) fn host_activation(activation: Activation) -> Option<String> {
    let device = activation_function(activation)?;
    Some(device.replacen("tdc_", "reference_", 1))
}

/// The parameters of an activation by their names, as literals of float or double.
fn parameters(activation: Activation, host: bool) -> BTreeMap<&'static str, Option<String>> {
    let literal = |number: f32| match host {
        true => format!("{:?}", f64::from(number)),
        false => format!("{number:?}f"),
    };
    let literal = |number: f32| number.is_finite().then(|| literal(number));
    let names = activation.parameter_names().iter().copied();
    names
        .zip(activation.parameters().into_iter().map(literal))
        .collect()
}

fn functions<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
    host: bool,
) -> Result<Vec<String>, RenderError> {
    let activations = problems.into_iter().flat_map(Problem::activations);
    let by_name: BTreeMap<String, Activation> = activations
        .filter_map(|activation| Some((activation_function(activation)?, activation)))
        .collect();
    let text = |(device_function, activation): (String, Activation)| {
        let guard = device_function.to_ascii_uppercase();
        let function = match host {
            true => host_activation(activation),
            false => Some(device_function),
        };
        render(
            "folder/activation.cuh",
            &ActivationContext {
                name: activation.as_str(),
                host,
                function: function.unwrap_or_default(),
                parameters: parameters(activation, host),
                guard,
            },
        )
    };
    by_name.into_iter().map(text).collect()
}
