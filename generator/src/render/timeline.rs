//! The predicted timeline of a network as an SVG picture: a lane for each branch, in which each layer is a box as wide as its time and as
//! high as the part of the GPU that it fills, and a lane with the traffic of weights. A lane of measured times has boxes as high as the predicted
//! ones and as wide as what each layer added to the network.

use super::profile::Profile;
use crate::plan::{LayerPlan, LayerTime, NetworkPlan};
use std::fmt::Write as _;

/// Width of a microsecond in pixels, unless the picture were too wide.
const PIXELS_PER_US: f64 = 12.0;
/// Greatest width of the lanes in pixels.
const MAX_WIDTH: f64 = 4000.0;
/// Height of a lane in pixels; a box of this height fills the GPU.
const LANE: f64 = 60.0;
/// Least height of a box.
const MIN_BOX: f64 = 4.0;
/// Distance between lanes, and of the title.
const GAP: f64 = 24.0;
/// Width of the names of the lanes.
const LEFT: f64 = 90.0;
/// Width of a letter, for names that fit their boxes.
const LETTER: f64 = 6.0;

/// Fills of the boxes, distinguishable with red-green colour blindness: convolutions on tensor cores, other layers with weights, the rest.
const COLOURS: [(&str, &str); 3] = [
    ("#56b4e9", "convolutions on tensor cores"),
    ("#e69f00", "other layers with weights"),
    ("#bbbbbb", "layers without weights"),
];

/// The timeline of a planned network, as SVG, beside its measured times if there are any.
pub fn network_timeline(plan: &NetworkPlan, profile: Option<&Profile>) -> String {
    let times = plan.timeline();
    let measured = profile.map(|profile| measured_times(&times, profile));
    let measured_us = measured.iter().flatten().map(|layer| layer.end_us);
    let measured_us = measured_us.reduce(f64::max);
    let us = plan.network_us().max(measured_us.unwrap_or(0.0));
    let scale = PIXELS_PER_US.min(MAX_WIDTH / us.max(1.0));
    let lanes = plan.branches() + 1 + usize::from(measured.is_some());
    let (width, height) = (
        LEFT + us * scale + GAP,
        2.0 * GAP + lanes as f64 * (LANE + GAP) + GAP,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut title = format!(
        "{} on {}: {:.1} us predicted, {} layers, {} launches",
        plan.name,
        plan.gpu.title,
        plan.network_us(),
        plan.layers.len(),
        launches(plan)
    );
    if let Some(profile) = profile {
        let us: f64 = profile.added_us.iter().sum();
        let _ = write!(title, "; {us:.1} us measured without parallel branches");
    }
    text(&mut svg, [GAP / 2.0, GAP * 0.75], &title);
    legend(&mut svg, width);
    axis(&mut svg, us, scale, lanes);
    for branch in 0..plan.branches() {
        let name = format!("branch {branch}");
        text(&mut svg, [GAP / 2.0, top(branch) + LANE / 2.0], &name);
    }
    for (layer, time) in plan.layers.iter().zip(&times) {
        layer_box(&mut svg, plan, layer, (layer.branch, time), scale);
    }
    if let Some(measured) = &measured {
        let lane = plan.branches() + 1;
        text(&mut svg, [GAP / 2.0, top(lane) + LANE / 2.0], "measured");
        for (layer, time) in plan.layers.iter().zip(measured) {
            layer_box(&mut svg, plan, layer, (lane, time), scale);
        }
    }
    weight_traffic(&mut svg, plan, &times, scale);
    svg + "</svg>\n"
}

/// The layers one after the other, with measured times.
fn measured_times(predicted: &[LayerTime], profile: &Profile) -> Vec<LayerTime> {
    let mut start_us = 0.0;
    let layers = predicted.iter().zip(&profile.added_us);
    let times = layers.map(|(layer, added_us)| {
        let end_us = start_us + added_us.max(0.0);
        let time = LayerTime {
            start_us,
            end_us,
            ..*layer
        };
        start_us = end_us;
        time
    });
    times.collect()
}

fn launches(plan: &NetworkPlan) -> usize {
    let kernels = plan.layers.iter();
    kernels
        .map(|layer| plan.units[layer.unit].kernels.len())
        .sum()
}

/// The upper edge of a lane.
fn top(lane: usize) -> f64 {
    2.0 * GAP + lane as f64 * (LANE + GAP)
}

fn text(svg: &mut String, [x, y]: [f64; 2], text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn legend(svg: &mut String, width: f64) {
    let mut y = GAP * 0.4;
    for (colour, meaning) in COLOURS {
        let x = width.max(700.0) - GAP - 180.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"9\" height=\"9\" fill=\"{colour}\"/>"
        );
        text(svg, [x + 14.0, y + 9.0], meaning);
        y += 13.0;
    }
}

/// Lines at round times, about 100 pixels apart, with the lower edges of the lanes.
fn axis(svg: &mut String, us: f64, scale: f64, lanes: usize) {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
    let step = steps.into_iter().find(|step| step * scale >= 100.0);
    let step = step.unwrap_or(us.max(1.0));
    let bottom = top(lanes - 1) + LANE;
    for index in 0..=(us / step) as u32 {
        let at = f64::from(index) * step;
        let x = LEFT + at * scale;
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" stroke=\"#dddddd\"/>",
            top(0)
        );
        text(svg, [x, bottom + 14.0], &format!("{at} us"));
    }
    for lane in 0..lanes {
        let y = top(lane) + LANE;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#888888\"/>",
            LEFT + us * scale
        );
    }
}

