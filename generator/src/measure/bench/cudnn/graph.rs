//! The graph interface (`cudnnBackend...`): one convolution as an operation graph, and every engine configuration for it.
//!
//! Configurations come from all modes of the heuristics, and then from every engine with the default value of
//! each knob: the heuristics leave out usable engines, among them some that multiply in true fp32.

use super::abi::{
    BEHAVIOR_NOTE_RUNTIME_COMPILATION, CROSS_CORRELATION, HEURISTICS, Opaque, attribute,
    attribute_type, descriptor_type,
};
use super::{Algorithm, Cudnn, CudnnError, Layout, Request, RunAddresses};
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

/// Identifiers of the tensors in the graph.
const X: i64 = 1;
const WEIGHT: i64 = 2;
const Y: i64 = 3;

/// Alignment of every address that is promised to cuDNN, in bytes; allocations have a larger one.
const ALIGNMENT: i64 = 16;

/// A backend descriptor, destroyed when dropped.
struct Descriptor<'a> {
    cudnn: &'a Cudnn,
    raw: Opaque,
}

impl<'a> Descriptor<'a> {
    fn new(cudnn: &'a Cudnn, kind: c_int) -> Result<Self, CudnnError> {
        let mut raw = ptr::null_mut();
        // SAFETY: cuDNN writes the pointer.
        let status = unsafe { (cudnn.functions.backend_create_descriptor)(kind, &mut raw) };
        cudnn.check("cudnnBackendCreateDescriptor", status)?;
        Ok(Self { cudnn, raw })
    }

    /// # Safety
    /// `T` must be the C type of `kind`.
    unsafe fn set<T>(self, name: c_int, kind: c_int, values: &[T]) -> Result<Self, CudnnError> {
        // SAFETY: the descriptor is alive, and the array has the given number of values, which cuDNN copies.
        let status = unsafe {
            (self.cudnn.functions.backend_set_attribute)(
                self.raw,
                name,
                kind,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        };
        self.cudnn.check("cudnnBackendSetAttribute", status)?;
        Ok(self)
    }

    fn integers(self, name: c_int, values: &[i64]) -> Result<Self, CudnnError> {
        // SAFETY: the type of an INT64 is int64_t.
        unsafe { self.set(name, attribute_type::INT64, values) }
    }

    fn enumerator(self, name: c_int, kind: c_int, value: c_int) -> Result<Self, CudnnError> {
        // SAFETY: only called with enumeration types, which are as wide as an int.
        unsafe { self.set(name, kind, &[value]) }
    }

    fn float(self, name: c_int, value: f32) -> Result<Self, CudnnError> {
        // SAFETY: the type of a FLOAT is float.
        unsafe { self.set(name, attribute_type::FLOAT, &[value]) }
    }

    fn handle(self, name: c_int) -> Result<Self, CudnnError> {
        let handle = [self.cudnn.handle];
        // SAFETY: the type of a HANDLE is cudnnHandle_t, a pointer.
        unsafe { self.set(name, attribute_type::HANDLE, &handle) }
    }

    fn addresses(self, name: c_int, values: &[u64]) -> Result<Self, CudnnError> {
        // SAFETY: the type of a VOID_PTR is void*, as wide as a device address.
        unsafe { self.set(name, attribute_type::VOID_PTR, values) }
    }

    fn descriptor(self, name: c_int, value: &Descriptor) -> Result<Self, CudnnError> {
        // SAFETY: the type of a BACKEND_DESCRIPTOR is cudnnBackendDescriptor_t, a pointer.
        unsafe { self.set(name, attribute_type::BACKEND_DESCRIPTOR, &[value.raw]) }
    }

    fn finalized(self) -> Result<Self, CudnnError> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.cudnn.functions.backend_finalize)(self.raw) };
        self.cudnn.check("cudnnBackendFinalize", status)?;
        Ok(self)
    }

    /// Fills `values` as far as possible; returns the number of values available, which may be larger.
    ///
    /// # Safety
    /// `T` must be the C type of `kind`.
    unsafe fn get<T>(
        &self,
        name: c_int,
        kind: c_int,
        values: &mut [T],
    ) -> Result<usize, CudnnError> {
        let mut count = 0;
        let room = match values.len() {
            0 => ptr::null_mut(),
            _ => values.as_mut_ptr().cast::<c_void>(),
        };
        // SAFETY: the descriptor is alive, and at most as many values are written as the array has elements.
        let status = unsafe {
            (self.cudnn.functions.backend_get_attribute)(
                self.raw,
                name,
                kind,
                values.len() as i64,
                &mut count,
                room,
            )
        };
        self.cudnn.check("cudnnBackendGetAttribute", status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn integer(&self, name: c_int) -> Result<i64, CudnnError> {
        let mut value = [0_i64];
        // SAFETY: the type of an INT64 is int64_t.
        unsafe { self.get(name, attribute_type::INT64, &mut value) }?;
        Ok(value[0])
    }

    /// The number of descriptors in an attribute.
    fn count(&self, name: c_int) -> Result<usize, CudnnError> {
        // SAFETY: nothing is written to an empty array.
        unsafe { self.get::<Opaque>(name, attribute_type::BACKEND_DESCRIPTOR, &mut []) }
    }

    /// The descriptors of kind `kind` in an attribute, at most `room`.
    fn descriptors(&self, name: c_int, kind: c_int, room: usize) -> Result<Vec<Self>, CudnnError> {
        let mut made = (0..room)
            .map(|_| Self::new(self.cudnn, kind))
            .collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Opaque> = made.iter().map(|descriptor| descriptor.raw).collect();
        // SAFETY: the array holds descriptors of the right kind, which cuDNN fills.
        let filled = unsafe { self.get(name, attribute_type::BACKEND_DESCRIPTOR, &mut raw) }?;
        made.truncate(filled);
        Ok(made)
    }
}

impl Drop for Descriptor<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        unsafe { (self.cudnn.functions.backend_destroy_descriptor)(self.raw) };
    }
}

