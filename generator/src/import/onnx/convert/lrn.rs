//! Local response normalisation.

use super::super::attributes::Attributes;
use super::{Converter, Problem, Value, ValueId, invalid};
use crate::ir::{ActivationParameter, Lrn, OpOptions};

impl Converter<'_> {
    pub(super) fn lrn(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let size = attributes.int("size").unwrap_or(0);
        let size = u32::try_from(size).map_err(|_| invalid(format!("`size` = {size}")))?;
        let number = |name: &str, default| {
            let number = attributes.float(name).unwrap_or(default);
            match number.is_nan() {
                true => Err(invalid(format!("`{name}` is not a number"))),
                false => Ok(ActivationParameter::new(number)),
            }
        };
        let lrn = Lrn {
            size,
            alpha: number("alpha", Lrn::DEFAULT_ALPHA)?,
            beta: number("beta", Lrn::DEFAULT_BETA)?,
            k: number("bias", Lrn::DEFAULT_K)?,
        };
        let op = self.op_of(inputs, 0)?;
        self.add(node, vec![op], OpOptions::Lrn(lrn), |_| Vec::new())
    }
}
