//! How the planner uses measured times.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::cost::{floor_us, fp32_lanes_floor_us};
use tdc_generator::gpu::{Gpu, gpu};
use tdc_generator::ir::{
    Activation, Batches, ConvProblem, DType, Format, Network, OpKind, Precision, Problem, Reduce,
    TilePolicy,
};
use tdc_generator::measure::tune::{Problems, present_text};
use tdc_generator::plan::{
    ChosenBy, PlannedUnit, Planner, TaskGraph, TuningTable, plan_network, plan_network_with,
    plan_problem, tuning_key,
};
use tdc_generator::render::{NetworkFile, network_text};
use tdc_generator::scheme::{Tile, scheme};
use tdc_runtime::{ConvShape, Padding};

const HEADING: &str = "\
gpu: h200
device: NVIDIA H200
driver: 580.1
nvrtc: 13.0
generator: 0.1.0
";

/// A table with rows without checksums, which the planner does not use.
fn table(rows: &str) -> TuningTable {
    let rows = rows.lines().map(|row| format!("{row} 0123456789abcdef\n"));
    let rows: String = rows.collect();
    format!("{HEADING}{rows}").parse().expect("a table")
}

fn h200() -> &'static Gpu {
    gpu("h200").expect("a GPU")
}

fn problem(reduce: Reduce) -> Problem {
    Problem::Conv(ConvProblem {
        reduce,
        ..ConvProblem::new(ConvShape::new(24, 40, 13, 15, 1, 1))
    })
}

fn planned(
    rows: &str,
    tiles: TilePolicy,
    reduce: Reduce,
    scheme: Option<&str>,
    tile: Option<&[u32]>,
) -> PlannedUnit {
    let mut planner = Planner::new(h200())
        .with_table(table(rows))
        .with_tile_policy(tiles);
    plan_problem(&mut planner, "t", "layer", &problem(reduce), scheme, tile).expect("a plan")
}

/// The tuning key of [`problem`], which has bias and ReLU.
const ROWS: &str = "\
conv_c24_n40_h13_w15_k1x1_bias_relu direct p32rn4xn1sk2 3.5
conv_c24_n40_h13_w15_k1x1_bias_relu pointwise n16p16c8rn4rp1sk1 2.5
conv_c24_n40_h13_w15_k1x1_bias_relu tdc h2w2c4 4.5
conv_c24_n40_h13_w15_k1x1_bias_residual_relu direct p32rn1xn1sk1 0.1
conv_c24_n40_h13_w15_k1x1_atomic tdc h1w1c8 6.25
";

/// The pruned tile space has a thousand tiles; a row may have any other.
#[test]
fn a_measured_tile_outside_the_pruned_space_is_chosen() {
    let conv = Problem::Conv(ConvProblem::new(ConvShape {
        padding: Padding::all(1),
        ..ConvShape::new(96, 64, 28, 28, 3, 3)
    }));
    let gemm = scheme("implicit_gemm").expect("a scheme");
    // One warp per block: a tile that the pruned space does not have.
    let label = "h4w8m2wm1wp1wk1cl6cg1s1";
    let tile = Tile::from_label(label, gemm.tile_fields()).expect("a tile");
    assert!(gemm.supports(&conv, &tile, h200()) && !gemm.tiles(&conv, h200()).contains(&tile));
    let rows = format!("{} implicit_gemm {label} 0.5\n", tuning_key(&conv));
    let mut planner = Planner::new(h200())
        .with_table(table(&rows))
        .with_tile_policy(TilePolicy::Tuned);
    let unit = plan_problem(&mut planner, "t", "layer", &conv, None, None).expect("a plan");
    assert_eq!(
        choice(&unit),
        ("implicit_gemm", tile.0, ChosenBy::Tuned, Some(0.5))
    );
}

fn choice(unit: &PlannedUnit) -> (&'static str, Vec<u32>, ChosenBy, Option<f64>) {
    (
        unit.scheme,
        unit.tile.0.clone(),
        unit.chosen_by,
        unit.measured_us,
    )
}

