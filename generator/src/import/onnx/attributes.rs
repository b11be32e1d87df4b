//! The attributes of a node. Each one must be read: an attribute that was not understood is an error.

use super::message::{Attribute, Node, attribute_kind};
use super::tensor::Tensor;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Reads a node's attributes and notes which ones were read.
pub struct Attributes<'n> {
    all: &'n [Attribute],
    read: RefCell<BTreeSet<&'n str>>,
    errors: RefCell<Vec<String>>,
}

impl<'n> Attributes<'n> {
    /// The attributes of a node.
    pub fn of(node: &'n Node) -> Self {
        let mut names = BTreeSet::new();
        let attributes = node.attribute.iter();
        let twice = attributes.filter_map(|attribute| {
            let name = attribute.name.as_deref().unwrap_or_default();
            let is_new = names.insert(name);
            (!is_new).then(|| format!("it has the attribute `{}` twice", name.escape_debug()))
        });
        Self {
            errors: RefCell::new(twice.collect()),
            all: &node.attribute,
            read: RefCell::default(),
        }
    }

    /// The attribute, if the node has it; one of another kind is an error.
    fn get(&self, name: &str, kind: i32) -> Option<&'n Attribute> {
        let mut all = self.all.iter();
        let found = all.find(|attribute| attribute.name.as_deref() == Some(name))?;
        if let Some(name) = found.name.as_deref() {
            self.read.borrow_mut().insert(name);
        }
        if found.kind != Some(kind) {
            let message = format!("the attribute `{name}` has another type than ONNX defines");
            self.errors.borrow_mut().push(message);
            return None;
        }
        Some(found)
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name, attribute_kind::INT)
            .map(|attribute| attribute.i.unwrap_or_default())
    }

    /// An integer that must be this one if it is given.
    pub fn expect_int(&self, name: &str, expected: i64) {
        if let Some(found) = self.int(name).filter(|&found| found != expected) {
            let message = format!("`{name}` = {found} is not supported, only {expected}");
            self.errors.borrow_mut().push(message);
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Option<f32> {
        let found = self.get(name, attribute_kind::FLOAT);
        found.map(|attribute| attribute.f.unwrap_or_default())
    }

    /// A text.
    pub fn string(&self, name: &str) -> Option<String> {
        let found = self.get(name, attribute_kind::STRING)?;
        let bytes = found.s.as_deref().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Integers.
    pub fn ints(&self, name: &str) -> Option<&'n [i64]> {
        let found = self.get(name, attribute_kind::INTS);
        found.map(|attribute| &attribute.ints[..])
    }

    /// Numbers.
    pub fn floats(&self, name: &str) -> Option<&'n [f32]> {
        let found = self.get(name, attribute_kind::FLOATS);
        found.map(|attribute| &attribute.floats[..])
    }

    /// A tensor in the message.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let found = self.get(name, attribute_kind::TENSOR)?;
        match Tensor::read(found.t.as_ref()?, None) {
            Ok(tensor) => Some(tensor),
            Err(message) => {
                self.errors
                    .borrow_mut()
                    .push(format!("`{name}`: {message}"));
                None
            }
        }
    }

    /// Marks an attribute as understood, whatever its value.
    pub fn ignore(&self, name: &str) {
        let mut all = self.all.iter();
        let found = all.find(|attribute| attribute.name.as_deref() == Some(name));
        if let Some(name) = found.and_then(|found| found.name.as_deref()) {
            self.read.borrow_mut().insert(name);
        }
    }

    /// What is wrong with the attributes that were read.
    pub fn errors(&self) -> Vec<String> {
        self.errors.borrow().clone()
    }

    /// An error for each attribute that was not read. Says something about nodes only that were converted to the end: before an error
    /// not all attributes are read.
    pub fn unread(&self) -> Vec<String> {
        let read = self.read.borrow();
        let names = self.all.iter();
        let names = names.map(|attribute| attribute.name.as_deref().unwrap_or_default());
        names
            .filter(|name| !read.contains(name))
            .map(|name| format!("the attribute `{}` is not supported", name.escape_debug()))
            .collect()
    }
}
