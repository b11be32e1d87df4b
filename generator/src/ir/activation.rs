//! Activation functions.

pub use tdc_runtime::Activation;

/// The value of an activation function in float64.
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
    }
}