#[test]
fn the_fastest_measured_row_is_chosen() {
    let plan = |scheme| planned(ROWS, TilePolicy::Tuned, Reduce::Ordered, scheme, None);
    let pointwise = vec![16, 16, 8, 4, 1, 1];
    let tuned = ChosenBy::Tuned;
    assert_eq!(
        choice(&plan(None)),
        ("pointwise", pointwise, tuned, Some(2.5))
    );
    // With a scheme in the config, the best row of that scheme.
    assert_eq!(
        choice(&plan(Some("direct"))),
        ("direct", vec![32, 4, 1, 2], tuned, Some(3.5))
    );
    assert_eq!(
        choice(&plan(Some("tdc"))),
        ("tdc", vec![2, 2, 4], tuned, Some(4.5))
    );
    // Problems that were not measured are planned with the cost model.
    let rows = plan(Some("tdc_rows"));
    assert_eq!((rows.chosen_by, rows.measured_us), (ChosenBy::Model, None));
    let atomic = planned(ROWS, TilePolicy::Tuned, Reduce::Atomic, None, None);
    assert_eq!(choice(&atomic), ("tdc", vec![1, 1, 8], tuned, Some(6.25)));
    // An opt-in scheme is used if it was measured to be the fastest.
    let fast = ROWS.replace("4.5", "0.5");
    let tdc = planned(&fast, TilePolicy::Tuned, Reduce::Ordered, None, None);
    assert_eq!(choice(&tdc), ("tdc", vec![2, 2, 4], tuned, Some(0.5)));
}

#[test]
fn a_named_tile_shows_its_measured_time() {
    let plan = |tile: &[u32]| {
        planned(
            ROWS,
            TilePolicy::Tuned,
            Reduce::Ordered,
            Some("direct"),
            Some(tile),
        )
    };
    let user = ChosenBy::User;
    assert_eq!(
        choice(&plan(&[32, 4, 1, 2])),
        ("direct", vec![32, 4, 1, 2], user, Some(3.5))
    );
    assert_eq!(
        choice(&plan(&[32, 1, 1, 1])),
        ("direct", vec![32, 1, 1, 1], user, None)
    );
}

#[test]
fn stale_rows_are_ignored() {
    let model = planned("", TilePolicy::Model, Reduce::Ordered, None, None);
    let stale = "\
conv_c24_n40_h13_w15_k1x1_bias_relu fft t4 0.1
conv_c24_n40_h13_w15_k1x1_bias_relu pointwise n16p16c9rn4rp1sk1 0.2
conv_c24_n40_h13_w15_k1x1_bias_relu linear wt1 0.3
conv_c24_n40_h13_w15_k1x1_bias_relu tdc nonsense 0.4
";
    assert_eq!(
        planned(stale, TilePolicy::Tuned, Reduce::Ordered, None, None),
        model
    );
    let one = format!("{stale}conv_c24_n40_h13_w15_k1x1_bias_relu direct p32rn4xn1sk2 3.5\n");
    let found = planned(&one, TilePolicy::Tuned, Reduce::Ordered, None, None);
    assert_eq!(
        choice(&found),
        ("direct", vec![32, 4, 1, 2], ChosenBy::Tuned, Some(3.5))
    );
}

/// Every problem of the configs, by its tuning key, and of the ResNets with fp16 activations.
fn problems_of_configs() -> Problems {
    let mut problems = Problems::default();
    for (config, batches) in [
        ("resnet50", Some(Batches::one(8))),
        ("resnet50", None),
        ("resnet18", None),
    ] {
        let with_fp16_activations = Overrides {
            dense: true,
            precision: Some(Precision::Fp16),
            activations: Some(DType::Fp16),
            batches,
            ..Overrides::default()
        };
        let path = root().join(format!("configs/{config}.yaml"));
        problems.add(&yaml::load(&path, &with_fp16_activations).unwrap());
    }
    for file in std::fs::read_dir(root().join("configs")).unwrap() {
        let path = file.unwrap().path();
        for overrides in Problems::measured_forms() {
            problems.add(&yaml::load(&path, &overrides).unwrap());
        }
    }
    problems
}