/// A finalised graph of one convolution.
struct Graph<'a> {
    graph: Descriptor<'a>,
    /// The descriptors that the graph refers to, outermost first.
    _parts: Vec<Descriptor<'a>>,
}

impl<'a> Graph<'a> {
    fn new(cudnn: &'a Cudnn, request: &Request) -> Result<Self, CudnnError> {
        let shape = request.shape;
        let sizes = |sizes: [u32; 4]| sizes.map(i64::from);
        let tensor = |name, sizes: [i64; 4]| {
            let [_, c, h, w] = sizes;
            let strides = match request.layout {
                Layout::Nchw => [c * h * w, h * w, w, 1],
                Layout::Nhwc => [c * h * w, 1, c * w, c],
            };
            Descriptor::new(cudnn, descriptor_type::TENSOR)?
                .enumerator(
                    attribute::TENSOR_DATA_TYPE,
                    attribute_type::DATA_TYPE,
                    request.arithmetic.data_type(),
                )?
                .integers(attribute::TENSOR_DIMENSIONS, &sizes)?
                .integers(attribute::TENSOR_STRIDES, &strides)?
                .integers(attribute::TENSOR_UNIQUE_ID, &[name])?
                .integers(attribute::TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?
                .finalized()
        };
        let x = tensor(X, sizes([shape.batch, shape.c, shape.h, shape.w]))?;
        let weight = tensor(
            WEIGHT,
            sizes([shape.n, shape.c / shape.groups, shape.r, shape.s]),
        )?;
        let y = tensor(
            Y,
            sizes([shape.batch, shape.n, shape.out_h(), shape.out_w()]),
        )?;
        let padding = shape.padding;
        let pair = |[v, h]: [u32; 2]| [i64::from(v), i64::from(h)];
        let convolution = Descriptor::new(cudnn, descriptor_type::CONVOLUTION)?
            .enumerator(
                attribute::CONVOLUTION_COMP_TYPE,
                attribute_type::DATA_TYPE,
                request.arithmetic.compute_type(),
            )?
            .enumerator(
                attribute::CONVOLUTION_CONV_MODE,
                attribute_type::CONVOLUTION_MODE,
                CROSS_CORRELATION,
            )?
            .integers(attribute::CONVOLUTION_SPATIAL_DIMS, &[2])?
            .integers(attribute::CONVOLUTION_DILATIONS, &pair(shape.dilation))?
            .integers(attribute::CONVOLUTION_FILTER_STRIDES, &pair(shape.stride))?
            .integers(
                attribute::CONVOLUTION_PRE_PADDINGS,
                &pair([padding.top, padding.left]),
            )?
            .integers(
                attribute::CONVOLUTION_POST_PADDINGS,
                &pair([padding.bottom, padding.right]),
            )?
            .finalized()?;
        let operation = Descriptor::new(cudnn, descriptor_type::OPERATION_CONVOLUTION_FORWARD)?
            .descriptor(attribute::OPERATION_CONVOLUTION_FORWARD_X, &x)?
            .descriptor(attribute::OPERATION_CONVOLUTION_FORWARD_W, &weight)?
            .descriptor(attribute::OPERATION_CONVOLUTION_FORWARD_Y, &y)?
            .descriptor(
                attribute::OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                &convolution,
            )?
            .float(attribute::OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)?
            .float(attribute::OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)?
            .finalized()?;
        let graph = Descriptor::new(cudnn, descriptor_type::OPERATIONGRAPH)?
            .descriptor(attribute::OPERATIONGRAPH_OPS, &operation)?
            .handle(attribute::OPERATIONGRAPH_HANDLE)?
            .finalized()?;
        Ok(Self {
            graph,
            _parts: vec![operation, convolution, y, weight, x],
        })
    }

    /// Configurations that a heuristic mode proposes, best first.
    fn proposed(&self, mode: c_int) -> Result<Vec<Descriptor<'a>>, CudnnError> {
        let heuristics = Descriptor::new(self.graph.cudnn, descriptor_type::ENGINEHEUR)?
            .descriptor(attribute::ENGINEHEUR_OPERATION_GRAPH, &self.graph)?
            .enumerator(attribute::ENGINEHEUR_MODE, attribute_type::HEUR_MODE, mode)?
            .finalized()?;
        let results = attribute::ENGINEHEUR_RESULTS;
        let count = heuristics.count(results)?;
        heuristics.descriptors(results, descriptor_type::ENGINECFG, count)
    }