fn layer_box(
    svg: &mut String,
    plan: &NetworkPlan,
    layer: &LayerPlan,
    (lane, time): (usize, &LayerTime),
    scale: f64,
) {
    let unit = &plan.units[layer.unit];
    let on_tensor_cores = unit.kernels.iter().any(|kernel| {
        let work = &kernel.blueprint.work;
        work.mma > 0.0 || work.tiled.is_some_and(|tiled| tiled.mma_per_step > 0.0)
    });
    let (colour, _) = match time.weight_bytes {
        0 => COLOURS[2],
        _ if on_tensor_cores => COLOURS[0],
        _ => COLOURS[1],
    };
    let (x, width) = (
        LEFT + time.start_us * scale,
        (time.end_us - time.start_us) * scale,
    );
    let height = (time.fill * LANE).max(MIN_BOX);
    let bottom = top(lane) + LANE;
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" fill=\"{colour}\" stroke=\"white\" \
         stroke-width=\"0.5\"><title>{}: {}, {:.2} us, {:.0} % of the GPU, {:.1} kB of weights</title></rect>",
        bottom - height,
        escaped(&layer.name),
        unit.scheme,
        time.end_us - time.start_us,
        100.0 * time.fill,
        time.weight_bytes as f64 / 1e3
    );
    if layer.name.chars().count() as f64 * LETTER < width {
        text(svg, [x + 2.0, bottom - 3.0], &layer.name);
    }
}