/// Key, scheme, tile, microseconds and checksum of each row of the H200's table.
fn committed_rows() -> Vec<[String; 5]> {
    let text = std::fs::read_to_string(root().join("generated/tuning/h200.txt")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        words.try_into().ok()
    })
    .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A row whose tile is no longer valid would be ignored silently, and its measurement would be lost.
#[test]
fn every_committed_row_is_a_tile_of_its_scheme() {
    let problems = problems_of_configs();
    let problems: HashMap<_, _> = problems.iter().collect();
    let rows = committed_rows();
    let unknown = rows.iter().map(|[key, ..]| key);
    let unknown: Vec<_> = unknown
        .filter(|key| !problems.contains_key(&key[..]))
        .collect();
    assert!(unknown.is_empty(), "no config has {unknown:#?}");
    for row @ [key, name, tile, ..] in &rows {
        let problem = problems[&key[..]];
        let scheme = scheme(name).unwrap();
        let tile = Tile::from_label(tile, scheme.tile_fields()).unwrap();
        assert!(scheme.supports(problem, &tile, h200()), "{row:?}");
    }
    assert!(rows.len() > 500, "{} rows", rows.len());
}

/// The committed times must be those of the kernels that are generated now: `merge` drops other rows.
///
/// If the source has changed but not the machine code, as after renaming a variable of a template, the times
/// remain valid: `TDC_BLESS=1` updates the checksums. If the machine code has changed, the rows must be
/// measured again.
#[test]
fn every_committed_row_was_measured_with_the_present_text() {
    let path = root().join("generated/tuning/h200.txt");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let mut stale = Vec::new();
    for [key, name, tile, us, found] in committed_rows() {
        let present = present_text(&key, &name, &tile, h200()).unwrap();
        let present = present.unwrap_or_else(|| panic!("no kernel for {key} {name} {tile}"));
        let row = format!("{key} {name} {tile} {us}");
        if found != format!("{present:016x}") {
            text = text.replace(
                &format!("\n{row} {found}\n"),
                &format!("\n{row} {present:016x}\n"),
            );
            stale.push(row);
        }
    }
    if std::env::var_os("TDC_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        stale.is_empty(),
        "{} rows of other kernels than today's, such as `{}`: measure them again, or where the machine code is the same run this \
         with TDC_BLESS=1",
        stale.len(),
        stale[0]
    );
}

/// The floor is a physical limit, so no measured time is below it. The floor of the fp32 lanes is not a limit
/// for products on tensor cores.
#[test]
fn no_committed_time_is_below_the_floor() {
    let problems = problems_of_configs();
    let problems: HashMap<_, _> = problems.iter().collect();
    let (mut below, mut below_lanes) = (Vec::new(), 0);
    for row @ [key, _, _, us, _] in &committed_rows() {
        let (problem, us) = (problems[&key[..]], us.parse::<f64>().unwrap());
        let floor = floor_us(problem, h200());
        if us < floor {
            below.push(format!("{row:?}: the floor is {floor} us"));
        }
        let lanes = fp32_lanes_floor_us(problem.flops(), problem.bytes(), h200());
        assert!(lanes >= floor, "{row:?}");
        below_lanes += usize::from(us < lanes);
    }
    assert!(below.is_empty(), "{}", below.join("\n"));
    assert!(below_lanes > 10, "{below_lanes}");
}

