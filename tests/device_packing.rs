//! Weights packed by the kernels of `tdc_runtime::device_packing`, emulated on the CPU, have the bits of the host's packer.

mod toolkit;

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use tdc_generator::compile::Compiler;
use tdc_generator::compile::cpu::{CpuModule, TranslationUnit};
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::verify::Random;
use tdc_runtime::device_packing::TEXT;
use tdc_runtime::{
    Arch, Axis, Filter, Launch, LayoutDim, Transform, WeightLayout, Winograd, device_packing,
};

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// The result of the packing kernels for a weight; words that they do not write are NaN.
fn packed_by(module: &CpuModule, layout: &WeightLayout, weight: &[f32]) -> Vec<u32> {
    let mut packed = vec![f32::NAN; layout.weight_len()];
    let mut numbers = layout.device_words();
    let mut weight = weight.as_ptr();
    let mut words = packed.as_mut_ptr();
    // SAFETY: the pointer is at most one past the last word.
    let mut dequant_scale = unsafe { words.add(layout.packed_word_len()) };
    let mut layout_at = numbers.as_mut_ptr();
    let mut count = layout.packed_word_len() as i64;
    let run = |launch: Option<Launch>, arguments: &mut [*mut c_void]| {
        let Some(launch) = launch else { return };
        // SAFETY: the parameters of the kernels, with as much memory as the layout requires.
        unsafe {
            module.launch(
                &launch.kernel,
                launch.grid,
                launch.block,
                launch.cluster,
                0,
                arguments,
            )
        }
        .unwrap();
    };
    run(
        layout.dequant_scale_launch(),
        &mut [
            pointer(&mut weight),
            pointer(&mut dequant_scale),
            pointer(&mut layout_at),
        ],
    );
    run(
        layout.pack_launch(),
        &mut [
            pointer(&mut weight),
            pointer(&mut dequant_scale),
            pointer(&mut words),
            pointer(&mut layout_at),
            pointer(&mut count),
        ],
    );
    packed.iter().map(|value| value.to_bits()).collect()
}

/// A layout with each axis split, padded and out of order.
fn layout(random: &mut Random) -> WeightLayout {
    let filter = match random.below(4) {
        0 => Filter::Winograd(Winograd::F2),
        1 => Filter::Winograd(Winograd::F4),
        2 => Filter::MergedGroups {
            merged: 2 + random.below(3) as u32,
            n: 1 + random.below(3) as u32,
        },
        _ => Filter::Taps,
    };
    let taps = |random: &mut Random| match filter {
        Filter::Taps | Filter::MergedGroups { .. } => 1 + random.below(4) as u32,
        Filter::Winograd(_) => 3,
    };
    let (merged, n) = match filter {
        Filter::MergedGroups { merged, n } => (merged, n),
        Filter::Taps | Filter::Winograd(_) => (1, 1),
    };
    let source = [
        n * (1 + random.below(9) as u32),
        1 + random.below(7) as u32,
        taps(random),
        taps(random),
    ];
    let layout = WeightLayout {
        filter,
        ..WeightLayout::oihw(source)
    };
    let mut dims = Vec::new();
    for (axis, size) in [Axis::O, Axis::I, Axis::R, Axis::S]
        .into_iter()
        .zip(layout.indexed_shape())
    {
        let size = size * if axis == Axis::I { merged } else { 1 };
        let inner = 1 + random.below(3) as u32;
        dims.push(LayoutDim {
            axis,
            count: size.div_ceil(inner),
            step: inner,
        });
        dims.push(LayoutDim {
            axis,
            count: inner,
            step: 1,
        });
    }
    for end in (1..dims.len()).rev() {
        dims.swap(end, random.below(end as u64 + 1) as usize);
    }
    let transform = match random.below(4) {
        0 => Transform::None,
        1 => Transform::Bf16,
        parts => Transform::Fp16 {
            run: 4,
            terms: parts as u32 - 1,
        },
    };
    if transform != Transform::None {
        // The number of weights is then a multiple of four.
        dims.push(LayoutDim {
            axis: Axis::I,
            count: 4,
            step: (merged * source[1]).div_ceil(2),
        });
    }
    WeightLayout {
        dims: dims.into(),
        transform,
        ..layout
    }
}

#[test]
fn weights_packed_on_a_device_are_those_packed_on_the_host() {
    let module = CpuModule::build_units(&[TranslationUnit {
        source: TEXT.to_owned(),
        kernels: ["tdc_pack_dequant_scales", "tdc_pack_weights"]
            .map(str::to_owned)
            .to_vec(),
    }])
    .unwrap_or_else(|error| panic!("{error}"));
    let mut random = Random::new(1);
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        let layout = layout(&mut random);
        // Tiny, large, subnormal, zero and infinite weights included.
        let weight: Vec<f32> = (0..layout.source_len())
            .map(|_| {
                let value = random.value();
                match random.below(12) {
                    0 => 0.0,
                    1 => value * 1e-42,
                    2 => value * 1e-6,
                    3 => value * 1e30,
                    4 if random.below(20) == 0 => f32::INFINITY,
                    _ => value,
                }
            })
            .collect();
        let mut expected = vec![0.0; layout.len()];
        layout.pack(&weight, &[], &[], &mut expected).unwrap();
        let found = packed_by(&module, &layout, &weight);
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let same = *found == expected.to_bits()
                || f32::from_bits(*found).is_nan()
                    && expected.is_nan()
                    && layout.transform == Transform::None;
            assert!(
                same,
                "{layout}: word {index} is {found:08x}, not {:08x}\n{weight:?}",
                expected.to_bits()
            );
        }
        let filter = format!("{:?}", layout.filter);
        let filter = filter.split(' ').next().unwrap_or_default();
        seen.insert(format!("{filter} {:?}", layout.transform));
    }
    assert_eq!(seen.len(), 4 * 4);
}

/// `TDC_BLESS=1` writes the result of NVRTC.
#[test]
fn the_committed_ptx_is_up_to_date() {
    let compiler = toolkit::toolkit().compiler(Options::default()).unwrap();
    let ptx = compiler.ptx(TEXT, "pack.cu", Arch::new(70)).unwrap();
    let ptx = String::from_utf8(ptx).unwrap();
    let ptx = ptx.trim_end_matches('\0');
    if std::env::var_os("TDC_BLESS").is_some() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/src/device_packing/pack.ptx");
        std::fs::write(file, ptx).unwrap();
    } else {
        assert_eq!(ptx, device_packing::PTX);
    }
}