/// The weights that all branches read, bytes over time, as bars whose lane is as high as the GPU's bandwidth.
fn weight_traffic(svg: &mut String, plan: &NetworkPlan, times: &[LayerTime], scale: f64) {
    let bottom = top(plan.branches()) + LANE;
    let mut edges: Vec<f64> = times.iter().flat_map(|t| [t.start_us, t.end_us]).collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    let bandwidth = plan.gpu.sustained_bytes_per_us();
    for pair in edges.windows(2) {
        let [start, end] = [pair[0], pair[1]];
        let running = times
            .iter()
            .filter(|time| time.start_us <= start && end <= time.end_us);
        let rate: f64 = running
            .map(|time| time.weight_bytes as f64 / (time.end_us - time.start_us))
            .sum();
        let height = (rate / bandwidth).min(1.0) * LANE;
        if height > 0.0 {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{height:.1}\" fill=\"#cc79a7\"/>",
                LEFT + start * scale,
                bottom - height,
                (end - start) * scale
            );
        }
    }
    text(svg, [GAP / 2.0, bottom - LANE / 2.0], "weights");
    let label = format!("of {:.1} TB/s", bandwidth / 1e6);
    text(svg, [GAP / 2.0, bottom - LANE / 2.0 + 13.0], &label);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, NetworkBuilder, OpOptions, TensorShape};
    use crate::plan::plan_network;

    /// A chain, and two branches that nothing joins.
    fn plan(branches: bool) -> NetworkPlan {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 32, 13, 13));
        let input = |name: &str| [name.to_owned()];
        for name in ["a&", "b"] {
            builder.op(name, None, OpOptions::Conv(ConvOptions::new(32)));
        }
        builder.name_output("x");
        let from = if branches { "a&" } else { "b" };
        builder.op(
            "c",
            Some(&input(from)),
            OpOptions::Conv(ConvOptions::new(37)),
        );
        plan_network(&builder.finish().unwrap(), gpu("h200").unwrap()).unwrap()
    }

    #[test]
    fn layers_follow_each_other_in_their_branch() {
        let plan = plan(false);
        let times = plan.timeline();
        assert_eq!(times[0].start_us, 0.0);
        for pair in times.windows(2) {
            assert_eq!(pair[0].end_us, pair[1].start_us);
        }
        assert_eq!(times[2].end_us, plan.network_us());
        assert_eq!(times[2].weight_bytes, 4 * 37 * 32 * 9);
        assert!(times.iter().all(|time| time.fill > 0.0 && time.fill <= 1.0));
    }

    #[test]
    fn each_layer_has_a_box_and_a_title() {
        for branches in [false, true] {
            let plan = plan(branches);
            let svg = network_timeline(&plan, None);
            assert_eq!(svg.matches("<title>").count(), plan.layers.len());
            assert_eq!(svg.matches(">branch ").count(), plan.branches());
            assert!(svg.contains("<title>a&amp;: "), "{svg}");
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            let title = format!(
                "{:.1} us predicted, 3 layers, 3 launches",
                plan.network_us()
            );
            assert!(svg.contains(&title), "{title} {svg}");
        }
    }

    #[test]
    fn measured_times_have_a_lane() {
        let plan = plan(true);
        let names = plan.layers.iter().map(|layer| layer.name.clone());
        let names: Vec<String> = names.collect();
        let rows = |times: [f64; 3]| {
            let rows = names.iter().zip(times);
            let rows = rows.map(|(name, us)| format!("{us:8.2}  {:8.2}  {name}\n", us / 2.0));
            format!(
                "12.00 us per run (CUDA graph, median)\n   added     alone  layer\n{}   12.00      6.00  sum\n",
                rows.collect::<String>()
            )
        };
        let profile = Profile::read(&rows([3.5, -0.25, 80.0]), &plan).unwrap();
        assert_eq!(profile.added_us, [3.5, -0.25, 80.0]);
        let svg = network_timeline(&plan, Some(&profile));
        assert_eq!(svg.matches("<title>").count(), 2 * plan.layers.len());
        assert_eq!(svg.matches(">measured<").count(), 1);
        assert!(svg.contains("; 83.2 us measured"), "{svg}");
        // The last box ends where the network does, and the lanes reach as far.
        let last = svg.matches(", 80.00 us, ").count();
        assert_eq!(last, 1, "{svg}");
        assert!(
            svg.contains(&format!("H{:.1}", LEFT + 83.5 * PIXELS_PER_US)),
            "{svg}"
        );

        let all = rows([1.0, 2.0, 3.0]);
        assert!(Profile::read(&format!("Plan for 1 images. What\n{all}"), &plan).is_ok());
        for (text, expected) in [
            (String::new(), "no table of layers"),
            (
                format!("Plan for 8 images. What\n{all}"),
                "of the plan for 8 images, not for 1; plan with --batch 8",
            ),
            (all.replace("  b\n", "  bb\n"), "the layer `bb`"),
            (all.replace("added", "adds"), "no table of layers"),
            (
                all.replace("    3.00      1.50  c\n", ""),
                "2 layers, the plan has 3",
            ),
            (
                all.replace("    2.00", "     NaN"),
                "layers, the plan has 3",
            ),
        ] {
            let error = Profile::read(&text, &plan).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