/// For a GPU without a tuning table the planner chooses between lowerings of a Tucker layer (one, two or
/// three launches, fused with the next layer's first factor or not) by predicted times: their error must not
/// be larger for one lowering than for another.
#[test]
fn predicted_times_of_tucker_layers_are_unbiased() {
    let problems = problems_of_configs();
    let problems: HashMap<_, _> = problems.iter().collect();
    let planner = Planner::new(h200());
    let mut off = BTreeMap::<_, Vec<f64>>::new();
    for row @ [key, name, tile, us, _] in &committed_rows() {
        if name != "tucker_fused" {
            continue;
        }
        let (scheme, us) = (scheme(name).unwrap(), us.parse::<f64>().unwrap());
        let tile = Tile::from_label(tile, scheme.tile_fields()).unwrap();
        let estimate = planner.predicted_us(problems[&key[..]], scheme, &tile);
        let ratio = estimate / us;
        assert!((0.7..1.4).contains(&ratio), "{row:?}: {estimate} us");
        let goes_on = key.contains("_nextonly") || key.contains("_next");
        let kind = (key.starts_with("tucker_c"), goes_on);
        off.entry(kind).or_default().push(ratio.ln());
    }
    assert_eq!(off.len(), 4);
    for (kind, off) in off {
        let mean = (off.iter().sum::<f64>() / off.len() as f64).exp();
        assert!((0.93..1.07).contains(&mean), "{kind:?}: {mean}");
    }
}

#[test]
fn the_table_applies_only_to_tuned_and_its_gpu() {
    let plan = |rows, tiles| planned(rows, tiles, Reduce::Ordered, None, None);
    assert_eq!(plan(ROWS, TilePolicy::Model), plan("", TilePolicy::Model));
    assert_eq!(plan(ROWS, TilePolicy::Paper), plan("", TilePolicy::Paper));
    // The order in which table and policy are set makes no difference.
    let mut planner = Planner::new(h200())
        .with_tile_policy(TilePolicy::Tuned)
        .with_table(table(ROWS));
    let found = plan_problem(
        &mut planner,
        "t",
        "layer",
        &problem(Reduce::Ordered),
        None,
        None,
    );
    assert_eq!(found.expect("a plan"), plan(ROWS, TilePolicy::Tuned));

    let a100 = gpu("a100").expect("a GPU");
    let of = |tiles| {
        let mut planner = Planner::new(a100)
            .with_table(table(ROWS))
            .with_tile_policy(tiles);
        plan_problem(
            &mut planner,
            "t",
            "layer",
            &problem(Reduce::Ordered),
            None,
            None,
        )
        .expect("a plan")
    };
    assert_eq!(of(TilePolicy::Tuned), of(TilePolicy::Model));
}

#[test]
fn tiles_tuned_is_the_default() {
    let network = |tiles: &str| {
        let text = format!(
            "name: n\n{tiles}input: 1x24x13x15\nops:\n  - {{op: conv, name: a, n: 40, kernel: 1, bn: b}}\n"
        );
        match yaml::parse(&text, "n.yaml", &Overrides::default()) {
            Ok(Config::Network(network)) => network,
            other => panic!("{other:?}"),
        }
    };
    let plan = |tiles: &str| {
        let planner = Planner::new(h200()).with_table(table(ROWS));
        let plan = plan_network_with(&network(tiles), planner).expect("a plan");
        choice(&plan.units[0])
    };
    // BatchNorm is folded into a bias, which does not change the tuning key.
    assert_eq!(
        plan(""),
        (
            "pointwise",
            vec![16, 16, 8, 4, 1, 1],
            ChosenBy::Tuned,
            Some(2.5)
        )
    );
    assert_eq!(plan("tiles: tuned\n"), plan(""));
    let by_model = plan_network(&network("tiles: model\n"), h200()).expect("a plan");
    assert_eq!(plan("tiles: model\n"), choice(&by_model.units[0]));
    assert_eq!(by_model.units[0].chosen_by, ChosenBy::Model);
}