    /// The engine at an index with the default value of every knob; `None` for one that compiles a kernel for
    /// each plan, unless `compiled` includes these.
    fn engine(&self, index: i64, compiled: bool) -> Result<Option<Descriptor<'a>>, CudnnError> {
        let cudnn = self.graph.cudnn;
        let engine = Descriptor::new(cudnn, descriptor_type::ENGINE)?
            .descriptor(attribute::ENGINE_OPERATION_GRAPH, &self.graph)?
            .integers(attribute::ENGINE_GLOBAL_INDEX, &[index])?
            .finalized()?;
        let mut notes = [-1 as c_int; 16];
        // SAFETY: the type of a BEHAVIOR_NOTE is an enumeration, as wide as an int.
        let count = unsafe {
            engine.get(
                attribute::ENGINE_BEHAVIOR_NOTE,
                attribute_type::BEHAVIOR_NOTE,
                &mut notes,
            )
        }?;
        let notes = &notes[..count.min(notes.len())];
        if !compiled && notes.contains(&BEHAVIOR_NOTE_RUNTIME_COMPILATION) {
            return Ok(None);
        }
        Descriptor::new(cudnn, descriptor_type::ENGINECFG)?
            .descriptor(attribute::ENGINECFG_ENGINE, &engine)?
            .finalized()
            .map(Some)
    }
}