/// A network of one Tucker layer, with further keys of the layer.
fn tucker(tiles: &str, keys: &str) -> Network {
    let text = format!(
        "name: n\n{tiles}input: 1x32x20x20\nops:\n  - {{op: conv, name: a, n: 24, ranks: [16, 17], bias: true{keys}}}\n"
    );
    match yaml::parse(&text, "n.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

/// A row of a problem with a scheme and its first tile.
fn row_of(problem: &Problem, name: &str, us: f64) -> String {
    let scheme = scheme(name).expect("a scheme");
    let tile = scheme.tiles(problem, h200())[0].clone();
    let tile = tile.label(scheme.tile_fields()).to_string();
    format!("{} {name} {tile} {us}\n", tuning_key(problem))
}

/// A row of a task of a Tucker layer.
fn row(problem: &Problem, us: f64) -> String {
    let name = match problem {
        Problem::Tucker(_) => "tucker_fused",
        _ => "direct",
    };
    row_of(problem, name, us)
}

/// The problem of the candidate of this name, with activations in fp32 NCHW.
fn candidate(graph: &TaskGraph, name: &str) -> Problem {
    let candidates = graph.candidates().into_iter();
    let named = candidates.filter(|candidate| candidate.task.name == name);
    let mut problems = named
        .map(|candidate| candidate.task.problem)
        .filter(|problem| {
            let tensors = [problem.kind().input(), problem.kind().output()];
            tensors
                .iter()
                .all(|tensor| tensor.format == Format::default())
        });
    let problem = problems.next().expect("a candidate of this name");
    assert_eq!(problems.next(), None);
    problem
}

/// Rows of the candidates with these times: first, core and last factor, the complete layer, core_last. No row for a time of 0.
fn tucker_rows(us: [f64; 5]) -> String {
    let graph = TaskGraph::new(&tucker("", ""));
    let names = ["a.first", "a.core", "a.last", "a", "a.core_last"];
    let rows = names.into_iter().zip(us).filter(|(_, us)| *us > 0.0);
    rows.map(|(name, us)| row(&candidate(&graph, name), us))
        .collect()
}

#[test]
fn a_tucker_layer_uses_the_fastest_measured_lowering() {
    let names = |us: [f64; 5], tiles: &str, keys: &str| {
        let planner = Planner::new(h200()).with_table(table(&tucker_rows(us)));
        let plan = plan_network_with(&tucker(tiles, keys), planner).expect("a plan");
        // The weight slots are those of three convolutions for any number of launches.
        let slots: Vec<_> = plan
            .weights
            .iter()
            .map(|(slot, _)| &slot.name[..])
            .collect();
        assert_eq!(slots, ["a.first", "a.core", "a.last"]);
        let bias: Vec<_> = plan.weights.iter().map(|(slot, _)| slot.bias_len).collect();
        assert_eq!(bias, [0, 0, 24]);
        let slots: Vec<_> = plan.layers.iter().flat_map(|layer| &layer.slots).collect();
        assert_eq!(slots, [&0, &1, &2]);
        let names: Vec<_> = plan.layers.iter().map(|layer| layer.name.clone()).collect();
        names.join(" ")
    };
    let three = "a.first a.core a.last";
    // Each launch takes 0.28 us more in a network than when it is repeated.
    assert_eq!(names([2.0, 3.0, 2.0, 6.5, 4.9], "", ""), "a");
    assert_eq!(names([2.0, 3.0, 2.0, 6.5, 4.3], "", ""), "a");
    assert_eq!(
        names([2.0, 3.0, 2.0, 6.5, 4.0], "", ""),
        "a.first a.core_last"
    );
    assert_eq!(names([2.0, 3.0, 1.0, 6.5, 4.3], "", ""), "a");
    assert_eq!(names([2.0, 3.0, 0.6, 6.5, 4.1], "", ""), three);
    // Ties go to fewer launches.
    assert_eq!(names([2.0, 3.0, 2.0, 7.0, 5.0], "", ""), "a");
    // A lowering that was not measured replaces one that was only if its predicted time is shorter by more than the margin.
    let graph = TaskGraph::new(&tucker("", ""));
    let whole = Planner::new(h200()).choose("a", &candidate(&graph, "a"), None, None);
    let predicted_us = whole.expect("a choice").predicted_us;
    let boundary_us = h200().cost_model().network.boundary_us;
    let factor_us = |times: f64| (times * predicted_us - 2.0 * boundary_us) / 3.0;
    let measured = |times| {
        [
            factor_us(times),
            factor_us(times),
            factor_us(times),
            0.0,
            9.0,
        ]
    };
    assert_eq!(names(measured(1.03), "", ""), three);
    assert_eq!(names(measured(1.07), "", ""), "a");
    // The config decides, and the policy `paper` has three launches only.
    let slow = [2.0, 3.0, 1.0, 6.5, 4.1];
    assert_eq!(names(slow, "", ", scheme: tucker_fused"), "a");
    let fast = [2.0, 3.0, 2.0, 1.0, 1.0];
    assert_eq!(names(fast, "", ", scheme: direct"), three);
    assert_eq!(names(fast, "", ", scheme: tdc, reduce: atomic"), three);
    assert_eq!(names(fast, "tiles: paper\n", ""), three);
}

/// Two Tucker layers, the second of which adds the output of the first, and a third.
fn chain() -> Network {
    let text = "name: n\ninput: 1x32x20x20\nops:\n\
        \x20 - {op: conv, name: a, n: 24, ranks: [16, 17], bias: true}\n\
        \x20 - {op: conv, name: b, n: 24, ranks: [11, 12], bn: bn}\n\
        \x20 - {op: add, name: sum, inputs: [b, a], activation: relu}\n\
        \x20 - {op: conv, name: c, n: 10, ranks: [13, 9]}\n";
    match yaml::parse(text, "n.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tucker_layers_are_fused_with_the_next_where_measured_faster() {
    let graph = TaskGraph::new(&chain());
    let plan = |rows: &str| {
        let planner = Planner::new(h200()).with_table(table(rows));
        plan_network_with(&chain(), planner).expect("a plan")
    };
    let names = |rows: &str| {
        let names: Vec<_> = plan(rows)
            .layers
            .iter()
            .map(|layer| layer.name.clone())
            .collect();
        names.join(" ")
    };
    // Each factor 0.4; a layer in one launch 1, core_last 0.7: less than predicted for any launch.
    let factors = graph.tasks.iter().map(|task| row(&task.problem, 0.4));
    let factors: Vec<String> = factors.collect();
    let mut rows = String::new();
    for name in ["a", "b", "c"] {
        rows += &row(&candidate(&graph, name), 1.0);
        rows += &row(&candidate(&graph, &format!("{name}.core_last")), 0.7);
    }
    let with_next = candidate(&graph, "a+b.first");
    let core_last_with_next = candidate(&graph, "b.core_last+c.first");
    let separate = factors.concat() + &rows;
    // Candidates that were not measured are predicted to take longer.
    assert_eq!(names(&separate), "a b c");
    // The first layer and the next one's first factor in 1.1: 1.1 + 0.7 < 1 + 1.
    let first = separate.clone() + &row(&with_next, 1.1);
    assert_eq!(names(&first), "a+b.first b.core_last c");
    let slow = separate.clone() + &row(&with_next, 1.32);
    assert_eq!(names(&slow), "a b c");
    let all = first.clone() + &row(&core_last_with_next, 0.9);
    assert_eq!(names(&all), "a+b.first b.core_last+c.first c.core_last");
    // A layer of which a factor was not measured may be fused with one that was.
    let partly = factors[..8].concat() + &rows + &row(&core_last_with_next, 0.1);
    assert!(names(&partly).contains("+c"), "{}", names(&partly));

    // However they are fused, the parameters are those of nine convolutions, and those of each unit are consecutive.
    let plan = plan(&all);
    let slots: Vec<_> = plan.weights.iter().collect();
    let choice: Vec<_> = slots
        .iter()
        .map(|(slot, _)| (&slot.name[..], slot.bias_len))
        .collect();
    assert_eq!(
        choice,
        [
            ("a.first", 0),
            ("a.core", 0),
            ("a.last", 24),
            ("b.first", 0),
            ("b.core", 0),
            ("b.last", 24),
            ("c.first", 0),
            ("c.core", 0),
            ("c.last", 0),
        ]
    );
    for layer in &plan.layers {
        let variant = plan.units[layer.unit].variant();
        let (packed, bias) = plan.parameter_offsets(layer);
        let packed = packed.expect("weights");
        let places = variant.packed_layouts().map(|(at, layout)| {
            let layout = layout.clone();
            (packed + 4 * at as u64, layout)
        });
        let own = layer.slots.iter().map(|&slot| {
            let (slot, region) = slots[slot];
            (region.packed, slot.layout.clone())
        });
        assert!(places.eq(own), "{}", layer.name);
        let end = packed + 4 * variant.packed_len() as u64;
        assert_eq!(bias.is_some(), variant.bias_len > 0, "{}", layer.name);
        assert!(bias.is_none_or(|bias| bias >= end), "{}", layer.name);
    }
    // `b` reads the tensor stored after the output of `a`, and adds that output; of `b` only the next factor's
    // output is stored.
    let [a, b, c] = &plan.layers[..] else {
        panic!("three layers");
    };
    assert_eq!((&a.output_op[..], a.y.shape.c), ("a", 24));
    assert_eq!((b.x.memory, b.x.offset), (a.y.memory, 24 * 400));
    assert_eq!(b.residual, Some(a.y));
    assert_eq!(a.y.batch_stride, (24 + 11) * 400);
    assert_eq!((b.y, b.y.shape.c), (c.x, 13));
    assert_eq!(b.y.offset, 0);
    // The driver packs random weights with the packers of each unit, and passes each launch its block and its
    // bias.
    let text = network_text(std::slice::from_ref(&plan), NetworkFile::Driver).expect("a driver");
    for (slot, layer, factor) in [
        ("a.last", a, "last"),
        ("b.first", a, "next"),
        ("b.core", b, "core"),
    ] {
        let unit = &plan.units[layer.unit].unit.name;
        let row = format!("// \"{slot}\"\n    {{{unit}_pack_{factor},");
        assert!(text.contains(&row), "no {row} in\n{text}");
    }
    let bias = plan.parameter_offsets(a).1.expect("a bias") / 4;
    assert!(
        text.contains(&format!("p.weights, p.weights + {bias}, ")),
        "{text}"
    );
}

/// The measured factors of a layer in fp32 NCHW are far slower than the same layer in split NHWC, which was not measured, between layers that
/// are best in split NHWC. A rule by which what was measured competes with nothing else once made a VGG-16 5 % slower.
#[test]
fn measured_factors_do_not_exclude_other_formats() {
    let text = "name: n\ninput: 1x64x112x112\nops:\n\
        \x20 - {op: conv, name: a, n: 128, bias: true, activation: relu}\n\
        \x20 - {op: conv, name: b, n: 128, ranks: [64, 128], bias: true, activation: relu}\n\
        \x20 - {op: conv, name: c, n: 128, bias: true, activation: relu}\n";
    let network = match yaml::parse(text, "n.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    };
    let graph = TaskGraph::new(&network);
    let formats = |rows: &str| -> Vec<_> {
        let planner = Planner::new(h200()).with_table(table(rows));
        let plan = plan_network_with(&network, planner).expect("a plan");
        let units = plan.layers.iter().map(|layer| &plan.units[layer.unit]);
        units
            .map(|unit| unit.problem.kind().output().format)
            .collect()
    };
    let plain = formats("");
    assert!(plain.contains(&Format::SPLIT_NHWC), "{plain:?}");
    let row_of_factor = |name, us| row_of(&candidate(&graph, name), "implicit_gemm", us);
    let rows = row_of_factor("b.first", 5.02) + &row_of_factor("b.core", 19.23);
    assert_eq!(formats(&rows), plain);
}

/// A network of one CP layer with sizes that are all different.
fn cp(tiles: &str, rank: u32, keys: &str) -> Network {
    let text = format!(
        "name: n\n{tiles}input: 2x20x19x21\nops:\n  - {{op: conv, name: a, n: 24, kernel: [5, 3], stride: [1, 2], pad: [2, 1, 0, 3], \
         dilation: [2, 1], cp_rank: {rank}, bias: true, activation: relu{keys}}}\n"
    );
    match yaml::parse(&text, "n.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cp_layer_uses_four_launches_or_one() {
    let names = |tiles: &str, rank: u32, keys: &str, rows: &str| {
        let planner = Planner::new(h200()).with_table(table(rows));
        let plan = plan_network_with(&cp(tiles, rank, keys), planner).expect("a plan");
        let slots: Vec<_> = plan
            .weights
            .iter()
            .map(|(slot, _)| &slot.name[..])
            .collect();
        // In order of use: at stride [1, 2] the horizontal filter comes first, except in one launch.
        let inner = match plan.layers.len() {
            1 => ["a.vertical", "a.horizontal"],
            _ => ["a.horizontal", "a.vertical"],
        };
        assert_eq!(slots, ["a.first", inner[0], inner[1], "a.last"]);
        let bias: Vec<_> = plan.weights.iter().map(|(slot, _)| slot.bias_len).collect();
        assert_eq!(bias, [0, 0, 0, 24]);
        let schemes: Vec<_> = plan
            .layers
            .iter()
            .map(|layer| plan.units[layer.unit].scheme)
            .collect();
        let names: Vec<_> = plan.layers.iter().map(|layer| layer.name.clone()).collect();
        (names.join(" "), schemes[schemes.len() / 2])
    };
    let four = "a.first a.horizontal a.vertical a.last";
    assert_eq!(names("", 7, "", ""), ("a".to_owned(), "cp_chain"));
    assert_eq!(names("", 7, ", scheme: cp_fused", "").1, "cp_fused");
    assert_eq!(
        names("", 7, ", scheme: direct", ""),
        (four.to_owned(), "direct")
    );
    assert_eq!(names("tiles: paper\n", 7, "", "").0, four);
    // More values than the threads have registers for.
    assert_eq!(names("", 33, "", "").0, four);
    // Four measured launches, against the predicted time of a single one, and then against its measured time.
    let graph = TaskGraph::new(&cp("", 7, ""));
    let whole = candidate(&graph, "a");
    let mut rows: String = graph
        .tasks
        .iter()
        .map(|task| row_of(&task.problem, "direct", 0.2))
        .collect();
    assert_eq!(names("", 7, "", &rows).0, four);
    rows += &row_of(&whole, "cp_chain", 0.9);
    assert_eq!(names("", 7, "", &rows).0, "a");
}

#[test]
fn the_factors_of_a_cp_layer_make_up_its_convolution() {
    let network = cp("", 7, "");
    let graph = TaskGraph::new(&network);
    assert_eq!(graph.tasks.len(), 4);
    let Problem::Cp(whole) = candidate(&graph, "a") else {
        panic!("another problem");
    };
    let OpKind::Conv(conv) = &network.op(network.last_op()).kind else {
        panic!("another op");
    };
    assert_eq!(whole.rank, 7);
    assert_eq!(whole.conv.shape, conv.shape);
    assert!(whole.conv.epilogue.bias && whole.conv.epilogue.activation == Activation::Relu);
    let shapes: Vec<_> = graph.tasks.iter().map(|task| task.problem).collect();
    let factors = whole.factors_in_order(true);
    for (problem, factor) in shapes.iter().zip(&factors) {
        assert!(matches!(problem, Problem::Conv(conv) if conv.shape == *factor));
    }
    // Each reads the output of its predecessor.
    for pair in shapes.windows(2) {
        assert_eq!(pair[0].y(), pair[1].x());
    }
    assert_eq!(
        whole.factors().map(|factor| factor.weight()),
        [[7, 20, 1, 1], [7, 1, 5, 1], [7, 1, 1, 3], [24, 7, 1, 1]]
    );
}

#[test]
fn an_unsupported_tucker_fused_layer_is_an_error() {
    let mut layer = tucker("", ", scheme: tucker_fused");
    layer.tiles = TilePolicy::Model;
    assert!(plan_network(&layer, h200()).is_ok());
    let bf16 = tucker("", ", scheme: tucker_fused, precision: bf16");
    let errors = plan_network(&bf16, h200()).expect_err("an error");
    assert_eq!(
        errors[0].to_string().lines().next(),
        Some(
            "layer `a`: scheme `tucker_fused` cannot compute tucker_c32_d16x17_n24_h20_w20_k3x3_p1_bias_bf16; \
             remove `scheme` to let the planner choose one that can"
        )
    );
}