/// A label that identifies a configuration: `engine 34 k2=1 k14=0`.
fn label(configuration: &Descriptor) -> Result<String, CudnnError> {
    /// More than the number of knob types.
    const KNOBS: usize = 64;
    let engines =
        configuration.descriptors(attribute::ENGINECFG_ENGINE, descriptor_type::ENGINE, 1)?;
    let index = match engines.first() {
        Some(engine) => engine.integer(attribute::ENGINE_GLOBAL_INDEX)?,
        None => -1,
    };
    let choices = configuration.descriptors(
        attribute::ENGINECFG_KNOB_CHOICES,
        descriptor_type::KNOB_CHOICE,
        KNOBS,
    )?;
    let mut knobs = Vec::new();
    for choice in choices {
        let mut knob = [0 as c_int];
        // SAFETY: the type of a KNOB_TYPE is an enumeration, as wide as an int.
        unsafe {
            choice.get(
                attribute::KNOB_CHOICE_KNOB_TYPE,
                attribute_type::KNOB_TYPE,
                &mut knob,
            )
        }?;
        knobs.push((knob[0], choice.integer(attribute::KNOB_CHOICE_KNOB_VALUE)?));
    }
    knobs.sort_unstable();
    let knobs = knobs
        .iter()
        .map(|(knob, value)| format!(" k{knob}={value}"));
    Ok(format!("engine {index}{}", knobs.collect::<String>()))
}

/// An engine configuration that can be run.
pub struct Plan<'a> {
    plan: Descriptor<'a>,
    _graph: Rc<Graph<'a>>,
    name: String,
}

/// Every engine configuration that yields a plan within the workspace limit.
///
/// # Errors
/// [`CudnnError`] when the graph cannot be described.
pub fn plans<'a>(cudnn: &'a Cudnn, request: &Request) -> Result<Vec<Plan<'a>>, CudnnError> {
    let graph = Rc::new(Graph::new(cudnn, request)?);
    let mut found = Vec::new();
    let mut known = HashSet::new();
    let mut add = |configuration: Descriptor<'a>, origin: &str| {
        let label = match label(&configuration) {
            Ok(label) if known.insert(label.clone()) => label,
            Ok(_) => return,
            // It may still run.
            Err(_) => "engine unknown".to_owned(),
        };
        if let Ok(plan) = plan(cudnn, &configuration, request.workspace_limit) {
            found.extend(plan.map(|plan| Plan {
                plan,
                _graph: Rc::clone(&graph),
                name: format!("{label}, {origin}"),
            }));
        }
    };
    for (mode, origin) in HEURISTICS {
        for configuration in graph.proposed(mode).unwrap_or_default() {
            add(configuration, origin);
        }
    }
    let engines = graph
        .graph
        .integer(attribute::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT);
    for index in 0..engines.unwrap_or(0) {
        if let Ok(Some(configuration)) = graph.engine(index, request.runtime_compiled_engines) {
            add(configuration, "default knobs");
        }
    }
    Ok(found)
}

/// The plan of a configuration; `None` if it needs more than the workspace limit.
fn plan<'a>(
    cudnn: &'a Cudnn,
    configuration: &Descriptor<'a>,
    workspace_limit: usize,
) -> Result<Option<Descriptor<'a>>, CudnnError> {
    let plan = Descriptor::new(cudnn, descriptor_type::EXECUTION_PLAN)?
        .handle(attribute::EXECUTION_PLAN_HANDLE)?
        .descriptor(attribute::EXECUTION_PLAN_ENGINE_CONFIG, configuration)?
        .finalized()?;
    let bytes = plan.integer(attribute::EXECUTION_PLAN_WORKSPACE_SIZE)?;
    let fits = usize::try_from(bytes).is_ok_and(|bytes| bytes <= workspace_limit);
    Ok(fits.then_some(plan))
}

impl Algorithm for Plan<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, addresses: &RunAddresses) -> Result<(), CudnnError> {
        let cudnn = self.plan.cudnn;
        let pack = Descriptor::new(cudnn, descriptor_type::VARIANT_PACK)?
            .integers(attribute::VARIANT_PACK_UNIQUE_IDS, &[X, WEIGHT, Y])?
            .addresses(
                attribute::VARIANT_PACK_DATA_POINTERS,
                &[addresses.x, addresses.weight, addresses.y],
            )?
            .addresses(attribute::VARIANT_PACK_WORKSPACE, &[addresses.workspace])?
            .finalized()?;
        // SAFETY: handle, plan and pack are alive; the addresses are the caller's, of tensors as described
        // and of a workspace that is large enough.
        let status =
            unsafe { (cudnn.functions.backend_execute)(cudnn.handle, self.plan.raw, pack.raw) };
        cudnn.check("cudnnBackendExecute", status)
    }
}
